/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Loads for the race of tracers: `loads pipes|create_unlink|fsync|cc SECONDS TASKS DIR [PID…]` prints operations per second of all tasks,
 * counted from their common start to each task's last operation, the CPU time an operation took, in us: of the tasks and their
 * children, and of the processes PID… (the tracer), and the number of operations.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

struct result {
	double rate;
	long count;
	char pad[48];
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* CPU time of a process's threads, in us. */
static double cpu_of(const char *pid)
{
	char path[512];
	double sum = 0;
	struct dirent *entry;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%s/task", pid);
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		unsigned long long ns;
		FILE *f;

		snprintf(path, sizeof(path), "/proc/%s/task/%.20s/schedstat", pid, entry->d_name);
		f = fopen(path, "r");
		if (!f)
			continue;
		if (fscanf(f, "%llu", &ns) == 1)
			sum += ns / 1e3;
		fclose(f);
	}
	if (dir)
		closedir(dir);
	return sum;
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

/* A byte to a partner and back: the worst case for a tracer of switches. */
static long pipes(double end)
{
	int to[2], back[2];
	long n = 0;
	char byte = 0;
	pid_t partner;

	if (pipe(to) || pipe(back))
		fail("pipe");
	partner = fork();
	if (partner < 0)
		fail("fork");
	if (!partner) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		while (read(to[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1)
			;
		_exit(0);
	}
	while (now() < end)
		for (int i = 0; i < 100; i++, n++)
			if (write(to[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
				fail("pipes");
	kill(partner, SIGKILL);
	waitpid(partner, NULL, 0);
	return n;
}

static long create_unlink(double end, const char *dir, int task)
{
	char path[4096];
	long n = 0;

	snprintf(path, sizeof(path), "%s/shared", dir);
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/shared/file.%d", dir, task);
	while (now() < end) {
		int fd = open(path, O_CREAT | O_RDWR, 0600);

		if (fd < 0)
			fail(path);
		close(fd);
		if (unlink(path))
			fail(path);
		n++;
	}
	return n;
}

/* A block is written and waited for. */
static long sync_block(double end, const char *dir, int task)
{
	char path[4096], block[4096] = { 1 };
	long n = 0;
	int fd;

	snprintf(path, sizeof(path), "%s/file.%d", dir, task);
	fd = open(path, O_CREAT | O_RDWR, 0600);
	if (fd < 0)
		fail(path);
	while (now() < end) {
		if (pwrite(fd, block, sizeof(block), n % 64 * sizeof(block)) != sizeof(block) || fsync(fd))
			fail(path);
		n++;
	}
	return n;
}

static long cc(double end, const char *dir, int task)
{
	char src[4096], out[4096];
	long n = 0;
	FILE *f;

	snprintf(src, sizeof(src), "%s/src%d.c", dir, task);
	snprintf(out, sizeof(out), "%s/out%d.o", dir, task);
	f = fopen(src, "w");
	if (!f)
		fail(src);
	fprintf(f, "int printf(const char *, ...);\nint main(void) { printf(\"hello\\n\"); return 0; }\n");
	fclose(f);
	while (now() < end) {
		char *argv[] = { "cc", "-c", "-o", out, src, NULL };
		struct stat st;
		int status;
		pid_t pid;

		if (posix_spawnp(&pid, "cc", NULL, NULL, argv, environ))
			fail("cc");
		if (waitpid(pid, &status, 0) != pid || status || stat(out, &st))
			fail("cc failed");
		n++;
	}
	return n;
}

int main(int argc, char **argv)
{
	struct result *results;
	int tasks, failed = 0;
	double seconds, sum = 0, tracer = 0, cpu;
	struct rusage used;
	long count = 0;

	if (argc < 5) {
		fprintf(stderr, "usage: loads pipes|create_unlink|fsync|cc SECONDS TASKS DIR [PID...]\n");
		return 2;
	}
	seconds = atof(argv[2]);
	tasks = atoi(argv[3]);
	results = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (results == MAP_FAILED || tasks < 1 || tasks > 64)
		fail("tasks");
	for (int i = 5; i < argc; i++)
		tracer -= cpu_of(argv[i]);
	for (int i = 0; i < tasks; i++) {
		pid_t pid = fork();

		if (pid < 0)
			fail("fork");
		if (!pid) {
			double begin = now();
			long n;

			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (!strcmp(argv[1], "pipes"))
				n = pipes(begin + seconds);
			else if (!strcmp(argv[1], "create_unlink"))
				n = create_unlink(begin + seconds, argv[4], i);
			else if (!strcmp(argv[1], "fsync"))
				n = sync_block(begin + seconds, argv[4], i);
			else
				n = cc(begin + seconds, argv[4], i);
			results[i].rate = n / (now() - begin);
			results[i].count = n;
			_exit(0);
		}
	}
	for (int i = 0; i < tasks; i++) {
		int status;

		if (wait(&status) < 0 || status)
			failed = 1;
	}
	if (failed)
		return 1;
	for (int i = 5; i < argc; i++)
		tracer += cpu_of(argv[i]);
	for (int i = 0; i < tasks; i++) {
		sum += results[i].rate;
		count += results[i].count;
	}
	getrusage(RUSAGE_CHILDREN, &used);
	cpu = (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 + used.ru_utime.tv_usec + used.ru_stime.tv_usec;
	printf("%.1f %.3f %.3f %ld\n", sum, cpu / count, tracer / count, count);
	return 0;
}
