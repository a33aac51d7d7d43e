//! Roots: the last waits of the chains, what they cost, and what would win it back.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Kind of a lock, or of a root that is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RootKind {
    /// Counting semaphore.
    Semaphore,
    /// Mutex.
    Mutex,
    /// Read-write semaphore, taken for reading or writing.
    Rwsem,
    /// Read-write semaphore, waiting to read.
    RwsemRead,
    /// Read-write semaphore, waiting to write.
    RwsemWrite,
    /// Spin lock.
    Spinlock,
    /// Read-write spin lock.
    Rwlock,
    /// Per-CPU read-write semaphore.
    PercpuRwsem,
    /// Real-time mutex.
    RtMutex,
    /// User-space lock through a futex.
    Futex,
    /// A lock of a kind that could not be told.
    Lock,
    /// Waiting for a device.
    Io,
    /// Sleeping for a time.
    Sleep,
    /// Waiting for the other end of a pipe or socket.
    Pipe,
    /// Waiting for a child.
    Child,
    /// Runnable, but held back by a quota.
    Throttled,
    /// Woken or chosen, not yet running.
    WakeUp,
    /// Nothing else could run until the running task ends.
    Serial,
    /// There was no work.
    NothingToRun,
    /// Anything else, and kinds that this version does not know.
    #[default]
    #[serde(other)]
    Other,
}

impl RootKind {
    /// The words that reports use.
    pub fn words(self) -> &'static str {
        match self {
            Self::Semaphore => "semaphore",
            Self::Mutex => "mutex",
            Self::Rwsem => "rw-semaphore",
            Self::RwsemRead => "rw-semaphore (read)",
            Self::RwsemWrite => "rw-semaphore (write)",
            Self::Spinlock => "spin lock",
            Self::Rwlock => "rw-lock",
            Self::PercpuRwsem => "per-CPU rw-semaphore",
            Self::RtMutex => "rt-mutex",
            Self::Futex => "futex",
            Self::Lock => "lock",
            Self::Io => "io",
            Self::Sleep => "sleep",
            Self::Pipe => "pipe",
            Self::Child => "child",
            Self::Throttled => "throttled",
            Self::WakeUp => "wake-up",
            Self::Serial => "serial",
            Self::NothingToRun => "nothing to run",
            Self::Other => "other",
        }
    }

    /// Whether this is a lock.
    pub fn is_lock(self) -> bool {
        matches!(
            self,
            Self::Semaphore
                | Self::Mutex
                | Self::Rwsem
                | Self::RwsemRead
                | Self::RwsemWrite
                | Self::Spinlock
                | Self::Rwlock
                | Self::PercpuRwsem
                | Self::RtMutex
                | Self::Futex
                | Self::Lock
        )
    }
}

/// What a root is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Lock {
    /// Kind of the lock, or what it is instead.
    pub kind: RootKind,
    /// Lock class: `xfs_buf.b_sema`; for other kinds what is waited for: `reads on nvme0n1`.
    pub class: String,
    /// Lock object: `AGI of AG 0 on loop0`; null when it is not known or there is none.
    pub object: Option<String>,
}

/// One root: a wait that waits for no other lock.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Root {
    /// What is waited for.
    pub lock: Lock,
    /// Idle time charged to it (captured share times uncaptured idle time), CPU-us per operation; null without operations.
    pub idle_us_per_op: Option<f64>,
    /// Idle time charged to it in the recording, CPU-seconds; null for `run`.
    pub idle_cpu_s: Option<f64>,
    /// Its share of the idle time, 0 to 1; null when nothing was idle.
    pub share_of_idle: Option<f64>,
    /// Time that tasks waited for it, us per operation; null without operations.
    pub wait_us_per_op: Option<f64>,
    /// Time that tasks waited for it in the captured windows, seconds.
    pub wait_s: Option<f64>,
    /// Number of waits in the captured windows.
    pub waits: Option<u64>,
    /// The wait by what the holder did meanwhile; null when it is no lock.
    pub split: Option<Split>,
    /// Spinning charged to it, CPU-us per operation; null when not sampled.
    pub spin_us_per_op: Option<f64>,
    /// The wait costs no idle time now, because other tasks had work: what a larger machine would lose.
    pub latent: bool,
    /// Capture changed the behaviour too much for the shares to be trusted.
    pub disturbed: bool,
    /// Where it is waited for, most first.
    pub paths: Vec<Path>,
    /// Who had it meanwhile, most first.
    pub holders: Vec<Holder>,
    /// Locks whose waiters wait for holders that are asleep in this root.
    pub waits_through: Vec<WaitThrough>,
    /// When it happened, as text (`at 34.2–40.3 s`); null when it is spread over the window.
    pub when: Option<String>,
}

/// A wait by what the holder did meanwhile: shares of the wait, 0 to 1, that add up to 1.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Split {
    /// The holder ran.
    pub holder_running: f64,
    /// The holder waited for something else.
    pub holder_blocked: f64,
    /// The holder waited for a CPU.
    pub holder_runnable: f64,
    /// The next holder was chosen or woken and did not run yet; the sum of the next two.
    pub hand_off: f64,
    /// … and the CPU on which it then ran was idle.
    pub hand_off_cpu_idle: f64,
    /// … and the CPU on which it then ran was busy.
    pub hand_off_cpu_busy: f64,
    /// Not known.
    pub unknown: f64,
}

/// A stack on which a root is waited for.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Path {
    /// Frames, innermost first.
    pub stack: Vec<String>,
    /// Its share of the root's wait, 0 to 1.
    pub share: f64,
    /// System call or kind of worker by which it was entered: `unlink`, `create`, `worker`; null when not known.
    pub entry: Option<String>,
}

/// Who had the lock meanwhile.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Holder {
    /// Command of the holder.
    pub comm: String,
    /// Its share of the root's wait, 0 to 1.
    pub share: f64,
    /// Whether it is a task of the workload; null when not known.
    pub of_workload: Option<bool>,
    /// What it ran under the lock, most first.
    pub stacks: Vec<Path>,
}

/// A lock whose waiters wait for a holder that is asleep in the root.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct WaitThrough {
    /// Kind of the lock.
    pub kind: RootKind,
    /// Lock class.
    pub class: String,
    /// Lock object; null when not known.
    pub object: Option<String>,
    /// Time that tasks wait there, us per operation; null without operations.
    pub wait_us_per_op: Option<f64>,
    /// Time that tasks waited there in the captured windows, seconds.
    pub wait_s: Option<f64>,
}

/// How a remedy's effect is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RemedyHow {
    /// perfloss ran the variant.
    Measured,
    /// By the model, with its error.
    Predicted,
    /// The split speaks for it, its effect is not known.
    #[default]
    #[serde(other)]
    NotKnown,
}

/// What would win the loss back.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Remedy {
    /// What to do: `own directory per task`.
    pub what: String,
    /// How its effect is known.
    pub how: RemedyHow,
    /// Throughput with it, operations a second; null when not known.
    pub ops_per_s: Option<f64>,
    /// Throughput with it over throughput without; null when not known.
    pub gain: Option<f64>,
    /// Lower end of the gain's interval.
    pub low: Option<f64>,
    /// Upper end of the gain's interval.
    pub high: Option<f64>,
    /// What the root it speaks for: class of the lock; null when it is for the point as a whole.
    pub root: Option<String>,
    /// One line of explanation: `no help alone, one directory means one allocation group`.
    pub note: Option<String>,
}
