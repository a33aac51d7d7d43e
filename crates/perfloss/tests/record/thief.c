/*
 * Five times: "holder" has the lock for 100 ms while "waiter" waits for it. Then the holder frees it, and before it wakes the waiter,
 * "thief", who watched the word, has taken it, without a system call. The thief keeps it for 150 ms.
 * Prints the lock's address, and in microseconds how long the waiter waited in all, and for how much of that the thief had the lock.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define TIMES 5

/* 0: free, else taken; the waiter is woken by every release */
static atomic_int lock, waits, taken_by_thief, freed;
static pthread_barrier_t barrier;
static double from[TIMES], until[TIMES], stolen_from[TIMES], stolen_until[TIMES];

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void nap(int ms)
{
	struct timespec t = { 0, ms * 1000000L };

	nanosleep(&t, 0);
}

static int take(void)
{
	int none = 0;

	return atomic_compare_exchange_strong(&lock, &none, 1);
}

static void wake(void)
{
	syscall(SYS_futex, &lock, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
}

static void *waiter(void *unused)
{
	for (int i = 0; i < TIMES; i++) {
		pthread_barrier_wait(&barrier);
		from[i] = now();
		atomic_store(&waits, 1);
		while (!take())
			syscall(SYS_futex, &lock, FUTEX_WAIT_PRIVATE, 1, 0, 0, 0);
		until[i] = now();
		atomic_store(&lock, 0);
		pthread_barrier_wait(&barrier);
	}
	return unused;
}

static void *holder(void *unused)
{
	for (int i = 0; i < TIMES; i++) {
		take();
		pthread_barrier_wait(&barrier);
		while (!atomic_load(&waits))
			nap(1);
		nap(100);
		atomic_store(&freed, 1);
		atomic_store(&lock, 0);
		while (!atomic_load(&taken_by_thief))
			;
		wake();
		pthread_barrier_wait(&barrier);
	}
	return unused;
}

static void *thief(void *unused)
{
	for (int i = 0; i < TIMES; i++) {
		pthread_barrier_wait(&barrier);
		nap(80);
		while (!atomic_load(&freed) || !take())
			;
		stolen_from[i] = now();
		atomic_store(&taken_by_thief, 1);
		nap(150);
		stolen_until[i] = now();
		atomic_store(&lock, 0);
		wake();
		atomic_store(&waits, 0);
		atomic_store(&freed, 0);
		atomic_store(&taken_by_thief, 0);
		pthread_barrier_wait(&barrier);
	}
	return unused;
}

int main(void)
{
	void *(*bodies[])(void *) = { waiter, holder, thief };
	const char *names[] = { "waiter", "holder", "thief" };
	double waited = 0, stolen = 0;
	pthread_t threads[3];

	pthread_barrier_init(&barrier, 0, 3);
	for (int i = 0; i < 3; i++) {
		pthread_create(&threads[i], 0, bodies[i], 0);
		pthread_setname_np(threads[i], names[i]);
	}
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], 0);
	for (int i = 0; i < TIMES; i++) {
		double both = stolen_from[i] > from[i] ? stolen_from[i] : from[i];

		waited += until[i] - from[i];
		if (stolen_until[i] < until[i] && both < stolen_until[i])
			stolen += stolen_until[i] - both;
	}
	printf("%p %.0f %.0f\n", (void *)&lock, waited, stolen);
	return 0;
}
