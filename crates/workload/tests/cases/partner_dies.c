/* The helper fails, and the task would wait for ever. */
#include <stdlib.h>
#include <unistd.h>

extern void new_task(void *(func)(void *), void *arg);

static void *helper(void *arg)
{
	abort();
}

void testcase(unsigned long long *iterations, unsigned long nr)
{
	new_task(helper, 0);
	while (1)
		pause();
}
