/*
 * The peer of perfloss's hot loop: a C harness of the same method. Tasks are processes that count in a cache line of
 * their own in shared memory, behind one gate, in an endless loop; the supervisor reads all counters at the
 * start and at the end of a window.
 *
 * usage: hotloop CASE TASKS WARM_UP_MS WINDOW_MS DIR     prints operations per second
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 128, BLOCK = 4096, MAX_TASKS = 64 };

static char path[4096];

static void fail(const char *what)
{
	perror(what);
	_exit(1);
}

static void loop_getppid(unsigned long long *iterations)
{
	while (1) {
		getppid();
		(*iterations)++;
	}
}

static void loop_pread(unsigned long long *iterations)
{
	static char buffer[BLOCK];
	int fd = open(path, O_RDWR);

	if (fd < 0)
		fail("open");
	while (1) {
		if (pread(fd, buffer, BLOCK, 0) != BLOCK)
			fail("pread");
		(*iterations)++;
	}
}

static void loop_open(unsigned long long *iterations)
{
	while (1) {
		int fd = open(path, O_RDWR);

		if (fd < 0)
			fail("open");
		close(fd);
		(*iterations)++;
	}
}

static void loop_spawn(unsigned long long *iterations)
{
	extern char **environ;
	char *arguments[] = { "true", NULL };

	while (1) {
		int status;
		pid_t pid;

		if (posix_spawn(&pid, "/bin/true", NULL, NULL, arguments, environ))
			fail("posix_spawn");
		if (waitpid(pid, &status, 0) != pid || status)
			fail("waitpid");
		(*iterations)++;
	}
}

static const struct {
	const char *name;
	const char *file;
	void (*loop)(unsigned long long *iterations);
} cases[] = {
	{ "getppid", "%s/file.%d", loop_getppid },
	{ "pread", "%s/file.%d", loop_pread },
	{ "open", "%s/names/file.%d", loop_open },
	{ "spawn", "%s/%d", loop_spawn },
};

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void pin(int task)
{
	cpu_set_t allowed, one;
	int seen = 0;

	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		fail("sched_getaffinity");
	task %= CPU_COUNT(&allowed);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET(cpu, &allowed) && seen++ == task) {
			CPU_ZERO(&one);
			CPU_SET(cpu, &one);
			if (sched_setaffinity(0, sizeof(one), &one))
				fail("sched_setaffinity");
			return;
		}
	}
}

int main(int argc, char **argv)
{
	int tasks = argc == 6 ? atoi(argv[2]) : 0;
	void (*loop)(unsigned long long *) = NULL;
	const char *file = NULL;
	pid_t pids[MAX_TASKS];
	unsigned long long before = 0, after = 0;
	double start, end;
	atomic_int *gate;
	char *shared;

	for (size_t i = 0; argc == 6 && i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (!strcmp(argv[1], cases[i].name)) {
			loop = cases[i].loop;
			file = cases[i].file;
		}
	}
	if (!loop || tasks < 1 || tasks > MAX_TASKS) {
		fprintf(stderr, "usage: hotloop CASE TASKS WARM_UP_MS WINDOW_MS DIR\n");
		return 2;
	}
	shared = mmap(NULL, (tasks + 1) * LINE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		fail("mmap");
	gate = (atomic_int *)shared;
	for (int i = 0; i < tasks; i++) {
		pids[i] = fork();
		if (pids[i] < 0)
			fail("fork");
		if (pids[i] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			pin(i);
			snprintf(path, sizeof(path), file, argv[5], i);
			while (!atomic_load(gate))
				syscall(SYS_futex, gate, FUTEX_WAIT, 0, NULL, NULL, 0);
			loop((unsigned long long *)(shared + (i + 1) * LINE));
		}
	}
	atomic_store(gate, 1);
	syscall(SYS_futex, gate, FUTEX_WAKE, tasks, NULL, NULL, 0);
	usleep(atoi(argv[3]) * 1000);
	start = seconds();
	for (int i = 0; i < tasks; i++)
		before += *(volatile unsigned long long *)(shared + (i + 1) * LINE);
	usleep(atoi(argv[4]) * 1000);
	end = seconds();
	for (int i = 0; i < tasks; i++)
		after += *(volatile unsigned long long *)(shared + (i + 1) * LINE);
	for (int i = 0; i < tasks; i++) {
		int status;

		if (waitpid(pids[i], &status, WNOHANG) != 0) {
			fprintf(stderr, "task %d died\n", i);
			return 1;
		}
		kill(pids[i], SIGKILL);
		waitpid(pids[i], &status, 0);
	}
	printf("%.1f\n", (after - before) / (end - start));
	return 0;
}
