/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Who has a lock, and what object it belongs to. */
#ifndef PERFLOSS_LOCK_H
#define PERFLOSS_LOCK_H

#define LCB_F_SPIN 1
#define LCB_F_READ 2
#define LCB_F_WRITE 4
#define LCB_F_RT 8
#define LCB_F_PERCPU 16
#define LCB_F_MUTEX 32

#define AT(lock, type, member) ((void *)((lock) + bpf_core_field_offset(type, member)))
#define BASE(lock, type, member) ((void *)((lock) - bpf_core_field_offset(type, member)))
#define LOAD(to, from) bpf_probe_read_kernel(&(to), sizeof(to), from)

extern struct kmem_cache *bpf_get_kmem_cache(u64 addr) __ksym __weak;

/* Locks that were described lately: when, what was found, and when they were last waited for. */
struct described {
	u64 when;
	u64 identity;
	u64 contended;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, u64);
	__type(value, struct described);
} described SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct fs_layout);
} layouts SEC(".maps");

/* A lock counts as contended that long after somebody began to wait for it. */
#define CONTENDED_NS (2 * 1000000ULL)

/* A description holds that long; then it is looked whether the memory has another object. */
#define DESCRIBED_NS (50 * 1000000ULL)

/* The task that a lock's own words name, as a thread id; 0: none. */
static __always_inline u32 lock_owner(u64 lock, u32 flags, u16 *quality)
{
	struct task_struct *task;
	u64 word = 0;
	s32 pid = 0;

	*quality = OWNER_NONE;
	if (flags & LCB_F_MUTEX) {
		if (!bpf_core_field_exists(struct mutex, owner) || LOAD(word, AT(lock, struct mutex, owner)))
			return 0;
		*quality = OWNER_FIELD;
		word &= ~7ULL;
	} else if (flags & (LCB_F_SPIN | LCB_F_RT | LCB_F_PERCPU)) {
		return 0;
	} else if (flags & (LCB_F_READ | LCB_F_WRITE)) {
		if (!bpf_core_field_exists(struct rw_semaphore, owner) ||
		    LOAD(word, AT(lock, struct rw_semaphore, owner)))
			return 0;
		*quality = word & 1 ? OWNER_READER : OWNER_FIELD;
		word &= ~3ULL;
	} else {
		if (!bpf_core_field_exists(struct semaphore, last_holder) ||
		    LOAD(word, AT(lock, struct semaphore, last_holder)))
			return 0;
		*quality = OWNER_LAST_HOLDER;
	}
	task = (void *)word;
	if (!task || LOAD(pid, AT(word, struct task_struct, pid)) || pid <= 0) {
		*quality = OWNER_NONE;
		return 0;
	}
	return pid;
}

static __always_inline void describe_super(struct lock_info *info, struct super_block *sb)
{
	struct file_system_type *type = 0;
	const char *name = 0;

	LOAD(info->dev, &sb->s_dev);
	bpf_probe_read_kernel_str(info->sid, sizeof(info->sid), &sb->s_id);
	LOAD(type, &sb->s_type);
	LOAD(name, &type->name);
	bpf_probe_read_kernel_str(info->fs, sizeof(info->fs), name);
}

static __always_inline void describe_inode(struct lock_info *info, struct inode *inode)
{
	struct hlist_node *alias = 0;
	struct dentry *dentry, *parent = 0;
	struct super_block *sb = 0;
	const unsigned char *name = 0;
	unsigned short mode = 0;
	unsigned long ino = 0;
	int i;

	LOAD(ino, &inode->i_ino);
	LOAD(mode, &inode->i_mode);
	LOAD(sb, &inode->i_sb);
	info->id = ino;
	info->mode = mode;
	describe_super(info, sb);
	LOAD(alias, &inode->i_dentry.first);
	if (!alias)
		return;
	dentry = (void *)alias - bpf_core_field_offset(struct dentry, d_u.d_alias);
#pragma unroll
	for (i = 0; i < PATH_PARTS; i++) {
		long n;

		if (LOAD(parent, &dentry->d_parent))
			return;
		if (parent == dentry) {
			info->path_full = 1;
			return;
		}
		LOAD(name, &dentry->d_name.name);
		n = bpf_probe_read_kernel_str(info->path[i], PATH_PART_LEN, name);
		if (n == PATH_PART_LEN)
			info->truncated = 1;
		info->parts = i + 1;
		dentry = parent;
	}
}

static __always_inline bool describe_mm(struct lock_info *info, u64 lock)
{
	struct mm_struct *mm = BASE(lock, struct mm_struct, mmap_lock), *mine = 0;
	struct task_struct *me = bpf_get_current_task_btf(), *owner = 0;
	s32 tgid = 0;

	if (me->mm == mm) {
		info->object = OBJ_MM;
		info->id = bpf_get_current_pid_tgid() >> 32;
		return true;
	}
	if (!bpf_core_field_exists(struct mm_struct, owner) || LOAD(owner, &mm->owner) || !owner)
		return false;
	if (LOAD(mine, &owner->mm) || mine != mm || LOAD(tgid, &owner->tgid))
		return false;
	info->object = OBJ_MM;
	info->id = tgid;
	return true;
}

static __always_inline bool describe_rwsem(struct lock_info *info, u64 lock)
{
	struct address_space *mapping = 0;
	struct super_block *sb, *back = 0;
	struct inode *inode;
	struct dentry *root = 0;

	if (describe_mm(info, lock))
		return true;
	inode = BASE(lock, struct inode, i_rwsem);
	if (!LOAD(mapping, &inode->i_mapping) && mapping && mapping == &inode->i_data) {
		info->object = OBJ_INODE;
		describe_inode(info, inode);
		return true;
	}
	if (bpf_core_field_exists(struct address_space, invalidate_lock)) {
		mapping = BASE(lock, struct address_space, invalidate_lock);
		inode = 0;
		if (!LOAD(inode, &mapping->host) && inode && mapping == &inode->i_data) {
			info->object = OBJ_MAPPING;
			info->extra = 1;
			describe_inode(info, inode);
			return true;
		}
	}
	mapping = BASE(lock, struct address_space, i_mmap_rwsem);
	inode = 0;
	if (!LOAD(inode, &mapping->host) && inode && mapping == &inode->i_data) {
		info->object = OBJ_MAPPING;
		info->extra = 2;
		describe_inode(info, inode);
		return true;
	}
	sb = BASE(lock, struct super_block, s_umount);
	if (!LOAD(root, &sb->s_root) && root) {
		/* a super block's root dentry points back to it */
		if (!LOAD(back, &root->d_sb) && back == sb) {
			info->object = OBJ_SUPER;
			describe_super(info, sb);
			return true;
		}
	}
	return false;
}

static __always_inline bool describe_xfs_buf(struct lock_info *info, u64 lock, struct fs_layout *l)
{
	u64 bp = lock - l->b_sema, ops = 0, pag = 0, target = 0, block = 0;
	const char *name = 0;

	if (LOAD(ops, (void *)(bp + l->b_ops)) || !ops || LOAD(name, (void *)(ops + l->ops_name)))
		return false;
	if (bpf_probe_read_kernel_str(info->words, sizeof(info->words), name) < 5)
		return false;
	if (info->words[0] != 'x' || info->words[1] != 'f' || info->words[2] != 's')
		return false;
	info->object = OBJ_XFS_BUF;
	LOAD(block, (void *)(bp + l->b_block));
	info->id = block;
	if (!LOAD(pag, (void *)(bp + l->b_pag)) && pag &&
	    !LOAD(info->extra, (void *)(pag + l->pag_number)))
		info->extra_valid = 1;
	if (!LOAD(target, (void *)(bp + l->b_target)) && target)
		LOAD(info->dev, (void *)(target + l->bt_dev));
	return true;
}

/* Whether it is the lock of a btrfs extent buffer: the super block that the buffer leads to points back. */
static __always_inline bool describe_extent(struct lock_info *info, u64 lock, struct fs_layout *l)
{
	u64 eb = lock - l->eb_lock, start = 0, fs_info = 0, back = 0;
	struct super_block *sb = 0;

	if (LOAD(fs_info, (void *)(eb + l->eb_fs_info)) || !fs_info || LOAD(sb, (void *)(fs_info + l->fs_info_sb)) || !sb ||
	    LOAD(back, &sb->s_fs_info) || back != fs_info)
		return false;
	LOAD(start, (void *)(eb + l->eb_start));
	info->object = OBJ_EXTENT;
	info->id = start;
	describe_super(info, sb);
	return true;
}

/* Describes a lock to user space, unless that was done lately or nothing has changed since. */
static __noinline int describe(u64 lock, u32 flags)
{
	struct cpu_area *area = this_area();
	struct described fresh = {}, *old;
	u64 number, now = bpf_ktime_get_ns();
	struct kmem_cache *cache = 0;
	struct fs_layout *layout;
	struct lock_info *info;
	struct big *big;
	u32 zero = 0;

	old = bpf_map_lookup_elem(&described, &lock);
	if (old) {
		old->contended = now;
		if ((s64)(now - old->when) < (s64)DESCRIBED_NS)
			return 0;
	}
	if (!area)
		return 0;
	big = reserve_big(area, &number, 0);
	if (!big)
		return 0;
	info = &big->lock;
	big->type = BIG_LOCK;
	big->ts = now;
	__builtin_memset(info, 0, sizeof(*info));
	info->address = lock;
	info->flags = flags;
	if (bpf_ksym_exists(bpf_get_kmem_cache))
		cache = bpf_get_kmem_cache(lock);
	if (cache) {
		info->cache_size = cache->size;
		info->cache_order = cache->oo.x >> 16;
		bpf_probe_read_kernel_str(info->cache, sizeof(info->cache), cache->name);
	}
	layout = bpf_map_lookup_elem(&layouts, &zero);
	if (flags & LCB_F_SPIN) {
		/* the class is all that is wanted, and spinlocks are waited for in every context */
	} else if (flags & LCB_F_PERCPU) {
	} else if (!(flags & (LCB_F_READ | LCB_F_WRITE | LCB_F_MUTEX | LCB_F_RT))) {
		if (layout && layout->xfs_valid)
			describe_xfs_buf(info, lock, layout);
	} else if (flags & (LCB_F_READ | LCB_F_WRITE)) {
		if (!(layout && layout->eb_valid && describe_extent(info, lock, layout)))
			describe_rwsem(info, lock);
	}
	fresh.when = now;
	fresh.contended = now;
	fresh.identity = info->id * 0x9E3779B97F4A7C15ULL + ((u64)info->dev << 32) + info->object +
			 *(u64 *)info->cache + *(u64 *)info->words;
	if (old && old->identity == fresh.identity)
		big->type = BIG_SKIP;
	if (info->truncated)
		area->state.truncated++;
	publish(&big->seq, number);
	bpf_map_update_elem(&described, &lock, &fresh, BPF_ANY);
	return 0;
}

#endif
