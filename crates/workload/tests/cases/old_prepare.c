/* An older will-it-scale had no argument, and the loop counted in an unsigned long. */
#include <assert.h>
#include <unistd.h>

char *testcase_description = "older interface";

static int prepared;

void testcase_prepare(void)
{
	prepared = 1;
}

void testcase(unsigned long *iterations, unsigned long nr)
{
	assert(prepared);
	while (1) {
		getppid();
		(*iterations) += 2;
	}
}
