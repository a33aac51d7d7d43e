//! The processes of one round.
//!
//! ```text
//! perfloss ── guard ── supervisor ── host ── tasks
//! ```
//!
//! - The **guard** stays in the machine's namespaces. When perfloss goes away (however it ends: the pipe between them closes)
//!   the guard kills the supervisor, and removes what was created in directories of the machine.
//! - The **supervisor** is the first process of a PID namespace and alone in a mount namespace; it dies with the guard
//!   (PDEATHSIG), and with it the kernel ends every process of the round, and every mount and loop device. It makes
//!   the target, opens the gate, measures, and ends the tasks.
//! - The **host** prepares the workload and forks (or spawns) the tasks, so that a C test case which crashes in its
//!   preparation takes nobody else along.
//!
//! So there is no moment at which a SIGKILL of perfloss, or of the guard, leaves anything. Without privileges there are no namespaces;
//! then PDEATHSIG and subreapers do what they can, and the result says that it is not guaranteed.

mod guard;
mod host;
mod supervisor;
mod sweep;

pub use guard::run as run_stage;
