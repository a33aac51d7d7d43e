//! What a wait is for, as far as its beginning tells, and what a sampled stack did.

use trace::{StackId, Syscall, Tables, TaskState};

use crate::clock::Counted;

/// What a wait is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Class {
    /// A lock.
    Lock,
    /// Input or output, on a device.
    Io,
    /// Something in the kernel that cannot be interrupted.
    Kernel,
    /// The same, and an interrupt ended it that completed no request: the clock, as a rule.
    Timed,
    /// A child, or its exec.
    Child,
    /// Time, or a signal.
    Sleep,
    /// Whatever comes first: poll and the like; a thread that has nothing to do.
    Events,
    /// A lock or condition of user space, at an address that is not known.
    Futex,
    /// The other end of a pipe, socket or the like.
    #[default]
    Peer,
    /// Stopped by a signal or a debugger, or at its end.
    Stopped,
}

impl Class {
    /// How a task of the workload counts that waits so.
    pub fn counted(self) -> Counted {
        match self {
            Class::Lock | Class::Io | Class::Kernel | Class::Timed | Class::Futex => Counted::Sure,
            Class::Peer => Counted::Peer,
            Class::Child | Class::Sleep | Class::Events | Class::Stopped => Counted::No,
        }
    }

    /// Whether the wait is of the task's own choice, or for something that is no loss.
    pub fn is_idle(self) -> bool {
        matches!(self, Class::Sleep | Class::Events | Class::Stopped | Class::Child)
    }

    /// What a task waits for that leaves its CPU so.
    pub fn of(state: TaskState, iowait: bool, syscall: Option<Syscall>, kernel: bool, arch: Arch) -> Class {
        if iowait {
            return Class::Io;
        }
        let call = syscall.map_or(Call::Other, |s| arch.call(s.number()));
        match state {
            TaskState::Uninterruptible => match call {
                // vfork: the parent waits until the child runs another program
                Call::Clone => Class::Child,
                _ => Class::Kernel,
            },
            TaskState::Interruptible if kernel => Class::Events,
            TaskState::Interruptible | TaskState::Running => match call {
                Call::Wait | Call::Clone => Class::Child,
                Call::Sleep => Class::Sleep,
                Call::Poll => Class::Events,
                Call::Futex => Class::Futex,
                Call::FileLock => Class::Kernel,
                Call::Other => Class::Peer,
            },
            _ => Class::Stopped,
        }
    }
}

/// What a system call waits for. `io_getevents` and `io_uring_enter` are among the others: who ends the wait tells whether it
/// was for a device, another task or the world outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Wait,
    Clone,
    Sleep,
    Poll,
    Futex,
    FileLock,
    Other,
}

/// The architecture that system-call numbers belong to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Arch {
    #[default]
    X86_64,
    /// The numbers that newer architectures share (aarch64, riscv64, …).
    Generic,
}

impl Arch {
    pub fn named(name: &str) -> Arch {
        match name {
            "" | "x86_64" => Arch::X86_64,
            _ => Arch::Generic,
        }
    }

    fn call(self, number: u16) -> Call {
        match self {
            Arch::X86_64 => match number {
                61 | 247 => Call::Wait,
                56 | 57 | 58 | 435 => Call::Clone,
                34 | 35 | 127..=128 | 130 | 230 => Call::Sleep,
                7 | 23 | 43 | 232 | 270 | 271 | 281 | 288 | 441 => Call::Poll,
                202 | 449 | 455 => Call::Futex,
                72 | 73 | 65 | 220 => Call::FileLock,
                _ => Call::Other,
            },
            Arch::Generic => match number {
                95 | 260 => Call::Wait,
                220 | 435 => Call::Clone,
                101 | 115 | 133 | 137 => Call::Sleep,
                22 | 72 | 73 | 202 | 242 | 441 => Call::Poll,
                98 | 449 | 455 => Call::Futex,
                25 | 32 | 192 | 193 => Call::FileLock,
                _ => Call::Other,
            },
        }
    }
}

/// Functions in which the kernel spins for a lock.
const SPINNERS: [&str; 12] = [
    "osq_lock",
    "native_queued_spin_lock_slowpath",
    "queued_spin_lock_slowpath",
    "__pv_queued_spin_lock_slowpath",
    "pv_wait_head_or_lock",
    "pv_wait_node",
    "queued_read_lock_slowpath",
    "queued_write_lock_slowpath",
    "mutex_spin_on_owner",
    "rwsem_spin_on_owner",
    "rwsem_optimistic_spin",
    "virt_spin_lock",
];

/// A kernel stack, taken apart.
#[derive(Debug, Default)]
pub(crate) struct KernelStack {
    /// It spins for a lock.
    pub spins: bool,
    /// The lock's taker, if it spins: the innermost frame outside the locking code.
    pub spins_for: Option<String>,
    /// The system call, exception or kind of kernel thread that it belongs to.
    pub entry: Option<String>,
    /// The part of the kernel that works: a file system, `mm`, `sched`, …
    pub group: Option<String>,
}

/// A function's name without what the compiler added.
pub(crate) fn plain(name: &str) -> &str {
    name.split_once('.').map_or(name, |(plain, _)| plain)
}

/// Whether a function is of the locking code itself.
pub(crate) fn is_locking(name: &str) -> bool {
    SPINNERS.contains(&name)
        || [
            "_raw_spin_",
            "_raw_read_",
            "_raw_write_",
            "__raw_spin",
            "mutex_",
            "__mutex_",
            "ww_mutex",
            "rwsem_",
            "down_",
            "__down_",
            "up_",
            "__up_",
            "percpu_down",
            "__percpu_down",
            "schedule",
            "__schedule",
            "io_schedule",
            "rt_mutex",
            "rt_spin",
        ]
        .iter()
        .any(|prefix| name.starts_with(prefix))
        || matches!(name, "down" | "up" | "preempt_schedule" | "finish_task_switch" | "do_raw_spin_lock")
}

impl KernelStack {
    pub fn of(tables: &Tables, stack: StackId) -> KernelStack {
        let mut found = KernelStack { entry: entry_of(tables.stack_names(stack)), ..KernelStack::default() };
        for (depth, name) in tables.stack_names(stack).enumerate() {
            let name = plain(name);
            // paravirtual and architecture details lie between the spinner and the interrupt or halt at the leaf
            if depth < 4 && SPINNERS.contains(&name) {
                found.spins = true;
            }
            if found.spins && found.spins_for.is_none() && !is_locking(name) {
                found.spins_for = Some(name.to_owned());
            }
            if found.group.is_none() {
                found.group = group(&GROUPS, name).map(str::to_owned);
            }
        }
        if found.group.is_none() {
            let modules = tables.frames(stack).iter().filter_map(|f| tables.symbol(*f)?.module);
            found.group = modules.map(|m| tables.str(m).trim_matches(['[', ']']).to_owned()).next();
        }
        if found.group.is_none() {
            let mut names = tables.stack_names(stack).map(plain);
            found.group = names.find_map(|name| group(&LAST_GROUPS, name)).map(str::to_owned);
        }
        found
    }
}

/// The system call, exception or kind of kernel thread by which a stack was entered.
pub(crate) fn entry_of<'a>(names: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut found: Option<(u8, &str)> = None;
    for name in names {
        let Some((rank, entry)) = entry(plain(name)) else { continue };
        // of two that say as much the outer one is the entry
        if found.is_none_or(|(best, _)| rank <= best) {
            found = Some((rank, entry));
        }
    }
    found.map(|(_, entry)| entry.to_owned())
}

/// What a function is the entry of, and how little it says (least first).
fn entry(name: &str) -> Option<(u8, &str)> {
    for prefix in ["__x64_sys_", "__arm64_sys_", "__riscv_sys_", "__se_sys_", "__do_sys_"] {
        if let Some(call) = name.strip_prefix(prefix) {
            return Some((0, call));
        }
    }
    Some(match name {
        "exc_page_fault" | "do_user_addr_fault" | "handle_mm_fault" | "do_page_fault" => (1, "page fault"),
        "do_exit" | "do_group_exit" => (2, "exit"),
        "kernel_wait4" => (2, "wait4"),
        "ksys_read" => (2, "read"),
        "ksys_write" => (2, "write"),
        "ksys_mmap_pgoff" => (2, "mmap"),
        "__vm_munmap" => (2, "munmap"),
        "process_one_work" | "worker_thread" => (3, "worker"),
        "kthread" => (4, "kernel thread"),
        "exit_to_user_mode_loop" | "irqentry_exit_to_user_mode" => (5, "return to user"),
        "sysvec_apic_timer_interrupt"
        | "asm_sysvec_apic_timer_interrupt"
        | "common_interrupt"
        | "asm_common_interrupt" => (6, "interrupt"),
        "ret_from_fork" | "ret_from_fork_asm" | "schedule_tail" => (7, "fork"),
        _ => return None,
    })
}

/// Parts of the kernel, and how the names of their functions begin; the innermost function that is here decides.
#[rustfmt::skip]
const GROUPS: [(&str, &[&str]); 15] = [
    ("xfs", &["xfs_", "xlog_"]),
    ("btrfs", &["btrfs_"]),
    ("ext4", &["ext4_", "jbd2_"]),
    ("tmpfs", &["shmem_"]),
    ("f2fs", &["f2fs_"]),
    ("overlay", &["ovl_"]),
    ("nfs", &["nfs"]),
    ("fuse", &["fuse_"]),
    ("block", &["blk_", "blkdev_", "submit_bio", "loop_", "lo_"]),
    ("net", &["tcp_", "udp_", "unix_", "sock_"]),
    ("pipe", &["pipe_", "anon_pipe_"]),
    ("futex", &["futex_", "do_futex"]),
    ("mm", &[
        "memcg_", "mem_cgroup_", "folio_", "filemap_", "do_anonymous_page", "unmap_", "exit_mmap", "vma_", "vms_", "do_vmi_",
        "handle_mm_fault", "exc_page_fault", "asm_exc_page_fault", "do_mmap", "mmap_", "vm_mmap_", "ksys_mmap_", "__vm_munmap",
        "do_mprotect", "do_brk", "__do_sys_brk", "do_madvise",
    ]),
    ("process", &[
        "copy_process", "kernel_clone", "begin_new_exec", "do_execveat", "do_exit", "kernel_wait", "do_wait",
    ]),
    ("vfs", &[
        "vfs_", "path_openat", "filename_lookup", "user_path_at", "getname", "do_filp_open", "do_sys_openat", "__fput", "dput",
        "do_readlinkat", "do_faccessat", "do_unlinkat", "do_mkdirat", "do_renameat", "iterate_dir", "__do_sys_newfstatat",
    ]),
];

/// What a stack without any of them is in: everything above calls the scheduler and is interrupted.
#[rustfmt::skip]
const LAST_GROUPS: [(&str, &[&str]); 2] = [
    ("sched", &["schedule", "__schedule", "exit_to_user_mode_loop"]),
    ("interrupt", &["sysvec_", "asm_sysvec_", "common_interrupt", "asm_common_interrupt", "irqentry_exit"]),
];

/// The part of the kernel that a function belongs to, by its name.
fn group(groups: &[(&'static str, &[&str])], name: &str) -> Option<&'static str> {
    let of = |(_, prefixes): &&(&str, &[&str])| prefixes.iter().any(|prefix| name.starts_with(prefix));
    groups.iter().find(of).map(|(group, _)| *group)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(frames: &[&str]) -> KernelStack {
        let mut b = trace::Builder::new(trace::Meta::default());
        let frames: Vec<_> = frames.iter().map(|f| b.symbol(f, None)).collect();
        let id = b.stack(&frames);
        KernelStack::of(b.tables(), id)
    }

    #[test]
    fn a_stack_that_spins_says_for_whom() {
        let found = stack(&[
            "osq_lock",
            "__mutex_lock.constprop.0",
            "xfs_inode_lock",
            "__x64_sys_unlink",
            "do_syscall_64",
        ]);
        assert!(found.spins);
        assert_eq!(found.spins_for.as_deref(), Some("xfs_inode_lock"));
        assert_eq!((found.entry.as_deref(), found.group.as_deref()), (Some("unlink"), Some("xfs")));
    }

    #[test]
    fn a_part_of_the_kernel_is_told_by_the_innermost_function_that_is_of_one() {
        let of = |frames: &[&str]| stack(frames).group;
        let waits = ["__schedule", "schedule", "do_wait", "kernel_wait4", "do_syscall_64"];
        assert_eq!(of(&waits).as_deref(), Some("process"));
        let maps = [
            "mas_preallocate",
            "__mmap_region",
            "do_mmap",
            "vm_mmap_pgoff",
            "load_elf_binary",
            "__x64_sys_execve",
        ];
        assert_eq!(of(&maps).as_deref(), Some("mm"));
        assert_eq!(
            of(&["finish_task_switch", "__schedule", "schedule", "irqentry_exit"]).as_deref(),
            Some("sched")
        );
        assert_eq!(
            of(&["irqentry_exit_to_user_mode", "asm_sysvec_apic_timer_interrupt"]).as_deref(),
            Some("interrupt")
        );
        assert_eq!(of(&["do_syscall_64", "entry_SYSCALL_64_after_hwframe"]), None);
    }

    #[test]
    fn the_entry_is_what_says_most() {
        let of = |names: &[&str]| entry_of(names.iter().copied());
        let worker = ["xfs_difree", "process_one_work", "worker_thread", "kthread", "ret_from_fork"];
        assert_eq!(of(&worker).as_deref(), Some("worker"));
        assert_eq!(of(&["exc_page_fault", "copy_to_user", "__x64_sys_read"]).as_deref(), Some("read"));
        assert_eq!(of(&["schedule", "nothing"]), None);
    }

    #[test]
    fn a_spinner_far_from_the_leaf_does_not_spin_now() {
        assert!(!stack(&["a", "b", "c", "d", "e", "osq_lock"]).spins);
    }

    #[test]
    fn waits_are_told_apart_by_state_and_system_call() {
        let of = |state, call: i64| Class::of(state, false, Syscall::new(call), false, Arch::X86_64);
        assert_eq!(of(TaskState::Interruptible, 61), Class::Child);
        assert_eq!(of(TaskState::Interruptible, 0), Class::Peer);
        assert_eq!(of(TaskState::Interruptible, 230), Class::Sleep);
        assert_eq!(of(TaskState::Interruptible, 202), Class::Futex);
        assert_eq!(of(TaskState::Uninterruptible, 74), Class::Kernel);
        assert_eq!(of(TaskState::Uninterruptible, 56), Class::Child);
        assert_eq!(Class::of(TaskState::Uninterruptible, true, None, true, Arch::X86_64), Class::Io);
        assert_eq!(Class::of(TaskState::Idle, false, None, true, Arch::X86_64), Class::Stopped);
    }
}
