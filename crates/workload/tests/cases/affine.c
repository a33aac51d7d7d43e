/* Does its work in a task of its own on a named CPU, behind a gate of its own. */
#define _GNU_SOURCE
#include <assert.h>
#include <sched.h>
#include <unistd.h>

char *testcase_description = "work on a named CPU";

struct args {
	void *(*func)(unsigned long long *iterations, unsigned long nr);
	unsigned long long *arg1;
	unsigned long arg2;
	int poll_fd;
};

extern void new_task_affinity(struct args *args, size_t cpuset_size, cpu_set_t *mask);

static void *work(unsigned long long *iterations, unsigned long nr)
{
	cpu_set_t mask;

	assert(nr == 77);
	assert(sched_getaffinity(0, sizeof(mask), &mask) == 0 && CPU_COUNT(&mask) == 1);
	while (1) {
		getppid();
		(*iterations)++;
	}
	return 0;
}

void testcase(unsigned long long *iterations, unsigned long nr)
{
	static __thread struct args args;
	cpu_set_t mask;
	int gate[2], cpu = sched_getcpu();

	assert(pipe(gate) == 0);
	args = (struct args){ work, iterations, 77, gate[0] };
	CPU_ZERO(&mask);
	CPU_SET(cpu, &mask);
	new_task_affinity(&args, sizeof(mask), &mask);
	assert(write(gate[1], "x", 1) == 1);
	while (1)
		pause();
}
