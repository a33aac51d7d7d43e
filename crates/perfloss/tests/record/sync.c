#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
/* fsync FILE N: writes a block and syncs it, N times; prints the seconds that fsync took */
int main(int c, char **v)
{
	char block[4096];
	struct timespec a, b;
	double sum = 0;
	int i, fd = open(v[1], O_CREAT | O_RDWR, 0600);
	if (c < 3 || fd < 0) return 2;
	memset(block, 7, sizeof block);
	for (i = 0; i < atoi(v[2]); i++) {
		if (pwrite(fd, block, sizeof block, (off_t)i % 64 * 4096) < 0) return 3;
		clock_gettime(CLOCK_MONOTONIC, &a);
		if (fsync(fd)) return 4;
		clock_gettime(CLOCK_MONOTONIC, &b);
		sum += (b.tv_sec - a.tv_sec) + (b.tv_nsec - a.tv_nsec) / 1e9;
	}
	printf("%.6f\n", sum);
	return 0;
}
