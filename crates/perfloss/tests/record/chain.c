/*
 * Five times: c has the second lock and sleeps with it for 100 ms; b has the first one and waits for the second; a waits for the first.
 * Prints the addresses of the locks, and how long a and b waited, in microseconds.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <time.h>

static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER, second = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t barrier;
static double waited_a, waited_b;

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

static void *a(void *unused)
{
	for (int i = 0; i < 5; i++) {
		double begun;

		pthread_barrier_wait(&barrier);
		nap(20);
		begun = now();
		pthread_mutex_lock(&first);
		waited_a += now() - begun;
		pthread_mutex_unlock(&first);
		pthread_barrier_wait(&barrier);
	}
	return unused;
}

static void *b(void *unused)
{
	for (int i = 0; i < 5; i++) {
		double begun;

		pthread_barrier_wait(&barrier);
		pthread_mutex_lock(&first);
		nap(10);
		begun = now();
		pthread_mutex_lock(&second);
		waited_b += now() - begun;
		pthread_mutex_unlock(&second);
		pthread_mutex_unlock(&first);
		pthread_barrier_wait(&barrier);
	}
	return unused;
}

static void *c(void *unused)
{
	for (int i = 0; i < 5; i++) {
		pthread_mutex_lock(&second);
		pthread_barrier_wait(&barrier);
		nap(100);
		pthread_mutex_unlock(&second);
		pthread_barrier_wait(&barrier);
	}
	return unused;
}

int main(void)
{
	void *(*bodies[])(void *) = { a, b, c };
	const char *names[] = { "a", "b", "c" };
	pthread_t threads[3];

	pthread_barrier_init(&barrier, 0, 3);
	for (int i = 0; i < 3; i++) {
		pthread_create(&threads[i], 0, bodies[i], 0);
		pthread_setname_np(threads[i], names[i]);
	}
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], 0);
	printf("%p %p %.0f %.0f\n", (void *)&first, (void *)&second, waited_a, waited_b);
	return 0;
}
