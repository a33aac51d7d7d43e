void testcase(unsigned long long *iterations, unsigned long nr)
{
	*(volatile int *)0 = 1;
}
