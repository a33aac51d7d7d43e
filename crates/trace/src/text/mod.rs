//! The text form of a trace: one event a line, for hand-written test cases and bug reports.
//!
//! Definitions first (or anywhere before their use), then events. `#` begins a comment, words with blanks are put in double quotes.
//!
//! ```text
//! meta kernel=6.18 hz=250 allowed=0,1
//! task A scope name=cc command="cc -c x.c"     # tid, tgid, parent, start, cgroup, kernel, … are optional
//! task K kernel name=kworker/0:1
//! name A 250 as                                # the name that A has from 250 us on
//! lock agi semaphore class=xfs_buf.b_sema object="AGI of AG 0 on loop0"
//! stack s down xfs_buf_lock xfs_create         # leaf first
//!
//! 0      cpu0  window start                    # microseconds, up to three decimals
//! 0      cpu0  seed A running
//! 0      cpu1  seed K blocked D on=agi
//! 100    cpu0  begin A agi last=K
//! 101.5  cpu0  switch A -> idle0 D
//! 200    cpu1  wake K -> A
//! 203    cpu0  switch idle0 -> A R
//! 203    cpu0  end A agi
//! 203    cpu0  waitstack A lock=agi kernel=s weight=103
//! 300    cpu0  sample A kernel kernel=s weight=1000
//! 400    cpu0  window end
//! ```
//!
//! | event | written |
//! | --- | --- |
//! | window start, end | `window start`, `window end` |
//! | seed | `seed A running`, `seed A runnable`, `seed A blocked D [io] [syscall=N] [on=LOCK]` |
//! | switch | `switch A -> B STATE [preempt] [io] [syscall=N]`, STATE being A's |
//! | waking | `wake WAKER -> A [cpu=N] [stack=S]`, WAKER being a task, `irq` or `?` |
//! | contention | `begin A LOCK [spin] [read] [write] [rt] [percpu] [mutex] [owner=B \| reader=B \| last=B]`, `end A LOCK [ret=N]` |
//! | a device is done | `iodone A DEVICE [issued=US] done=US`: it is what wakes A next |
//! | blocked on, owner | `blocked A LOCK`, `owner LOCK [owner=B \| reader=B \| last=B]` |
//! | buffer locks | `acquire A LOCK`, `release A LOCK` |
//! | stack of a wait | `waitstack A [lock=LOCK] [kernel=S] [user=S] weight=US` |
//! | sample | `sample A user\|kernel\|irq [kernel=S] [user=S] weight=US` |
//! | tasks | `fork A -> B`, `exec A [name=NAME]`, `exit A STATUS` |
//! | work items | `work A FUNCTION`, `workend A` |
//! | interrupts | `irq enter\|exit hard\|soft\|vector N` |
//! | throttling | `throttle CGROUP count=N us=US` |
//! | lost events | `lost count=N from=US` |

mod parse;
mod print;

pub use parse::parse;
pub use print::print;
