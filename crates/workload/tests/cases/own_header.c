/* Includes a header beside it, in both ways. */
#include "own_header.h"
#include <own_header.h>

char *testcase_description = DESCRIPTION;

void testcase(unsigned long long *iterations, unsigned long nr)
{
	while (1)
		(*iterations)++;
}
