#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
/* async FILE HOW N: N direct reads, each waited for in io_getevents (aio) or io_uring_enter (uring) */
static void fail_if(int bad, int status)
{
	if (bad)
		exit(status);
}
static void aio(int fd, void *block, int n)
{
	aio_context_t context = 0;
	struct io_event event;
	fail_if(syscall(SYS_io_setup, 4, &context), 3);
	for (int i = 0; i < n; i++) {
		struct iocb one = { .aio_fildes = fd, .aio_lio_opcode = IOCB_CMD_PREAD, .aio_buf = (uintptr_t)block, .aio_nbytes = 4096,
				    .aio_offset = (long long)i % 256 * 4096 };
		struct iocb *all = &one;
		fail_if(syscall(SYS_io_submit, context, 1, &all) != 1, 4);
		fail_if(syscall(SYS_io_getevents, context, 1, 1, &event, 0) != 1 || event.res != 4096, 5);
	}
}
static void uring(int fd, void *block, int n)
{
	struct io_uring_params p;
	memset(&p, 0, sizeof p);
	int ring = syscall(SYS_io_uring_setup, 4, &p);
	fail_if(ring < 0 || !(p.features & IORING_FEAT_SINGLE_MMAP), 6);
	size_t size = p.sq_off.array + p.sq_entries * 4, cq = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
	char *rings = mmap(0, size > cq ? size : cq, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
	struct io_uring_sqe *sqes =
		mmap(0, p.sq_entries * sizeof *sqes, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
	fail_if(rings == MAP_FAILED || (void *)sqes == MAP_FAILED, 7);
	unsigned *tail = (void *)(rings + p.sq_off.tail), *array = (void *)(rings + p.sq_off.array);
	unsigned mask = *(unsigned *)(rings + p.sq_off.ring_mask), *head = (void *)(rings + p.cq_off.head);
	for (int i = 0; i < n; i++) {
		struct io_uring_sqe *sqe = sqes + (*tail & mask);
		memset(sqe, 0, sizeof *sqe);
		sqe->opcode = IORING_OP_READ;
		sqe->fd = fd;
		sqe->addr = (uintptr_t)block;
		sqe->len = 4096;
		sqe->off = (uint64_t)i % 256 * 4096;
		array[*tail & mask] = *tail & mask;
		__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
		fail_if(syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) != 1, 8);
		__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
	}
}
int main(int c, char **v)
{
	void *block;
	fail_if(c < 4, 2);
	int fd = open(v[1], O_CREAT | O_RDWR | O_DIRECT, 0600);
	fail_if(fd < 0 || posix_memalign(&block, 4096, 4096), 2);
	memset(block, 7, 4096);
	for (int i = 0; i < 256; i++)
		fail_if(pwrite(fd, block, 4096, (off_t)i * 4096) != 4096, 2);
	fail_if(fsync(fd), 2);
	(strcmp(v[2], "aio") ? uring : aio)(fd, block, atoi(v[3]));
	return 0;
}
