/* A task and a helper from new_task() that pass a byte to and fro. */
#include <assert.h>
#include <unistd.h>

char *testcase_description = "a byte to a helper and back";

extern void new_task(void *(func)(void *), void *arg);

static void *helper(void *arg)
{
	int *fd = arg;
	char c;

	while (read(fd[0], &c, 1) == 1)
		if (write(fd[3], &c, 1) != 1)
			break;
	return 0;
}

void testcase(unsigned long long *iterations, unsigned long nr)
{
	int fd[4];
	char c = 0;

	assert(pipe(fd) == 0 && pipe(fd + 2) == 0);
	new_task(helper, fd);
	while (1) {
		assert(write(fd[1], &c, 1) == 1);
		assert(read(fd[2], &c, 1) == 1);
		(*iterations)++;
	}
}
