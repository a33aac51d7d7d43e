//! What a lock is called: its kind, its class (`struct.member`), and the object that it belongs to.

use std::sync::Arc;

use trace::LockKind;

use crate::btf::Btf;
use crate::layout::{FsLayout, LockInfo, object, text};
use crate::machine;
use crate::symbols::KernelSymbols;

const SPIN: u8 = 1;
const READ: u8 = 2;
const WRITE: u8 = 4;
const RT: u8 = 8;
const PERCPU: u8 = 16;
const MUTEX: u8 = 32;

/// The kind of lock that waits with those flags of `contention_begin`.
pub fn kind_of(flags: u8) -> LockKind {
    match flags {
        f if f & MUTEX != 0 => LockKind::Mutex,
        f if f & PERCPU != 0 => LockKind::PercpuRwsem,
        f if f & RT != 0 => LockKind::RtMutex,
        f if f & SPIN != 0 && f & (READ | WRITE) != 0 => LockKind::Rwlock,
        f if f & SPIN != 0 => LockKind::Spinlock,
        f if f & (READ | WRITE) != 0 => LockKind::Rwsem,
        _ => LockKind::Semaphore,
    }
}

/// The structures that a slab cache holds, where the cache is not named like them.
const CACHES: [(&str, &str); 28] = [
    ("ext4_inode_cache", "ext4_inode_info"),
    ("inode_cache", "inode"),
    ("shmem_inode_cache", "shmem_inode_info"),
    ("proc_inode_cache", "proc_inode"),
    ("sock_inode_cache", "socket_alloc"),
    ("hugetlbfs_inode_cache", "hugetlbfs_inode_info"),
    ("fuse_inode", "fuse_inode"),
    ("nfs_inode_cache", "nfs_inode"),
    ("f2fs_inode_cache", "f2fs_inode_info"),
    ("ovl_inode", "ovl_inode"),
    ("fat_inode_cache", "msdos_inode_info"),
    ("btrfs_extent_buffer", "extent_buffer"),
    ("btrfs_delayed_node", "btrfs_delayed_node"),
    ("signal_cache", "signal_struct"),
    ("sighand_cache", "sighand_struct"),
    ("files_cache", "files_struct"),
    ("fs_cache", "fs_struct"),
    ("filp", "file"),
    ("kernfs_node_cache", "kernfs_node"),
    ("xfs_ili", "xfs_inode_log_item"),
    ("xfs_buf_item", "xfs_buf_log_item"),
    ("xfs_log_ticket", "xlog_ticket"),
    ("jbd2_journal_handle", "jbd2_journal_handle"),
    ("jbd2_journal_head", "journal_head"),
    ("jbd2_inode", "jbd2_inode"),
    ("bdev_cache", "bdev_inode"),
    ("skbuff_head_cache", "sk_buff"),
    ("mqueue_inode_cache", "mqueue_inode_info"),
];

/// Classes of locks in memory of general caches, which only the functions that wait for them tell.
const BY_FUNCTION: [(&str, &str); 21] = [
    ("xfs_buf_lock", "xfs_buf.b_sema"),
    ("btrfs_tree_", "extent_buffer.lock"),
    ("__btrfs_tree_", "extent_buffer.lock"),
    ("raw_spin_rq_lock", "rq.__lock"),
    ("__schedule", "rq.__lock"),
    ("sched_balance_", "rq.__lock"),
    ("try_to_wake_up", "rq.__lock"),
    ("pipe_", "pipe_inode_info.mutex"),
    ("anon_pipe_", "pipe_inode_info.mutex"),
    ("fifo_open", "pipe_inode_info.mutex"),
    ("ep_", "eventpoll.mtx"),
    ("do_epoll_", "eventpoll.mtx"),
    ("jbd2_journal_", "journal_t"),
    ("start_this_handle", "journal_t"),
    ("xlog_", "xlog"),
    ("xfs_log_", "xlog"),
    ("tty_", "tty_struct"),
    ("n_tty_", "tty_struct"),
    ("kernfs_", "kernfs_root.kernfs_rwsem"),
    ("cgroup_", "cgroup"),
    ("ext4_orphan_", "ext4_sb_info.s_orphan_lock"),
];

/// Modules whose types name locks.
pub const MODULES: [&str; 8] = ["xfs", "btrfs", "ext4", "jbd2", "f2fs", "fuse", "nfs", "overlay"];

/// Functions that are the locks themselves: not who waits, but how.
const LOCK_FUNCTIONS: [&str; 24] = [
    "down",
    "__down",
    "___down",
    "up",
    "rwsem_",
    "mutex_",
    "__mutex_",
    "ww_mutex_",
    "schedule",
    "__schedule",
    "io_schedule",
    "native_queued_",
    "__pv_queued_",
    "queued_spin",
    "queued_read",
    "queued_write",
    "queued_",
    "_raw_",
    "percpu_down",
    "__percpu_",
    "percpu_rwsem",
    "rt_mutex",
    "osq_",
    "preempt_schedule",
];

/// Whether a function is one of the locks' or the scheduler's own.
pub fn is_lock_function(name: &str) -> bool {
    LOCK_FUNCTIONS.iter().any(|p| name.starts_with(p))
}

/// The class of a lock by the stack of a task that waited for it (leaf first): a last resort.
pub fn class_by_stack<'a>(kind: LockKind, mut frames: impl Iterator<Item = &'a str>) -> Option<String> {
    // whoever spins may be the scheduler; whoever sleeps only uses it
    let spins = matches!(kind, LockKind::Spinlock | LockKind::Rwlock);
    let caller = frames.find(|f| !is_lock_function(f) || (spins && f.contains("schedule")))?;
    match BY_FUNCTION.iter().find(|(prefix, _)| caller.starts_with(prefix)) {
        Some((_, class)) => Some((*class).to_owned()),
        None => Some(format!("lock taken in {caller}")),
    }
}

/// What a lock is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    pub kind: LockKind,
    pub class: Option<String>,
    pub object: Option<String>,
    /// The process that the lock belongs to.
    pub process: Option<u32>,
}

/// Names locks by the kernel's types.
pub struct Namer {
    kernel: Arc<Btf>,
    modules: Vec<(String, Btf)>,
}

impl Namer {
    /// Names by the kernel's types and those of the modules that are loaded and matter.
    pub fn new(kernel: Arc<Btf>) -> Namer {
        let mut namer = Namer { kernel, modules: Vec::new() };
        namer.load_modules();
        namer
    }

    /// Looks for modules that were loaded since. Whether there are new ones.
    pub fn load_modules(&mut self) -> bool {
        let before = self.modules.len();
        for name in MODULES {
            if self.modules.iter().all(|(n, _)| n != name)
                && let Ok(btf) = Btf::module(name, self.kernel.clone())
            {
                self.modules.push((name.to_owned(), btf));
            }
        }
        self.modules.len() != before
    }

    fn first<T>(&self, f: impl Fn(&Btf) -> Option<T>) -> Option<T> {
        f(&self.kernel).or_else(|| self.modules.iter().find_map(|(_, b)| f(b)))
    }

    fn offset(&self, structure: &str, path: &str) -> Option<u32> {
        self.first(|b| b.offset_of(structure, path))
    }

    /// Where the members are that the programs read.
    pub fn fs_layout(&self) -> FsLayout {
        let mut layout = FsLayout::default();
        let xfs = || {
            let pag = self.offset("xfs_perag", "pag_group.xg_gno").or(self.offset("xfs_perag", "pag_agno"))?;
            Some(FsLayout {
                xfs_valid: 1,
                b_sema: self.offset("xfs_buf", "b_sema")?,
                b_ops: self.offset("xfs_buf", "b_ops")?,
                b_pag: self.offset("xfs_buf", "b_pag")?,
                b_target: self.offset("xfs_buf", "b_target")?,
                b_block: self.offset("xfs_buf", "b_rhash_key").or(self.offset("xfs_buf", "b_bn"))?,
                pag_number: pag,
                bt_dev: self.offset("xfs_buftarg", "bt_dev")?,
                ops_name: self.offset("xfs_buf_ops", "name")?,
                ..FsLayout::default()
            })
        };
        if let Some(found) = xfs() {
            layout = found;
        }
        let eb = || {
            Some((
                self.offset("extent_buffer", "lock")?,
                self.offset("extent_buffer", "start")?,
                self.offset("extent_buffer", "fs_info")?,
                self.offset("btrfs_fs_info", "sb")?,
            ))
        };
        if let Some((lock, start, fs_info, sb)) = eb() {
            layout.eb_valid = 1;
            (layout.eb_lock, layout.eb_start, layout.eb_fs_info, layout.fs_info_sb) =
                (lock, start, fs_info, sb);
        }
        layout
    }

    /// What the lock of a description is called.
    pub fn name(&self, info: &LockInfo, kernel: Option<&KernelSymbols>) -> Named {
        let mut named = Named { kind: kind_of(info.flags), ..Named::default() };
        let on = device(info);
        match info.object {
            object::MM => {
                named.class = Some("mm_struct.mmap_lock".into());
                named.process = u32::try_from(info.id).ok().filter(|p| *p != 0);
                named.object = Some(format!("address space of process {}", info.id));
            }
            object::INODE => {
                named.class = Some("inode.i_rwsem".into());
                named.object = Some(inode(info, &on));
            }
            object::MAPPING => {
                let member = if info.extra == 1 { "invalidate_lock" } else { "i_mmap_rwsem" };
                named.class = Some(format!("address_space.{member}"));
                named.object = Some(inode(info, &on));
            }
            object::SUPER => {
                named.class = Some("super_block.s_umount".into());
                named.object = Some(format!("{} on {on}", text(&info.fs)));
            }
            object::XFS_BUF => {
                named.class = Some("xfs_buf.b_sema".into());
                named.object = Some(xfs_buffer(info, &on));
            }
            object::EXTENT => {
                named.class = Some("extent_buffer.lock".into());
                named.object = Some(format!("tree block {} on {on}", info.id));
            }
            _ => {
                let global = || kernel?.variable(info.address).map(str::to_owned);
                named.class = self.class_by_cache(info).or_else(global);
            }
        }
        named
    }

    fn class_by_cache(&self, info: &LockInfo) -> Option<String> {
        let cache = text(&info.cache);
        if cache.is_empty() || cache.starts_with("kmalloc") || info.cache_size == 0 {
            return None;
        }
        let structure = CACHES.iter().find(|(c, _)| *c == cache).map_or(cache.as_str(), |(_, s)| s);
        // slabs are as aligned as they are large; a slab of the smaller, last-resort size gives an offset without a lock
        let slab = 4096u64.checked_shl(info.cache_order)?;
        let offset = ((info.address & (slab - 1)) % u64::from(info.cache_size)) as u32;
        let spins = info.flags & SPIN != 0 && info.flags & MUTEX == 0;
        self.first(|b| b.lock_at(structure, offset, spins))
    }
}

fn device(info: &LockInfo) -> String {
    let sid = text(&info.sid);
    if !sid.is_empty() {
        return sid;
    }
    machine::device_name(info.dev >> 20, info.dev & 0xf_ffff)
}

fn inode(info: &LockInfo, on: &str) -> String {
    const S_IFMT: u32 = 0o170_000;
    let what = match info.mode & S_IFMT {
        0o040_000 => "directory",
        0o100_000 => "file",
        0o010_000 => "pipe",
        0o140_000 => "socket",
        0o060_000 => "block device",
        0o020_000 => "character device",
        0o120_000 => "symbolic link",
        _ => "inode",
    };
    if what != "directory" {
        return format!("{what} {} on {on}", info.id);
    }
    let mut path = String::new();
    for part in info.path.iter().take(usize::from(info.parts)).rev() {
        path.push('/');
        path.push_str(&text(part));
    }
    match (info.path_full != 0, path.is_empty()) {
        (true, true) => format!("{what} {} (/) on {on}", info.id),
        (true, false) => format!("{what} {} ({path}) on {on}", info.id),
        (false, false) => format!("{what} {} (…{path}) on {on}", info.id),
        (false, true) => format!("{what} {} on {on}", info.id),
    }
}

fn xfs_buffer(info: &LockInfo, on: &str) -> String {
    let ops = text(&info.words);
    let name = ops.trim_start_matches("xfs_");
    let group = if info.extra_valid != 0 { format!(" of AG {}", info.extra) } else { String::new() };
    match name {
        "agi" | "agf" | "agfl" => format!("{}{group} on {on}", name.to_uppercase()),
        "sb" => format!("superblock{group} on {on}"),
        _ => format!("{name} block {}{group} on {on}", info.id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;

    fn info() -> LockInfo {
        let zero = vec![0u8; size_of::<LockInfo>()];
        sys::from_bytes(&zero).expect("as many bytes as it has")
    }

    fn put(to: &mut [u8], text: &str) {
        to[..text.len()].copy_from_slice(text.as_bytes());
    }

    #[test]
    fn an_agi_is_named_by_its_group_and_device() {
        let mut i = info();
        i.object = object::XFS_BUF;
        put(&mut i.words, "xfs_agi");
        put(&mut i.sid, "loop0");
        i.extra_valid = 1;
        assert_eq!(xfs_buffer(&i, &device(&i)), "AGI of AG 0 on loop0");
        put(&mut i.words, "xfs_finobt");
        i.id = 24;
        assert_eq!(xfs_buffer(&i, &device(&i)), "finobt block 24 of AG 0 on loop0");
    }

    #[test]
    fn a_directory_is_named_by_number_path_and_device() {
        let mut i = info();
        i.mode = 0o040_755;
        i.id = 131;
        put(&mut i.sid, "loop0");
        put(&mut i.path[0], "d");
        put(&mut i.path[1], "work");
        i.parts = 2;
        i.path_full = 1;
        assert_eq!(inode(&i, "loop0"), "directory 131 (/work/d) on loop0");
        i.parts = 0;
        assert_eq!(inode(&i, "loop0"), "directory 131 (/) on loop0");
    }

    #[test]
    fn flags_of_contention_begin_give_the_kind() {
        for (flags, kind) in [
            (0, LockKind::Semaphore),
            (SPIN, LockKind::Spinlock),
            (SPIN | READ, LockKind::Rwlock),
            (READ, LockKind::Rwsem),
            (WRITE, LockKind::Rwsem),
            (MUTEX, LockKind::Mutex),
            (MUTEX | SPIN, LockKind::Mutex),
            (PERCPU | READ, LockKind::PercpuRwsem),
            (RT, LockKind::RtMutex),
        ] {
            assert_eq!(kind_of(flags), kind, "flags {flags}");
        }
    }

    #[test]
    fn a_lock_without_a_name_is_named_by_who_waits_for_it() {
        let class =
            class_by_stack(LockKind::Mutex, ["mutex_lock", "anon_pipe_write", "vfs_write"].into_iter());
        assert_eq!(class.as_deref(), Some("pipe_inode_info.mutex"));
        let class =
            class_by_stack(LockKind::Mutex, ["__mutex_lock.constprop.0", "odd_driver_ioctl"].into_iter());
        assert_eq!(class.as_deref(), Some("lock taken in odd_driver_ioctl"));
    }
}
