/* The smallest case there is: no includes, nothing optional, no description. */
void testcase(unsigned long long *iterations, unsigned long nr)
{
	while (1) {
		sched_yield();
		(*iterations)++;
	}
}
