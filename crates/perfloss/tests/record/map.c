/* Four threads map, touch and unmap memory for a second: they wait for the lock of their address space. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

static void *body(void *unused)
{
	for (;;) {
		char *p = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p == MAP_FAILED)
			return unused;
		for (int i = 0; i < 1 << 20; i += 4096)
			p[i] = 1;
		munmap(p, 1 << 20);
	}
}

int main(void)
{
	pthread_t thread;

	for (int i = 0; i < 4; i++)
		pthread_create(&thread, 0, body, 0);
	sleep(1);
	return 0;
}
