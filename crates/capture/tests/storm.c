/*
 * storm N RATE: makes N processes, one after the other, at most RATE a second. Every other one runs this program again, as `storm child I`;
 * the others take the name `fI`. Process I ends with the status I % 200. Now and then the kernel is asked to give numbers out again.
 * Prints a line for each: its number, when it did not exist yet, and when it was gone, in ns of CLOCK_MONOTONIC.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void rewind_numbers(pid_t to)
{
	/* not every kernel can be asked (CONFIG_CHECKPOINT_RESTORE); then numbers are as they come */
	FILE *f = fopen("/proc/sys/kernel/ns_last_pid", "w");

	if (f) {
		fprintf(f, "%d", to);
		fclose(f);
	}
}

int main(int argc, char **argv)
{
	long long begin = now();
	pid_t first = 0;
	int n, rate;

	if (argc == 3 && !strcmp(argv[1], "child"))
		return atoi(argv[2]) % 200;
	if (argc != 3)
		return 2;
	n = atoi(argv[1]);
	rate = atoi(argv[2]);
	setvbuf(stdout, NULL, _IOFBF, 1 << 20);
	for (int i = 0; i < n; i++) {
		long long due = begin + i * 1000000000LL / rate, before;
		char text[16];
		int status;
		pid_t pid;

		if (due > now()) {
			struct timespec t = { due / 1000000000, due % 1000000000 };

			clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
		}
		if (first && i % 50 == 0)
			rewind_numbers(first - 1);
		before = now();
		pid = fork();
		if (pid < 0)
			return 3;
		if (!pid) {
			snprintf(text, sizeof(text), i % 2 ? "%d" : "f%d", i);
			if (i % 2) {
				execl("/proc/self/exe", "storm", "child", text, NULL);
				_exit(255);
			}
			prctl(PR_SET_NAME, text);
			_exit(i % 200);
		}
		if (!first)
			first = pid;
		if (waitpid(pid, &status, 0) != pid || status != (i % 200) << 8)
			return 4;
		printf("%d %lld %lld\n", pid, before, now());
	}
	return 0;
}
