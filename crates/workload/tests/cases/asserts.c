/* Works for a while, then an assertion fails in task 1. */
#include <assert.h>

char *testcase_description = "fails an assertion";

void testcase(unsigned long long *iterations, unsigned long nr)
{
	while (1) {
		assert(nr != 1 || *iterations < 1000);
		(*iterations)++;
	}
}
