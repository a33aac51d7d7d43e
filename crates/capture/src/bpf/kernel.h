/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The few members of kernel structures that are read; where they really are is found when the programs are loaded. */
#ifndef PERFLOSS_KERNEL_H
#define PERFLOSS_KERNEL_H

#define reloc __attribute__((preserve_access_index))

struct dentry;
struct inode;
struct super_block;
struct task_struct;

typedef struct {
	s64 counter;
} atomic_long_t;

struct qstr {
	const unsigned char *name;
} reloc;

struct hlist_node {
	struct hlist_node *next;
} reloc;

struct hlist_head {
	struct hlist_node *first;
} reloc;

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
	struct super_block *d_sb;
	union {
		struct hlist_node d_alias;
	} d_u;
} reloc;

struct file_system_type {
	const char *name;
} reloc;

struct rw_semaphore {
	atomic_long_t count;
	atomic_long_t owner;
} reloc;

struct mutex {
	atomic_long_t owner;
} reloc;

struct semaphore {
	unsigned long last_holder;
} reloc;

struct super_block {
	u32 s_dev;
	struct file_system_type *s_type;
	struct dentry *s_root;
	struct rw_semaphore s_umount;
	void *s_fs_info;
	char s_id[32];
} reloc;

struct address_space {
	struct inode *host;
	struct rw_semaphore invalidate_lock;
	struct rw_semaphore i_mmap_rwsem;
} reloc;

struct inode {
	unsigned short i_mode;
	struct super_block *i_sb;
	struct address_space *i_mapping;
	unsigned long i_ino;
	struct rw_semaphore i_rwsem;
	struct hlist_head i_dentry;
	struct address_space i_data;
} reloc;

struct mm_struct {
	unsigned long arg_start;
	unsigned long arg_end;
	struct rw_semaphore mmap_lock;
	struct task_struct *owner;
} reloc;

struct kmem_cache_order_objects {
	unsigned int x;
} reloc;

struct kmem_cache {
	const char *name;
	unsigned int size;
	struct kmem_cache_order_objects oo;
} reloc;

struct pt_regs {
	unsigned long di;
	unsigned long si;
	unsigned long orig_ax;
} reloc;

struct signal_struct {
	int group_exit_code;
} reloc;

struct thread_info {
	u32 cpu;
} reloc;

struct kernfs_node {
	u64 id;
} reloc;

struct cgroup {
	struct kernfs_node *kn;
} reloc;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
} reloc;

struct cfs_bandwidth {
	u64 quota;
} reloc;

struct cfs_rq {
	u8 throttled;
	int throttle_count;
} reloc;

struct sched_entity {
	unsigned char sched_delayed;
	struct cfs_rq *cfs_rq;
} reloc;

struct task_group {
	struct cgroup_subsys_state css;
	struct cfs_rq **cfs_rq;
	struct task_group *parent;
	struct cfs_bandwidth cfs_bandwidth;
} reloc;

struct ns_common {
	unsigned int inum;
} reloc;

struct pid_namespace {
	struct ns_common ns;
} reloc;

struct upid {
	int nr;
	struct pid_namespace *ns;
} reloc;

struct pid {
	unsigned int level;
	struct upid numbers[1];
} reloc;

struct task_struct {
	struct thread_info thread_info;
	struct sched_entity se;
	struct task_group *sched_task_group;
	u8 throttled;
	unsigned int __state;
	int on_cpu;
	int on_rq;
	int exit_state;
	int exit_code;
	unsigned int flags;
	unsigned in_iowait : 1;
	int pid;
	int tgid;
	struct pid *thread_pid;
	struct task_struct *real_parent;
	struct mm_struct *mm;
	u64 start_time;
	struct signal_struct *signal;
	unsigned long blocker;
	char comm[COMM_LEN];
} reloc;

struct work_struct {
	void *func;
} reloc;

/* The registers as user space knows them: this layout does not change. */
struct bpf_perf_event_data {
	u64 regs[21];
};
#define REG_CS 17

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
	u64 session_id;
	u64 seq_num;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

struct block_device {
	u32 bd_dev;
} reloc;

struct gendisk {
	struct block_device *part0;
} reloc;

struct request_queue {
	struct gendisk *disk;
} reloc;

struct bio {
	struct block_device *bi_bdev;
} reloc;

struct request {
	struct request_queue *q;
	u32 cmd_flags;
	struct bio *bio;
	u64 start_time_ns;
} reloc;

#define PF_KTHREAD 0x00200000
#define PF_WQ_WORKER 0x00000020

#define TASK_INTERRUPTIBLE 0x1
#define TASK_UNINTERRUPTIBLE 0x2
#define TASK_NOLOAD 0x400

#endif
