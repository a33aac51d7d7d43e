/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * What every task does, from tracepoints alone.
 *
 * Small records of all switches, wake-ups and lock waits carry the chain; stacks, which cost a hundred times as much, are taken of
 * waits in proportion to their length: a wait shorter than 2^shift ns is taken with the probability length / 2^shift.
 */
#include "uapi.h"
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "ring.h"
#include "lock.h"
#include "io.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct task_state {
	/* Of a worker: the completion that its work item is due to. First, or the compiler computes its address before it is tested. */
	struct io_mark io;
	u64 out;	/* left its CPU then; 0: on a CPU, or not known */
	u64 in;		/* got its CPU then */
	u64 lock;	/* waits for that lock, since, how */
	u64 lock_since;
	u64 spin;	/* spins for that lock, perhaps within the other wait */
	u64 spin_since;
	u64 expected;	/* how long it may wait, by what it did before */
	u32 lock_flags;
	u32 state;
	u32 chance;	/* with which stacks were taken at switch-out; 0: not taken */
	u32 spin_flags;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_state);
} tasks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, u8);
} wanted SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct big);
} scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct task_seed);
} seed_scratch SEC(".maps");

static __always_inline struct task_state *state_of(struct task_struct *task)
{
	return bpf_task_storage_get(&tasks, task, 0, 0);
}

static __always_inline u32 random32(struct cpu_area *area)
{
	u64 x = area->state.rand;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	area->state.rand = x;
	return (u32)(x >> 24);
}

/* The chance with which the stack of a wait of that length is to be taken. */
static __always_inline u32 chance_for(struct cpu_area *area, u64 ns)
{
	u32 shift = area->state.shift;

	if (shift < 10 || shift > 31)
		return ~0U;
	if (ns >> shift)
		return ~0U;
	return (u32)(ns << (32 - shift));
}

/* Keeps the number of stacks bounded: the threshold doubles while there are too many. */
static __always_inline void note_stack(struct cpu_area *area, u64 now)
{
	u64 period = now >> 23;

	if (period != area->state.period) {
		if (area->state.taken < options.stack_limit / 4 && area->state.shift > options.base_shift)
			area->state.shift--;
		area->state.period = period;
		area->state.taken = 0;
	}
	if (++area->state.taken > options.stack_limit && area->state.shift < 27) {
		area->state.shift++;
		area->state.taken = 0;
	}
}

/* How many frames a stack helper has written, or its error. */
static __always_inline s16 frames_of(long bytes)
{
	if (bytes < 0)
		return bytes < -4095 ? -4095 : bytes;
	return (u64)bytes / 8;
}

/* The current task's stack into a large record. */
static __always_inline void emit_stack(void *ctx, struct cpu_area *area, u8 type, u8 flags, u64 ts, u32 tid, u32 tgid, u64 a, u64 b,
				       u32 chance, u32 state, u64 ns, bool user)
{
	u64 number;
	struct big *big = reserve_big(area, &number, ns);
	u32 size = options.max_frames * 8;
	long n;

	if (!big)
		return;
	big->ts = ts;
	big->a = a;
	big->b = b;
	big->tid = tid;
	big->tgid = tgid;
	big->type = type;
	big->flags = flags;
	big->chance = chance;
	big->state = state;
	if (size > sizeof(big->ip))
		size = sizeof(big->ip);
	n = bpf_get_stack(ctx, big->ip, size, user ? BPF_F_USER_STACK : 0);
	big->frames = frames_of(n);
	if (n < 0 && !user)
		__sync_fetch_and_add(&area->ring.stack_errors, 1);
	publish(&big->seq, number);
}

static __always_inline s32 syscall_of(struct task_struct *task, u64 *arg0, u64 *arg1)
{
#if defined(__TARGET_ARCH_x86)
	struct pt_regs *regs;
	s64 nr;

	if (task->flags & PF_KTHREAD)
		return -1;
	regs = (void *)bpf_task_pt_regs(task);
	nr = (s64)regs->orig_ax;
	*arg0 = regs->di;
	*arg1 = regs->si;
	return nr < 0 || nr > 0x7fff ? -1 : nr;
#else
	return -1;
#endif
}

/* The number of a task in the reader's namespace of process ids; 0 if it has none there. */
static __always_inline u32 own_tid(struct task_struct *task)
{
	struct pid_namespace *ns = 0;
	struct pid *pid = 0;
	u32 level = 0, inum = 0;
	u64 upid;
	s32 nr = 0;
	int i;

	if (!options.pid_ns)
		return task->pid;
	if (LOAD(pid, &task->thread_pid) || !pid || LOAD(level, &pid->level))
		return 0;
	upid = (u64)pid + bpf_core_field_offset(struct pid, numbers);
	/* namespaces nest; the kernel allows 32, and 8 are more than anybody has */
#pragma unroll
	for (i = 0; i < 8; i++) {
		if (i > level)
			return 0;
		if (LOAD(ns, AT(upid, struct upid, ns)) || LOAD(inum, &ns->ns.inum))
			return 0;
		if (inum == options.pid_ns)
			return LOAD(nr, AT(upid, struct upid, nr)) ? 0 : nr;
		upid += bpf_core_type_size(struct upid);
	}
	return 0;
}

static __always_inline bool wanted_task(struct task_struct *task)
{
	u32 key;

	switch (options.filter) {
	case FILTER_PROCESSES:
		key = task->tgid;
		return bpf_map_lookup_elem(&wanted, &key);
	case FILTER_THREADS:
		key = task->pid;
		return bpf_map_lookup_elem(&wanted, &key);
	case FILTER_USER:
		return !(task->flags & PF_KTHREAD);
	case FILTER_KERNEL:
		return task->flags & PF_KTHREAD;
	}
	return true;
}

/*
 * A task that leaves its CPU runnable: whether the quota of its control group is used up. Since Linux 6.18 a task knows that itself;
 * before, its run queue counts the groups above it that are.
 */
static __always_inline void held_back(struct cpu_area *area, struct task_struct *task)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct task_group *group;
	u64 number = 0;
	int i;

	if (!bpf_core_field_exists(task->sched_task_group->cfs_bandwidth))
		return;
	if (bpf_core_field_exists(task->throttled)) {
		if (!task->throttled)
			return;
	} else if (!task->se.cfs_rq->throttle_count) {
		return;
	}
	group = task->sched_task_group;
	for (i = 0; i < 16 && group; i++) {
		struct cfs_rq *queue = 0;
		u8 used_up = 0;

		if (group->cfs_bandwidth.quota != ~0ULL) {
			if (!number)
				number = group->css.cgroup->kn->id;
			bpf_probe_read_kernel(&queue, sizeof(queue), group->cfs_rq + cpu);
			bpf_core_read(&used_up, sizeof(used_up), &queue->throttled);
			if (used_up) {
				number = group->css.cgroup->kn->id;
				break;
			}
		}
		group = group->parent;
	}
	emit(area, EV_HELD_BACK, 0, 0, task->pid, 0, number);
}

/* The task that leaves the CPU: what it waits for, and perhaps its stacks, of which the wait's length decides later. */
/* Returns who owns the lock that it waits for, with the quality in the upper half. */
static __always_inline u64 leaves(u64 *ctx, struct cpu_area *area, struct task_struct *prev, u32 bits, bool preempt, u64 now, s32 *nr)
{
	struct task_state *st;
	u64 arg0 = 0, arg1 = 0;
	u64 owner = 0;
	u16 quality;

	*nr = -1;
	st = state_of(prev);
	if (!st) {
		area->state.no_state++;
		return 0;
	}
	if (!preempt && bits) {
		if (options.want_events) {
			*nr = syscall_of(prev, &arg0, &arg1);
			if (st->lock)
				owner = lock_owner(st->lock, st->lock_flags, &quality) | (u64)quality << 48;
			else if (*nr == options.futex_nr)
				emit(area, EV_FUTEX, 0, (u16)arg1, prev->pid, prev->tgid, arg0);
		}
	}
	st->out = now;
	st->state = bits | (preempt ? STATE_PREEMPTED : 0);
	st->chance = 0;
	if ((options.out_kernel_stacks || options.out_user_stacks) && wanted_task(prev)) {
		u64 ran = st->in ? now - st->in : 0;
		u64 expected = st->expected > ran ? st->expected : ran;
		u32 chance = chance_for(area, expected);

		if (options.lock_waits_apart && st->lock)
			return owner;
		/* never impossible, or a task that changes its ways would not be seen */
		if (chance < 1U << 26)
			chance = 1U << 26;
		if (options.state_mask >= 0 && (options.state_mask == 0 ? bits && !preempt : !((bits & options.state_mask))))
			return owner;
		if (chance == ~0U || random32(area) < chance) {
			st->chance = chance;
			note_stack(area, now);
			if (options.out_kernel_stacks)
				emit_stack(ctx, area, BIG_OUT_KERNEL, 0, now, prev->pid, prev->tgid, 0, 0, chance, st->state, 0, false);
			if (options.out_user_stacks && !(prev->flags & PF_KTHREAD))
				emit_stack(ctx, area, BIG_OUT_USER, 0, now, prev->pid, prev->tgid, 0, 0, chance, st->state, 0, true);
		}
	}
	return owner;
}

/* The task that gets the CPU: the length of its wait is known now, and it still sleeps as far as its stack goes. */
static __always_inline void arrives(struct cpu_area *area, struct task_struct *next, u64 now)
{
	struct task_state *st = state_of(next);
	u32 q, chance, size;
	u64 ns, number;
	struct big *big;
	u8 flags = 0;
	long n;

	if (!st)
		return;
	st->in = now;
	if (!st->out)
		return;
	ns = now - st->out;
	st->out = 0;
	if ((s64)ns < 0)
		return;
	st->expected -= st->expected >> 3;
	if (ns > st->expected)
		st->expected = ns;
	if (!options.wait_stacks)
		return;
	if (options.lock_waits_apart && st->lock)
		return;
	if (ns < options.min_ns || ns > options.max_ns)
		return;
	if (options.state_mask == 0 && (st->state & ~STATE_PREEMPTED) && !(st->state & STATE_PREEMPTED))
		return;
	if (options.state_mask > 0 && !(st->state & (u32)options.state_mask))
		return;
	if (!wanted_task(next))
		return;
	q = chance_for(area, ns);
	if (q == ~0U) {
		chance = q;
	} else if (!(options.out_kernel_stacks || options.out_user_stacks)) {
		chance = q;
		if (random32(area) >= q)
			return;
	} else if (!st->chance) {
		return;
	} else if (st->chance > q) {
		/* thin what was taken at switch-out down to what the length deserves */
		chance = q;
		if (st->chance != ~0U ? random32(area) >= (u32)(((u64)q << 32) / st->chance) : random32(area) >= q)
			return;
	} else {
		chance = st->chance;
	}
	if (st->chance)
		flags |= STACK_HAS_OUT;
	if (next->flags & PF_KTHREAD)
		flags |= STACK_KTHREAD;
	big = reserve_big(area, &number, ns);
	if (!big)
		return;
	big->ts = now;
	big->a = ns;
	big->b = st->lock;
	big->tid = next->pid;
	big->tgid = next->tgid;
	big->type = BIG_WAIT_KERNEL;
	big->flags = flags;
	big->chance = chance;
	big->state = st->state;
	bpf_probe_read_kernel(big->comm, COMM_LEN, next->comm);
	if (!options.kernel_stacks || (options.out_kernel_stacks && st->chance)) {
		big->frames = 0;
	} else {
		note_stack(area, now);
		size = options.max_frames * 8;
		if (size > sizeof(big->ip))
			size = sizeof(big->ip);
		n = bpf_get_task_stack(next, big->ip, size, 0);
		big->frames = frames_of(n);
		if (n < 0)
			__sync_fetch_and_add(&area->ring.stack_errors, 1);
	}
	publish(&big->seq, number);
}

SEC("tp_btf/sched_switch")
int on_switch(u64 *ctx)
{
	bool preempt = ctx[0];
	struct task_struct *prev = (void *)ctx[1];
	struct task_struct *next = (void *)ctx[2];
	struct cpu_area *area = this_area();
	u64 owner = 0, now, number = 0;
	struct event *e = 0;
	s32 nr = -1;
	u32 bits;

	if (!area)
		return 0;
	/* nothing switches inside an interrupt: whatever was missed of its end is over now */
	area->state.irq_depth = 0;
	/* some kernels run no program while a certain task runs: what it did is seen by nobody */
	if (area->state.known && area->state.current != prev->pid)
		area->state.unseen++;
	area->state.current = next->pid;
	area->state.known = 1;
	area->state.contexts = 0;
	bits = options.switch_has_state ? (u32)ctx[3] : prev->__state;
	if (options.want_events) {
		e = reserve(area, &number);
		now = e ? e->ts : bpf_ktime_get_ns();
	} else {
		now = bpf_ktime_get_ns();
	}
	if (prev->pid && options.want_events && (preempt || !bits))
		held_back(area, prev);
	if (prev->pid)
		owner = leaves(ctx, area, prev, bits, preempt, now, &nr);
	if (e) {
		e->tid = prev->pid;
		e->other = next->pid;
		e->type = EV_SWITCH;
		e->flags = (preempt ? SWITCH_PREEMPT : 0) | (BPF_CORE_READ_BITFIELD(prev, in_iowait) ? SWITCH_IOWAIT : 0);
		e->x = bits;
		e->a = owner | ((u64)(u16)nr << 32);
		publish(&e->seq, number);
	}
	if (next->pid)
		arrives(area, next, now);
	return 0;
}

/* The completion that the current task's work item is due to, if it is a worker. */
static __always_inline struct io_mark *io_of_work(struct cpu_area *area, struct task_struct *me)
{
	struct task_state *st;

	if (area->state.irq_depth || !(me->flags & PF_WQ_WORKER))
		return 0;
	st = state_of(me);
	return st ? &st->io : 0;
}

/* Asynchronous I/O is waited for interruptibly; a kernel thread that waits so waits for work. */
static __always_inline bool may_wait_for_io(struct task_struct *task)
{
	u32 state = task->__state;

	if (state & TASK_NOLOAD)
		return false;
	return state & TASK_UNINTERRUPTIBLE || (state & TASK_INTERRUPTIBLE && !(task->flags & PF_KTHREAD));
}

SEC("tp_btf/sched_waking")
int on_waking(u64 *ctx)
{
	struct task_struct *wakee = (void *)ctx[0];
	struct cpu_area *area = this_area();
	struct task_struct *me;
	struct task_state *st;
	u64 now, ns, number;
	struct event *e;
	bool interrupt;

	if (!area || !options.want_events)
		return 0;
	me = bpf_get_current_task_btf();
	interrupt = area->state.irq_depth;
	if (options.io_known && may_wait_for_io(wakee)) {
		struct io_mark *mark = io_mark(area, io_of_work(area, me));

		if (mark)
			emit_io(area, mark, wakee->pid);
	}
	e = reserve(area, &number);
	if (!e)
		return 0;
	now = e->ts;
	e->a = 0;
	e->tid = wakee->pid;
	e->other = me->pid;
	e->type = EV_WAKING;
	e->flags = (interrupt ? WAKING_INTERRUPT : 0) | (options.irq_known ? WAKING_CONTEXT_KNOWN : 0);
	e->x = bpf_core_field_exists(wakee->thread_info.cpu) ? wakee->thread_info.cpu : 0xffff;
	publish(&e->seq, number);
	if (!options.waker_stacks || interrupt || !me->pid)
		return 0;
	st = state_of(wakee);
	if (!st || !st->out)
		return 0;
	ns = now - st->out;
	if ((s64)ns < 0 || random32(area) > chance_for(area, ns))
		return 0;
	note_stack(area, now);
	emit_stack(ctx, area, BIG_WAKER_KERNEL, 0, now, me->pid, me->tgid, wakee->pid, ns, 0, 0, 0, false);
	return 0;
}

SEC("tp_btf/contention_begin")
int on_contention_begin(u64 *ctx)
{
	u64 lock = ctx[0];
	u32 flags = ctx[1];
	struct cpu_area *area = this_area();
	struct task_struct *me = bpf_get_current_task_btf();
	struct task_state *st;
	u16 quality;
	u64 number, now;
	struct event *e;
	u32 owner;

	if (!area)
		return 0;
	if (options.describe_locks)
		describe(lock, flags);
	if (options.want_events) {
		owner = lock_owner(lock, flags, &quality);
		e = reserve(area, &number);
		now = e ? e->ts : bpf_ktime_get_ns();
		if (e) {
			e->a = lock;
			e->tid = me->pid;
			e->other = owner;
			e->type = EV_BEGIN;
			e->flags = flags;
			e->x = quality;
			publish(&e->seq, number);
		}
	} else {
		now = bpf_ktime_get_ns();
	}
	st = me->pid ? state_of(me) : 0;
	if (!st)
		return 0;
	if ((flags & LCB_F_SPIN) && !(flags & LCB_F_MUTEX)) {
		st->spin = lock;
		st->spin_since = now;
		st->spin_flags = flags;
	} else {
		if (st->lock != lock) {
			st->lock = lock;
			st->lock_since = now;
		}
		st->lock_flags = flags;
	}
	return 0;
}

SEC("tp_btf/contention_end")
int on_contention_end(u64 *ctx)
{
	u64 lock = ctx[0];
	int ret = (int)ctx[1];
	struct cpu_area *area = this_area();
	struct task_struct *me = bpf_get_current_task_btf();
	struct task_state *st;
	u64 now, since = 0, number, ns;
	struct event *e;
	u32 chance;
	bool user;
	u8 flags;

	if (!area)
		return 0;
	st = me->pid ? state_of(me) : 0;
	flags = FLAGS_UNKNOWN;
	if (st) {
		if (lock == st->spin && lock != st->lock) {
			flags = st->spin_flags;
			since = st->spin_since;
			st->spin = 0;
		} else if (lock == st->spin && st->spin_since > st->lock_since) {
			/* a semaphore begins with its spinlock: the inner wait ends first */
			flags = st->spin_flags;
			since = st->spin_since;
			st->spin = 0;
		} else if (lock == st->lock) {
			flags = st->lock_flags;
			since = st->lock_since;
			st->lock = 0;
		}
	}
	if (options.want_events) {
		e = reserve(area, &number);
		now = e ? e->ts : bpf_ktime_get_ns();
		if (e) {
			e->a = lock;
			e->tid = me->pid;
			e->other = 0;
			e->type = EV_END;
			e->flags = flags;
			e->x = (u16)ret;
			publish(&e->seq, number);
		}
	} else {
		now = bpf_ktime_get_ns();
	}
	if (flags == FLAGS_UNKNOWN)
		return 0;
	if (!options.wait_stacks || !options.lock_waits_apart)
		return 0;
	ns = now - since;
	if ((s64)ns < 0)
		return 0;
	chance = chance_for(area, ns);
	if (chance != ~0U && random32(area) >= chance)
		return 0;
	note_stack(area, now);
	user = options.user_stacks && !(me->flags & PF_KTHREAD) && !area->state.irq_depth;
	emit_stack(ctx, area, BIG_WAIT_KERNEL, user ? STACK_USER_FOLLOWS : 0, now, me->pid, me->tgid, ns, lock, chance, flags, ns, false);
	if (user)
		emit_stack(ctx, area, BIG_WAIT_USER, 0, now, me->pid, me->tgid, ns, lock, chance, flags, 0, true);
	return 0;
}

static __always_inline void emit_comm(struct cpu_area *area, struct task_struct *task, const char *comm, u8 flags)
{
	u64 number;
	struct big *big = reserve_big(area, &number, 0);

	if (!big)
		return;
	big->ts = bpf_ktime_get_ns();
	big->a = 0;
	big->b = task->start_time;
	big->tid = task->pid;
	big->tgid = task->tgid;
	big->type = BIG_COMM;
	big->flags = flags;
	big->frames = 0;
	bpf_probe_read_kernel(big->comm, COMM_LEN, comm);
	if (flags & COMM_EXEC) {
		/* the arguments were just written: they are there, and reading them here is cheaper than /proc, and never too late */
		struct mm_struct *mm = task->mm;
		u64 length = mm ? mm->arg_end - mm->arg_start : 0;

		if (length > ARGS_LEN)
			length = ARGS_LEN;
		if (length && !bpf_probe_read_user(big->ip, length, (void *)mm->arg_start))
			big->frames = length;
	}
	publish(&big->seq, number);
}

SEC("tp_btf/sched_process_fork")
int on_fork(u64 *ctx)
{
	struct task_struct *parent = (void *)ctx[0];
	struct task_struct *child = (void *)ctx[1];
	struct cpu_area *area = this_area();
	struct task_state *st;

	/* here, not at the first switch: memory must not be asked for under the run queue's lock */
	st = bpf_task_storage_get(&tasks, child, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (st)
		st->out = 0;
	if (area && options.want_events)
		emit(area, EV_FORK, child->flags & PF_KTHREAD ? 1 : 0, 0, child->pid, parent->pid,
		     child->tgid | (u64)own_tid(child) << 32);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int on_exec(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	struct cpu_area *area = this_area();

	if (area)
		emit_comm(area, task, task->comm, COMM_EXEC);
	return 0;
}

SEC("tp_btf/task_rename")
int on_rename(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	const char *comm = (void *)ctx[1];
	struct cpu_area *area = this_area();

	if (area)
		emit_comm(area, task, comm, 0);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int on_exit(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	struct cpu_area *area = this_area();

	if (area && options.want_events)
		emit(area, EV_EXIT, 0, 0, task->pid, task->tgid, (u32)task->exit_code);
	return 0;
}

static __always_inline int irq_enter(u8 kind, u16 number)
{
	struct cpu_area *area = this_area();

	if (!area)
		return 0;
	area->state.irq_depth++;
	area->state.contexts = area->state.contexts << 8 | context_of(kind, number);
	if (area->state.io_depth >= area->state.irq_depth)
		area->state.io_depth = 0;
	if (options.want_events)
		emit(area, EV_IRQ_ENTER, kind, number, 0, 0, 0);
	return 0;
}

static __always_inline int irq_exit(u8 kind, u16 number)
{
	struct cpu_area *area = this_area();

	if (!area)
		return 0;
	if (area->state.irq_depth)
		area->state.irq_depth--;
	area->state.contexts >>= 8;
	if (options.want_events)
		emit(area, EV_IRQ_EXIT, kind, number, 0, 0, 0);
	return 0;
}

#define INTERRUPT(name, enter, exit, kind)                                                                                             \
	SEC("tp_btf/" #enter) int on_##enter(u64 *ctx)                                                                                 \
	{                                                                                                                              \
		return irq_enter(kind, (u16)ctx[0]);                                                                                   \
	}                                                                                                                              \
	SEC("tp_btf/" #exit) int on_##exit(u64 *ctx)                                                                                   \
	{                                                                                                                              \
		return irq_exit(kind, (u16)ctx[0]);                                                                                    \
	}

INTERRUPT(irq, irq_handler_entry, irq_handler_exit, IRQ_HARD)
INTERRUPT(softirq, softirq_entry, softirq_exit, IRQ_SOFT)
INTERRUPT(timer, local_timer_entry, local_timer_exit, IRQ_VECTOR)
INTERRUPT(call, call_function_entry, call_function_exit, IRQ_VECTOR)
INTERRUPT(call1, call_function_single_entry, call_function_single_exit, IRQ_VECTOR)
INTERRUPT(work, irq_work_entry, irq_work_exit, IRQ_VECTOR)

SEC("tp_btf/workqueue_execute_start")
int on_work(u64 *ctx)
{
	struct work_struct *work = (void *)ctx[0];
	struct cpu_area *area = this_area();
	struct task_struct *me = bpf_get_current_task_btf();
	struct task_state *st;

	if (!area || !options.want_events)
		return 0;
	st = options.io_known ? state_of(me) : 0;
	if (st)
		begin_work(&st->io, (u64)work);
	emit(area, EV_WORK, 0, 0, me->pid, 0, (u64)work->func);
	return 0;
}

SEC("tp_btf/workqueue_execute_end")
int on_work_end(u64 *ctx)
{
	struct cpu_area *area = this_area();
	struct task_struct *me = bpf_get_current_task_btf();
	struct task_state *st;

	if (!area || !options.want_events)
		return 0;
	st = options.io_known ? state_of(me) : 0;
	if (st)
		st->io.done = 0;
	emit(area, EV_WORK_END, 0, 0, me->pid, 0, 0);
	return 0;
}

SEC("tp_btf/workqueue_queue_work")
int on_queue_work(u64 *ctx)
{
	struct cpu_area *area = this_area();
	struct task_struct *me = bpf_get_current_task_btf();

	if (area)
		queue_work(area, io_of_work(area, me), ctx[2]);
	return 0;
}

SEC("tp_btf/block_rq_complete")
int on_rq_complete(u64 *ctx)
{
	struct request *rq = (void *)ctx[0];
	struct cpu_area *area = this_area();
	struct bio *bio = rq->bio;
	u32 dev;

	if (!area)
		return 0;
	/* a flush of the device's cache that the block layer makes itself has no data */
	dev = bio ? bio->bi_bdev->bd_dev : rq->q->disk->part0->bd_dev;
	note_done(area, dev, io_op(rq->cmd_flags, !(u32)ctx[2]), rq->start_time_ns);
	return 0;
}

SEC("perf_event")
int on_sample(struct bpf_perf_event_data *ctx)
{
	struct cpu_area *area = this_area();
	struct task_struct *me = bpf_get_current_task_btf();
	bool kernel, user;
	u8 flags;
	u64 now;

	if (!area || !me->pid)
		return 0;
	now = bpf_ktime_get_ns();
#if defined(__TARGET_ARCH_x86)
	kernel = !(ctx->regs[REG_CS] & 3);
#else
	kernel = true;
#endif
	user = options.user_stacks && !(me->flags & PF_KTHREAD);
	/* the sampling timer is an interrupt of its own */
	flags = (kernel ? SAMPLE_IN_KERNEL : 0) | (options.irq_known && area->state.irq_depth > 1 ? SAMPLE_IN_INTERRUPT : 0) |
		(user ? STACK_USER_FOLLOWS : 0);
	if (kernel)
		emit_stack(ctx, area, BIG_SAMPLE_KERNEL, flags, now, me->pid, me->tgid, 0, 0, 0, 0, 0, false);
	if (user)
		emit_stack(ctx, area, BIG_SAMPLE_USER, flags & ~STACK_USER_FOLLOWS, now, me->pid, me->tgid, 0, 0, 0, 0, 0, true);
	else if (!kernel)
		emit_stack(ctx, area, BIG_SAMPLE_KERNEL, flags, now, me->pid, me->tgid, 0, 0, 0, 0, 0, false);
	return 0;
}

/*
 * XFS buffer locks: down and up of b_sema. XFS may be a module: raw arguments, and offsets found by user space. Only of locks
 * that are contended now, or the uncontended ones would drown everything.
 */
static __always_inline int xfs_buf(u64 *ctx, u8 type)
{
	struct cpu_area *area = this_area();
	struct fs_layout *layout;
	struct described *seen;
	u32 zero = 0;
	u64 lock;

	layout = bpf_map_lookup_elem(&layouts, &zero);
	if (!area || !options.want_events || !layout || !layout->xfs_valid)
		return 0;
	lock = ctx[0] + layout->b_sema;
	seen = bpf_map_lookup_elem(&described, &lock);
	if (!seen || (s64)(bpf_ktime_get_ns() - seen->contended) > (s64)CONTENDED_NS)
		return 0;
	emit(area, type, 0, 0, (u32)bpf_get_current_pid_tgid(), 0, lock);
	return 0;
}

SEC("raw_tp/xfs_buf_lock_done")
int on_xfs_buf_lock_done(u64 *ctx)
{
	return xfs_buf(ctx, EV_ACQUIRED);
}

SEC("raw_tp/xfs_buf_unlock")
int on_xfs_buf_unlock(u64 *ctx)
{
	return xfs_buf(ctx, EV_RELEASED);
}

/* A lock for which a task waited already when the capture began: its begin was never seen, its end and its stack will be. */
static __always_inline void seed_lock(struct task_state *st, struct task_seed *seed)
{
	u64 lock = seed->blocker & ~3ULL;
	u32 flags;

	/* the low bits of task->blocker are the kind of lock (include/linux/hung_task.h) */
	switch (seed->blocker & 3) {
	case 0:
		flags = LCB_F_MUTEX;
		break;
	case 1:
		flags = 0;
		break;
	case 2:
		flags = LCB_F_READ;
		break;
	default:
		flags = LCB_F_WRITE;
	}
	if (options.describe_locks)
		describe(lock, flags);
	if (st && !st->lock) {
		st->lock = lock;
		st->lock_since = seed->ts;
		st->lock_flags = flags;
	}
}

/* The state of every task at the start; from here on each has a state of its own. */
SEC("iter/task")
int seed_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct task_seed *seed;
	struct task_state *st;
	u64 arg0 = 0, arg1 = 0;
	u32 zero = 0;
	bool queued;

	seed = bpf_map_lookup_elem(&seed_scratch, &zero);
	if (!task || !seed)
		return 0;
	st = bpf_task_storage_get(&tasks, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	seed->ts = bpf_ktime_get_ns();
	seed->start = task->start_time;
	seed->tid = task->pid;
	seed->tgid = task->tgid;
	seed->ptid = task->real_parent->pid;
	seed->state = task->__state;
	seed->exit_state = task->exit_state;
	seed->cpu = bpf_core_field_exists(task->thread_info.cpu) ? task->thread_info.cpu : 0;
	/* since Linux 6.12 a task that sleeps may stay in the run queue for a while */
	queued = task->on_rq && !(bpf_core_field_exists(task->se.sched_delayed) && task->se.sched_delayed);
	seed->flags = (task->flags & PF_KTHREAD ? 1 : 0) | (task->on_cpu ? 2 : 0) |
		     (BPF_CORE_READ_BITFIELD(task, in_iowait) ? 4 : 0) | (queued ? 8 : 0);
	seed->own_tid = own_tid(task);
	seed->blocker = bpf_core_field_exists(task->blocker) ? task->blocker : 0;
	seed->futex = 0;
	seed->futex_op = 0;
	seed->syscall = -1;
	if (!(seed->flags & 8)) {
		seed->syscall = syscall_of(task, &arg0, &arg1);
		if (seed->syscall == options.futex_nr) {
			seed->futex = arg0;
			seed->futex_op = arg1;
		}
	}
	bpf_probe_read_kernel(seed->comm, COMM_LEN, task->comm);
	/* neither running nor runnable: it is waiting for that lock now */
	if (seed->blocker && !(seed->flags & (2 | 8)))
		seed_lock(st, seed);
	if (st && !st->out && !st->in && !(seed->flags & 2)) {
		st->out = seed->ts;
		st->state = seed->flags & 8 ? STATE_PREEMPTED : seed->state;
	}
	bpf_seq_write(ctx->meta->seq, seed, sizeof(*seed));
	return 0;
}

/* The waits that are not over at the end. */
SEC("iter/task")
int last_waits(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct task_state *st;
	struct big *big;
	u32 zero = 0;
	u64 out, now;
	long n;

	if (!task || !wanted_task(task))
		return 0;
	st = bpf_task_storage_get(&tasks, task, 0, 0);
	big = bpf_map_lookup_elem(&scratch, &zero);
	if (!st || !big)
		return 0;
	out = st->out;
	now = bpf_ktime_get_ns();
	if (!out || (s64)(now - out) < 0)
		return 0;
	big->ts = now;
	big->a = now - out;
	big->b = st->lock;
	big->spare = st->in;
	big->tid = task->pid;
	big->tgid = task->tgid;
	big->type = BIG_SLEEPER;
	big->flags = (st->chance ? STACK_HAS_OUT : 0) | (task->flags & PF_KTHREAD ? STACK_KTHREAD : 0);
	big->state = st->state;
	big->chance = ~0U;
	bpf_probe_read_kernel(big->comm, COMM_LEN, task->comm);
	n = bpf_get_task_stack(task, big->ip, sizeof(big->ip), 0);
	big->frames = frames_of(n);
	bpf_seq_write(ctx->meta->seq, big, sizeof(*big));
	return 0;
}

/* Never attached: whether it loads tells whether this kernel allows programs at functions. */
SEC("fentry/bpf_fentry_test1")
int probe_fentry(u64 *ctx)
{
	return 0;
}
