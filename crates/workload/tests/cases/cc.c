/*
 * The reported case: every task compiles its own hello-world file over and over, and does not look whether it worked.
 * As found in the wild it lacks the includes for sprintf() and system().
 */
char *testcase_description = "C compiler";

void testcase(unsigned long long *iterations, unsigned long nr)
{
	char command[1024];

	sprintf(command, "cc -c -o /tmp/out.%lu /src/src%lu.c", nr, nr);
	while (1) {
		system(command);
		(*iterations)++;
	}
}
