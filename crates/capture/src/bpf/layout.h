/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * What the BPF programs and the reader in user space agree on: records, rings and options.
 * The Rust twin is src/layout.rs; a test compares the two through the object's BTF.
 */
#ifndef PERFLOSS_LAYOUT_H
#define PERFLOSS_LAYOUT_H

typedef unsigned char u8;
typedef signed short s16;
typedef unsigned short u16;
typedef signed int s32;
typedef unsigned int u32;
typedef signed long long s64;
typedef unsigned long long u64;

#define COMM_LEN 16
#define MAX_FRAMES 127
/* Of a command line, at an exec. */
#define ARGS_LEN 256

/* The kinds of small records. */
enum event_type {
	EV_SWITCH = 1,	     /* tid: prev, other: next, x: state bits, a: owner of the lock prev waits for | system call << 32 | quality of the owner << 48 */
	EV_WAKING = 2,	     /* tid: wakee, other: waker, x: the wakee's CPU */
	EV_BEGIN = 3,	     /* tid: waiter, other: owner, x: quality of the owner, flags: how, a: lock */
	EV_END = 4,	     /* tid: waiter, a: lock, x: what the wait returned (signed) */
	EV_FORK = 5,	     /* tid: child, other: parent, a: the child's tgid | its thread id in the reader's namespace << 32 */
	EV_EXIT = 6,	     /* tid, other: tgid, a: status as wait4 gives it */
	EV_FUTEX = 7,	     /* tid of process `other` sleeps on the futex word a, x: the operation */
	EV_IRQ_ENTER = 8,    /* flags: kind, x: number */
	EV_IRQ_EXIT = 9,     /* flags: kind, x: number */
	EV_WORK = 10,	     /* tid: worker, a: function */
	EV_WORK_END = 11,    /* tid: worker */
	EV_ACQUIRED = 12,    /* tid, a: lock */
	EV_RELEASED = 13,    /* tid, a: lock */
	EV_LOST = 14,	     /* tid: how many, a: until when; ts: since when */
	EV_HELD_BACK = 15,   /* tid has left its CPU runnable, and the quota of its control group number a is used up */
	EV_IO_DONE = 16,     /* tid: who is woken next, other: device, flags: what the request did, a: age of its end << 32 | of its begin */
};

/* Flags of EV_SWITCH. */
#define SWITCH_PREEMPT 1
#define SWITCH_IOWAIT 2
/* Flags of EV_WAKING. */
#define WAKING_INTERRUPT 1
#define WAKING_CONTEXT_KNOWN 2
/* Quality of an owner. */
#define OWNER_NONE 0
#define OWNER_FIELD 1
#define OWNER_READER 2
#define OWNER_LAST_HOLDER 3
/* Flags of EV_END when the begin was not seen. */
#define FLAGS_UNKNOWN 255
/* Kinds of interrupts. */
#define IRQ_HARD 0
#define IRQ_SOFT 1
#define IRQ_VECTOR 2
/* What a request does. */
#define IO_READ 0
#define IO_WRITE 1
#define IO_FLUSH 2
#define IO_DISCARD 3
#define IO_OTHER 4
/* Ages of requests are in units of 2^6 ns, so that they fit into 32 bits for four minutes. The age of a begin that is not known is 0. */
#define AGE_SHIFT 6

/* A small record: what carries the chain. Half a cache line. */
struct event {
	u64 ts;
	u64 a;
	u32 tid;
	u32 other;
	u32 seq; /* low half of the record's number in its ring, + 1; written last */
	u8 type;
	u8 flags;
	u16 x;
};

/* The kinds of large records. */
enum big_type {
	BIG_SKIP = 0,	      /* reserved and not used */
	BIG_WAIT_KERNEL = 1,  /* kernel stack of a wait that ends now; a: length, b: lock or 0 */
	BIG_WAIT_USER = 2,    /* its user stack */
	BIG_OUT_USER = 3,     /* user stack of a task that leaves its CPU */
	BIG_OUT_KERNEL = 4,   /* kernel stack of a task that leaves its CPU */
	BIG_WAKER_KERNEL = 5, /* kernel stack of who wakes; a: wakee, b: length so far */
	BIG_SAMPLE_KERNEL = 6,
	BIG_SAMPLE_USER = 7,
	BIG_COMM = 8,	      /* a task has a new name; by exec: its arguments in place of the frames, of `frames` bytes */
	BIG_LOCK = 9,	      /* struct lock_info in place of the frames */
	BIG_SLEEPER = 10,     /* kernel stack of a task that is off the CPU at the end */
};

/* Flags of stack records. */
#define STACK_USER_FOLLOWS 1
#define STACK_HAS_OUT 2	    /* the stacks taken when the task left its CPU belong to this wait */
#define STACK_KTHREAD 32	    /* of a kernel thread */
/* Flags of samples. */
#define SAMPLE_IN_KERNEL 8
#define SAMPLE_IN_INTERRUPT 16
/* Flags of BIG_COMM. */
#define COMM_EXEC 1

#define STATE_PREEMPTED 0x80000000u

#define PATH_PARTS 6
#define PATH_PART_LEN 40

/* What object a lock belongs to, as far as the lock's surroundings say. */
enum object_kind {
	OBJ_NONE = 0,
	OBJ_MM = 1,	  /* mmap_lock: id is the process */
	OBJ_INODE = 2,	  /* i_rwsem: id is the inode number */
	OBJ_SUPER = 3,	  /* s_umount */
	OBJ_XFS_BUF = 4,  /* b_sema: id is the block, extra the allocation group */
	OBJ_EXTENT = 5,	  /* btrfs extent buffer: id is its start */
	OBJ_MAPPING = 6,  /* invalidate_lock or i_mmap_rwsem: id is the inode number */
	OBJ_PIPE = 7,	  /* pipe mutex: id is not known */
};

struct lock_info {
	u64 address;
	u64 id;
	u32 extra;
	u32 dev; /* as the kernel numbers devices: major << 20 | minor */
	u32 mode;
	u32 cache_size;
	u32 cache_order;
	u32 object;   /* enum object_kind */
	u8 flags;     /* of contention_begin */
	u8 parts;     /* path parts, innermost first */
	u8 path_full; /* the path reaches the root */
	u8 truncated;
	u32 extra_valid;
	char cache[32];
	char words[32]; /* b_ops->name */
	char fs[16];
	char sid[32];
	char path[PATH_PARTS][PATH_PART_LEN];
};

/* A large record: stacks, names, descriptions of locks. */
struct big {
	u64 ts;
	u64 a;
	u64 b;
	u32 tid;
	u32 tgid;
	u32 seq;
	u8 type;
	u8 flags;
	s16 frames; /* how many; negative: the error number */
	u32 chance; /* with which it was taken, in 2^-32; the largest number is 1 */
	u32 state;  /* task state with which the wait began; bit 31: preempted */
	u64 spare;
	char comm[COMM_LEN];
	union {
		u64 ip[MAX_FRAMES];
		struct lock_info lock;
	};
};

/* One CPU's rings: the producer's line and the consumer's line. */
struct ring_ctl {
	u64 head;
	u64 big_head;
	u64 lost;	    /* small records, so far */
	u64 lost_since;	    /* a gap is open since then; 0: none */
	u64 lost_in_gap;
	u64 big_lost;
	u64 big_lost_ns;    /* waiting time that the lost stacks stood for */
	u64 stack_errors;   /* stacks that could not be walked */
	u64 tail;
	u64 big_tail;
	u64 pad[6];
};

/* A request to a block device that is done. */
struct io_mark {
	u64 issued; /* 0: not known */
	u64 done;   /* 0: there is none */
	u32 dev;    /* as in lock_info */
	u32 op;
};

/* What a CPU remembers for itself. */
struct cpu_state {
	u32 irq_depth;
	u32 shift;	   /* stacks of waits shorter than 2^shift ns are sampled */
	u64 period;	   /* number of the period in which `taken` were taken */
	u64 taken;
	u64 no_state;	   /* switches of tasks without state */
	u64 truncated;
	u64 rand;
	u64 unseen;	   /* switches from another task than the one that was seen to get the CPU */
	u32 current;	   /* who was seen to get the CPU */
	u32 known;	   /* somebody was */
	u64 contexts;	   /* a byte for each interrupt handler that runs, the innermost one in the low byte */
	u32 io_depth;	   /* the handler, counted from outside, that has seen the completion of `io`; 0: none */
	u32 pad;
	struct io_mark io;
	u64 pad2[3];
};

/* Where members are in structures that a module may define; filled in when the type is known. */
struct fs_layout {
	u32 xfs_valid;
	u32 b_sema, b_ops, b_pag, b_target, b_block;
	u32 pag_number;	  /* offset of the group's number in the xfs_perag */
	u32 bt_dev;
	u32 ops_name;
	u32 eb_valid;
	u32 eb_lock, eb_start, eb_fs_info, fs_info_sb;
	u32 pad[2];
};

/* One task as the iterator finds it. */
struct task_seed {
	u64 ts;
	u64 start;
	u64 blocker;
	u64 futex;
	u32 tid, tgid, ptid;
	u32 state;
	u32 flags;	 /* 1: kernel thread, 2: on a CPU, 4: in_iowait, 8: runnable */
	u32 cpu;
	s32 syscall;
	u32 futex_op;
	s32 exit_state;
	u32 own_tid; /* the thread id in the reader's namespace; 0: it has none there */
	char comm[COMM_LEN];
};

/* What the loader decides before the programs are verified. */
struct options {
	u32 event_mask; /* small records per CPU, less one: a power of two less one */
	u32 big_mask;	/* large records, likewise */
	/* Small records are written (not by the drop-in for offcputime, which wants stacks only). */
	u8 want_events;
	/* Stacks of waits by their length; kernel and user stack at switch-out, too; of wakers. */
	u8 wait_stacks;
	u8 out_kernel_stacks;
	u8 out_user_stacks;
	u8 waker_stacks;
	u8 user_stacks;
	/* Lock waits have their stack at contention_end; otherwise as any other wait at switch-in. */
	u8 lock_waits_apart;
	u8 describe_locks;
	/* sched_switch hands over the state (since 5.18); reading it from the task is a race. */
	u8 switch_has_state;
	/* Interrupts are traced: the context of a waking is known. */
	u8 irq_known;
	/* Kernel stacks at all. */
	u8 kernel_stacks;
	/* Completions of requests to block devices are seen. */
	u8 io_known;
	u32 base_shift;	 /* stacks of waits shorter than 2^shift ns are sampled */
	u32 stack_limit; /* stacks per CPU and 2^23 ns above which the shift grows */
	u32 max_frames;
	u32 futex_nr;
	u32 filter;	/* enum filter: which waits get stacks */
	u32 pid_ns;	/* the reader's namespace of process ids; 0: the first one, in which the kernel's own numbers are right */
	u32 pad;
	u64 min_ns;	/* waits outside get none */
	u64 max_ns;
	s64 state_mask; /* -1: any; 0: only waits that began running (preempted); else a mask of states */
};

enum filter {
	FILTER_NONE = 0,
	FILTER_PROCESSES = 1,
	FILTER_THREADS = 2,
	FILTER_USER = 3,
	FILTER_KERNEL = 4,
};

#endif
