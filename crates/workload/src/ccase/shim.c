/*
 * The half of will-it-scale's interface that a harness supplies: new_task() and new_task_affinity().
 * Compiled along with every test case. Weak, so that a case may bring its own.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <unistd.h>

extern char *testcase_description __attribute__((weak));
extern void testcase(unsigned long long *iterations, unsigned long nr);

struct args {
	void *(*func)(unsigned long long *iterations, unsigned long nr);
	unsigned long long *arg1;
	unsigned long arg2;
	int poll_fd;
};

enum { MAX_HELPERS = 4096 };

static int threads;
static pid_t helpers[MAX_HELPERS];
static volatile sig_atomic_t nr_helpers;

__attribute__((visibility("default"))) void perfloss_setup(int as_threads)
{
	threads = as_threads;
}

static _Noreturn void give_up(const char *what, int error)
{
	fprintf(stderr, "%s: %s\n", what, strerror(error));
	abort();
}

/* A helper that dies leaves its partner waiting for ever: end the task with it, so that the failure is seen. */
static void helper_died(int signal, siginfo_t *info, void *context)
{
	static const char text[] = "a process started by new_task() died\n";
	int expected = (info->si_code == CLD_EXITED && info->si_status == 0) ||
		       (info->si_code == CLD_KILLED &&
			(info->si_status == SIGTERM || info->si_status == SIGKILL));

	(void)signal;
	(void)context;
	for (int i = 0; !expected && i < nr_helpers; i++) {
		if (helpers[i] == info->si_pid) {
			ssize_t ignored = write(2, text, sizeof(text) - 1);

			(void)ignored;
			abort();
		}
	}
}

static void start_process(void *(*func)(void *), void *arg)
{
	struct sigaction action = { .sa_sigaction = helper_died,
				    .sa_flags = SA_SIGINFO | SA_RESTART | SA_NOCLDSTOP };
	sigset_t child, before;
	pid_t parent = getpid();
	pid_t pid;

	if (nr_helpers == MAX_HELPERS)
		give_up("new_task: too many tasks", EAGAIN);
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, &before);
	sigaction(SIGCHLD, &action, NULL);
	pid = fork();
	if (pid < 0)
		give_up("new_task: fork", errno);
	if (pid == 0) {
		signal(SIGCHLD, SIG_DFL);
		sigprocmask(SIG_SETMASK, &before, NULL);
		nr_helpers = 0;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() == parent)
			func(arg);
		_exit(0);
	}
	helpers[nr_helpers++] = pid;
	sigprocmask(SIG_SETMASK, &before, NULL);
}

static void start_thread(void *(*func)(void *), void *arg, size_t size, const cpu_set_t *mask)
{
	pthread_attr_t attributes;
	pthread_t thread;
	int error;

	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	if (mask)
		pthread_attr_setaffinity_np(&attributes, size, mask);
	error = pthread_create(&thread, &attributes, func, arg);
	if (error)
		give_up("new_task: pthread_create", error);
	pthread_attr_destroy(&attributes);
}

__attribute__((weak, visibility("default"))) void new_task(void *(*func)(void *), void *arg)
{
	if (threads)
		start_thread(func, arg, 0, NULL);
	else
		start_process(func, arg);
}

static void *at_the_gate(void *arg)
{
	struct args *args = arg;
	struct pollfd gate = { .fd = args->poll_fd, .events = POLLIN };

	poll(&gate, 1, -1);
	return args->func(args->arg1, args->arg2);
}

__attribute__((weak, visibility("default"))) void new_task_affinity(struct args *args, size_t size,
								    cpu_set_t *mask)
{
	cpu_set_t before;

	if (threads) {
		start_thread(at_the_gate, args, size, mask);
		return;
	}
	if (sched_getaffinity(0, sizeof(before), &before) || sched_setaffinity(0, size, mask)) {
		perror("new_task_affinity: cannot run on these CPUs");
		abort();
	}
	start_process(at_the_gate, args);
	sched_setaffinity(0, sizeof(before), &before);
}

#ifdef PERFLOSS_DESCRIBE
int main(void)
{
	if (&testcase_description && testcase_description)
		fputs(testcase_description, stdout);
	return 0;
}
#else
/* A strong reference: a file without testcase() does not link. */
__attribute__((visibility("default"))) void (*const perfloss_testcase)(unsigned long long *,
								       unsigned long) = testcase;
#endif
