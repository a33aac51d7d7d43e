void testcase(unsigned long long *iterations, unsigned long nr)
{
	*iterations = 5;
}
