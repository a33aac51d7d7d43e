/* Every task needs what testcase_prepare() made; testcase_cleanup() takes it away. */
#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

char *testcase_description = "pread of a file that testcase_prepare() made";

static char *name;
static unsigned long tasks;

void testcase_prepare(unsigned long nr_tasks)
{
	int fd;

	name = getenv("PERFLOSS_TEST_FILE");
	assert(name);
	fd = open(name, O_CREAT | O_RDWR, 0600);
	assert(fd >= 0);
	assert(write(fd, "x", 1) == 1);
	close(fd);
	tasks = nr_tasks;
}

void testcase(unsigned long long *iterations, unsigned long nr)
{
	int fd = open(name, O_RDONLY);
	char c;

	assert(nr < tasks);
	while (1) {
		assert(fd >= 0 && pread(fd, &c, 1, 0) == 1 && c == 'x');
		(*iterations)++;
	}
}

void testcase_cleanup(void)
{
	unlink(name);
}
