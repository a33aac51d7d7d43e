void testcase(unsigned long long *iterations, unsigned long nr)
{
	this does not compile;
}
