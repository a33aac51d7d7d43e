//! From text to a trace.

use std::collections::HashMap;

use crate::builder::Builder;
use crate::error::Error;
use crate::event::{
    ContentionFlags, IrqKind, Kind, OwnerQuality, SampleMode, SeedState, Syscall, TaskState, Waker,
};
use crate::ids::{Cpu, LockId, StackId, TaskId, TimeNs};
use crate::memory::Trace;
use crate::tables::{Lock, LockKind, Meta, Name, Task, TaskExit, TaskKind};

/// Reads the text form of a trace.
///
/// # Errors
/// [`Error::Text`] with the line and what is wrong with it.
pub fn parse(text: &str) -> Result<Trace, Error> {
    let mut parser = Parser {
        builder: Builder::new(Meta::default()),
        tasks: HashMap::new(),
        locks: HashMap::new(),
        stacks: HashMap::new(),
        last: TimeNs(0),
    };
    for (i, line) in text.lines().enumerate() {
        let wrong = |what: String| Error::Text { line: i + 1, what };
        let words = words(line).map_err(wrong)?;
        if !words.is_empty() {
            parser.line(&words).map_err(wrong)?;
        }
    }
    Ok(parser.builder.into_trace())
}

/// A word of a line; `key=value` is split.
#[derive(Debug)]
struct Word {
    key: Option<String>,
    text: String,
}

/// Splits a line into words; quotes hold blanks together, `#` ends the line.
fn words(line: &str) -> Result<Vec<Word>, String> {
    let mut words = Vec::new();
    let mut chars = line.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        let mut word = Word { key: None, text: String::new() };
        match chars.peek() {
            None | Some('#') => return Ok(words),
            Some(_) => {}
        }
        let mut quoted = false;
        while let Some(&c) = chars.peek() {
            if c.is_whitespace() {
                break;
            }
            chars.next();
            match c {
                '"' => {
                    quoted = true;
                    quoted_text(&mut chars, &mut word.text)?;
                }
                '=' if word.key.is_none() && !quoted && is_key(&word.text) => {
                    word.key = Some(std::mem::take(&mut word.text));
                }
                c => word.text.push(c),
            }
        }
        words.push(word);
    }
}

fn is_key(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c == '_')
}

fn quoted_text(chars: &mut impl Iterator<Item = char>, out: &mut String) -> Result<(), String> {
    loop {
        match chars.next() {
            None => return Err("a quote is not closed".into()),
            Some('"') => return Ok(()),
            Some('\\') => match chars.next() {
                Some('n') => out.push('\n'),
                Some('r') => out.push('\r'),
                Some(c) => out.push(c),
                None => return Err("a quote is not closed".into()),
            },
            Some(c) => out.push(c),
        }
    }
}

/// Microseconds with at most three decimals, as nanoseconds.
fn micros(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a time in microseconds");
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > 3 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let fraction: u64 = format!("{fraction:0<3}").parse().map_err(|_| wrong())?;
    whole.checked_mul(1000).and_then(|ns| ns.checked_add(fraction)).ok_or_else(wrong)
}

fn parsed<T: std::str::FromStr>(text: &str, what: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is not {what}"))
}

/// The words of a line after its verb, taken one after the other.
struct Args<'a> {
    words: &'a [Word],
    used: Vec<bool>,
}

impl<'a> Args<'a> {
    fn new(words: &'a [Word]) -> Args<'a> {
        Args { words, used: vec![false; words.len()] }
    }

    /// The next word that is not `key=value`.
    fn next(&mut self, what: &str) -> Result<&'a str, String> {
        let free = |(i, w): &(usize, &Word)| w.key.is_none() && !self.used[*i];
        let (i, word) =
            self.words.iter().enumerate().find(free).ok_or_else(|| format!("{what} is missing"))?;
        self.used[i] = true;
        Ok(&word.text)
    }

    fn expect(&mut self, text: &str) -> Result<(), String> {
        match self.next(&format!("`{text}`"))? {
            found if found == text => Ok(()),
            found => Err(format!("`{text}` expected, not `{found}`")),
        }
    }

    /// Whether the word `flag` is there.
    fn flag(&mut self, flag: &str) -> bool {
        let free = |(i, w): (usize, &Word)| w.key.is_none() && !self.used[i] && w.text == flag;
        let found = self.words.iter().enumerate().position(free);
        if let Some(i) = found {
            self.used[i] = true;
        }
        found.is_some()
    }

    /// The value of `key`, if it is there.
    fn value(&mut self, key: &str) -> Option<&'a str> {
        let i = self.words.iter().position(|w| w.key.as_deref() == Some(key))?;
        self.used[i] = true;
        Some(&self.words[i].text)
    }

    fn done(self) -> Result<(), String> {
        match self.used.iter().position(|used| !used) {
            None => Ok(()),
            Some(i) => {
                let word = &self.words[i];
                let key = word.key.as_ref().map(|k| format!("{k}=")).unwrap_or_default();
                Err(format!("`{key}{}` does not belong here", word.text))
            }
        }
    }
}

struct Parser {
    builder: Builder,
    tasks: HashMap<String, TaskId>,
    locks: HashMap<String, LockId>,
    stacks: HashMap<String, StackId>,
    last: TimeNs,
}

impl Parser {
    fn line(&mut self, words: &[Word]) -> Result<(), String> {
        let (first, rest) = (&words[0], &words[1..]);
        if first.key.is_some() {
            return Err(format!("a line cannot begin with `{}=`", first.key.as_deref().unwrap_or("")));
        }
        if first.text.starts_with(|c: char| c.is_ascii_digit()) {
            return self.event(&first.text, rest);
        }
        let mut args = Args::new(rest);
        match first.text.as_str() {
            "meta" => self.meta(&mut args)?,
            "summary" => self.summary(&mut args)?,
            "task" => self.define_task(&mut args)?,
            "name" => {
                let task = self.task(args.next("a task")?)?;
                let from = TimeNs(micros(args.next("a time")?)?);
                let name = args.next("a name")?;
                self.builder.rename_task(task, from, name);
            }
            "ended" => {
                let task = self.task(args.next("a task")?)?;
                let time = TimeNs(micros(args.next("a time")?)?);
                let status = parsed(args.next("a status")?, "a status")?;
                self.builder.change_task(task, |t| t.exit = Some(TaskExit { time, status }));
            }
            "lock" => self.define_lock(&mut args)?,
            "stack" => {
                let handle = args.next("a name for the stack")?;
                let mut frames = Vec::new();
                while let Ok(frame) = args.next("a frame") {
                    let (name, module) = match frame.split_once('@') {
                        Some((name, module)) => (name, Some(module)),
                        None => (frame, None),
                    };
                    frames.push(self.builder.symbol(name, module));
                }
                let stack = self.builder.stack(&frames);
                self.stacks.insert(handle.to_owned(), stack);
            }
            other => return Err(format!("`{other}` is neither a definition nor a time")),
        }
        args.done()
    }

    fn meta(&mut self, args: &mut Args<'_>) -> Result<(), String> {
        let cpus = |list: &str| -> Result<Vec<Cpu>, String> {
            let numbers = list.split(',').filter(|c| !c.is_empty());
            numbers.map(|c| Ok(Cpu(parsed(c, "a CPU")?))).collect()
        };
        let meta = self.builder.meta_mut();
        if let Some(machine) = args.value("machine") {
            meta.machine = machine.to_owned();
        }
        if let Some(kernel) = args.value("kernel") {
            meta.kernel = kernel.to_owned();
        }
        if let Some(arch) = args.value("arch") {
            meta.arch = arch.to_owned();
        }
        if let Some(hz) = args.value("hz") {
            meta.hz = parsed(hz, "a number")?;
        }
        if let Some(offset) = args.value("realtime_offset_ns") {
            meta.realtime_offset_ns = parsed(offset, "a number")?;
        }
        if let Some(list) = args.value("online") {
            meta.online = cpus(list)?;
        }
        if let Some(list) = args.value("allowed") {
            meta.allowed = cpus(list)?;
        }
        // further options of the capture come as pairs of words
        while let Ok(name) = args.next("an option") {
            meta.options.push((name.to_owned(), args.next("the option's value")?.to_owned()));
        }
        Ok(())
    }

    fn summary(&mut self, args: &mut Args<'_>) -> Result<(), String> {
        let mut number = |key| args.value(key).map_or(Ok(0), |n| parsed(n, "a number"));
        let summary = self.builder.summary_mut();
        summary.lost_events = number("lost_events")?;
        summary.lost_stacks = number("lost_stacks")?;
        summary.truncated_names = number("truncated_names")?;
        summary.reordered = number("reordered")?;
        Ok(())
    }

    fn define_task(&mut self, args: &mut Args<'_>) -> Result<(), String> {
        let handle = args.next("a name for the task")?;
        if self.tasks.contains_key(handle) || matches!(handle, "irq" | "?") || idle(handle).is_some() {
            return Err(format!("`{handle}` cannot be the name of another task"));
        }
        let number = |text: Option<&str>, otherwise: u32| match text {
            Some(text) => parsed(text, "a number"),
            None => Ok(otherwise),
        };
        let tid = number(args.value("tid"), 1000 + self.tasks.len() as u32)?;
        let tgid = number(args.value("tgid"), tid)?;
        let name = args.value("name").unwrap_or(handle);
        let name = self.builder.str(name);
        let from = TimeNs(args.value("named").map_or(Ok(0), micros)?);
        let task = Task {
            tid,
            tgid,
            kind: if args.flag("kernel") { TaskKind::Kernel } else { TaskKind::User },
            parent: args.value("parent").map(|p| self.task(p)).transpose()?,
            in_scope: args.flag("scope"),
            start: TimeNs(args.value("start").map_or(Ok(0), micros)?),
            names: if args.flag("nameless") { Vec::new() } else { vec![Name { from, name }] },
            command: args.value("command").map(|c| self.builder.str(c)),
            cgroup: args.value("cgroup").map(|c| self.builder.cgroup(c)),
            exit: None,
        };
        let id = self.builder.add_task(task);
        self.tasks.insert(handle.to_owned(), id);
        Ok(())
    }

    fn define_lock(&mut self, args: &mut Args<'_>) -> Result<(), String> {
        let handle = args.next("a name for the lock")?;
        if self.locks.contains_key(handle) {
            return Err(format!("there is a lock `{handle}` already"));
        }
        let kind = args.next("the kind of the lock")?;
        let kind = LockKind::from_name(kind).ok_or_else(|| format!("there is no kind `{kind}`"))?;
        let address = args.value("address").unwrap_or("0x0");
        let hex = address.strip_prefix("0x").unwrap_or(address);
        let lock = Lock {
            kind,
            address: u64::from_str_radix(hex, 16).map_err(|_| format!("`{address}` is no address"))?,
            class: args.value("class").map(|c| self.builder.str(c)),
            object: args.value("object").map(|o| self.builder.str(o)),
            process: args.value("process").map(|p| self.task(p)).transpose()?,
        };
        let id = self.builder.add_lock(lock);
        self.locks.insert(handle.to_owned(), id);
        Ok(())
    }

    fn task(&mut self, handle: &str) -> Result<TaskId, String> {
        if let Some(cpu) = idle(handle) {
            return Ok(self.builder.idle_task(cpu));
        }
        self.tasks.get(handle).copied().ok_or_else(|| format!("there is no task `{handle}`"))
    }

    fn lock(&self, handle: &str) -> Result<LockId, String> {
        self.locks.get(handle).copied().ok_or_else(|| format!("there is no lock `{handle}`"))
    }

    fn stack(&self, args: &mut Args<'_>, key: &str) -> Result<Option<StackId>, String> {
        let find = |handle: &str| {
            self.stacks.get(handle).copied().ok_or_else(|| format!("there is no stack `{handle}`"))
        };
        args.value(key).map(find).transpose()
    }

    fn owner(&mut self, args: &mut Args<'_>) -> Result<(Option<TaskId>, OwnerQuality), String> {
        for (key, quality) in [
            ("owner", OwnerQuality::Owner),
            ("reader", OwnerQuality::Reader),
            ("last", OwnerQuality::LastHolder),
        ] {
            if let Some(handle) = args.value(key) {
                return Ok((Some(self.task(handle)?), quality));
            }
        }
        Ok((None, OwnerQuality::None))
    }

    fn event(&mut self, time: &str, words: &[Word]) -> Result<(), String> {
        let time = TimeNs(micros(time)?);
        if time < self.last {
            return Err("the time is earlier than the line before".into());
        }
        self.last = time;
        let mut args = Args::new(words);
        let cpu = args.next("a CPU")?;
        let number = cpu.strip_prefix("cpu").unwrap_or("");
        let cpu = Cpu(number.parse().map_err(|_| format!("`{cpu}` is not a CPU (cpu0, cpu1, …)"))?);
        let kind = self.kind(&mut args)?;
        args.done()?;
        self.builder.event(time, cpu, kind);
        Ok(())
    }

    fn kind(&mut self, args: &mut Args<'_>) -> Result<Kind, String> {
        let verb = args.next("what happened")?;
        Ok(match verb {
            "window" => match args.next("start or end")? {
                "start" => Kind::WindowStart,
                "end" => Kind::WindowEnd,
                other => return Err(format!("a window starts or ends; it does not `{other}`")),
            },
            "seed" => {
                let task = self.task(args.next("a task")?)?;
                let state = match args.next("running, runnable or blocked")? {
                    "running" => SeedState::Running,
                    "runnable" => SeedState::Runnable,
                    "blocked" => SeedState::Blocked {
                        state: state(args)?,
                        iowait: args.flag("io"),
                        syscall: syscall(args)?,
                    },
                    other => return Err(format!("`{other}` is not a state to seed")),
                };
                let lock = args.value("on").map(|l| self.lock(l)).transpose()?;
                Kind::Seed { task, state, lock }
            }
            "switch" => {
                let prev = self.task(args.next("a task")?)?;
                args.expect("->")?;
                let next = self.task(args.next("a task")?)?;
                let preempt = args.flag("preempt");
                let iowait = args.flag("io");
                let syscall = syscall(args)?;
                Kind::Switch { prev, next, prev_state: state(args)?, preempt, iowait, syscall }
            }
            "wake" => {
                let waker = match args.next("a waker")? {
                    "irq" => Waker::Interrupt,
                    "?" => Waker::Unknown,
                    task => Waker::Task(self.task(task)?),
                };
                args.expect("->")?;
                let wakee = self.task(args.next("a task")?)?;
                let target = args.value("cpu").map_or(Ok(0), |c| parsed(c, "a CPU"))?;
                Kind::Waking { waker, wakee, target: Cpu(target), stack: self.stack(args, "stack")? }
            }
            "begin" => {
                let task = self.task(args.next("a task")?)?;
                let lock = self.lock(args.next("a lock")?)?;
                let mut flags = ContentionFlags::default();
                for (bit, name) in FLAGS {
                    if args.flag(name) {
                        flags.0 |= bit.0;
                    }
                }
                let (owner, quality) = self.owner(args)?;
                Kind::ContentionBegin { task, lock, flags, owner, quality }
            }
            "end" => Kind::ContentionEnd {
                task: self.task(args.next("a task")?)?,
                lock: self.lock(args.next("a lock")?)?,
                ret: args.value("ret").map_or(Ok(0), |n| parsed(n, "a number"))?,
            },
            "blocked" => Kind::BlockedOn {
                task: self.task(args.next("a task")?)?,
                lock: self.lock(args.next("a lock")?)?,
            },
            "iodone" => Kind::IoDone {
                task: self.task(args.next("a task")?)?,
                device: self.lock(args.next("a device")?)?,
                issued: args.value("issued").map(|t| micros(t).map(TimeNs)).transpose()?,
                done: TimeNs(micros(args.value("done").ok_or("done= is missing")?)?),
            },
            "owner" => {
                let lock = self.lock(args.next("a lock")?)?;
                let (owner, quality) = self.owner(args)?;
                Kind::Owner { lock, owner, quality }
            }
            "acquire" | "release" => {
                let task = self.task(args.next("a task")?)?;
                let lock = self.lock(args.next("a lock")?)?;
                match verb {
                    "acquire" => Kind::Acquired { task, lock },
                    _ => Kind::Released { task, lock },
                }
            }
            "waitstack" => Kind::WaitStack {
                task: self.task(args.next("a task")?)?,
                lock: args.value("lock").map(|l| self.lock(l)).transpose()?,
                kernel: self.stack(args, "kernel")?,
                user: self.stack(args, "user")?,
                weight_ns: micros(args.value("weight").ok_or("weight=… is missing")?)?,
            },
            "sample" => Kind::Sample {
                task: self.task(args.next("a task")?)?,
                mode: match args.next("a mode")? {
                    "user" => SampleMode::User,
                    "kernel" => SampleMode::Kernel,
                    "irq" => SampleMode::Interrupt,
                    other => return Err(format!("`{other}` is not user, kernel or irq")),
                },
                kernel: self.stack(args, "kernel")?,
                user: self.stack(args, "user")?,
                weight_ns: micros(args.value("weight").ok_or("weight=… is missing")?)?,
            },
            "fork" => {
                let parent = self.task(args.next("a task")?)?;
                args.expect("->")?;
                Kind::Fork { parent, child: self.task(args.next("a task")?)? }
            }
            "exec" => {
                let task = self.task(args.next("a task")?)?;
                let name = args.value("name").map(|name| self.builder.str(name));
                Kind::Exec { task, name }
            }
            "exit" => {
                let task = self.task(args.next("a task")?)?;
                let status = parsed(args.next("a status")?, "a status")?;
                Kind::Exit { task, status }
            }
            "work" => {
                let task = self.task(args.next("a task")?)?;
                let function = self.builder.symbol(args.next("a function")?, None);
                Kind::WorkStart { task, function }
            }
            "workend" => Kind::WorkEnd { task: self.task(args.next("a task")?)? },
            "irq" => {
                let enter = match args.next("enter or exit")? {
                    "enter" => true,
                    "exit" => false,
                    other => return Err(format!("`{other}` is not enter or exit")),
                };
                let irq = match args.next("the kind of interrupt")? {
                    "hard" => IrqKind::Hard,
                    "soft" => IrqKind::Soft,
                    "vector" => IrqKind::Vector,
                    other => return Err(format!("`{other}` is not hard, soft or vector")),
                };
                let number = parsed(args.next("a number")?, "a number")?;
                if enter { Kind::IrqEnter { irq, number } } else { Kind::IrqExit { irq, number } }
            }
            "throttle" => Kind::Throttle {
                cgroup: self.builder.cgroup(args.next("a control group")?),
                count: parsed(args.value("count").ok_or("count=… is missing")?, "a number")?,
                throttled_ns: micros(args.value("us").ok_or("us=… is missing")?)?,
            },
            "heldback" => {
                let task = self.task(args.next("a task")?)?;
                let cgroup = args.value("cgroup").map(|path| self.builder.cgroup(path));
                Kind::HeldBack { task, cgroup }
            }
            "lost" => Kind::Lost {
                count: parsed(args.value("count").ok_or("count=… is missing")?, "a number")?,
                from: TimeNs(micros(args.value("from").ok_or("from=… is missing")?)?),
            },
            other => return Err(format!("there is no event `{other}`")),
        })
    }
}

/// The contention flags and their names in text.
pub(super) const FLAGS: [(ContentionFlags, &str); 6] = [
    (ContentionFlags::SPIN, "spin"),
    (ContentionFlags::READ, "read"),
    (ContentionFlags::WRITE, "write"),
    (ContentionFlags::RT, "rt"),
    (ContentionFlags::PERCPU, "percpu"),
    (ContentionFlags::MUTEX, "mutex"),
];

/// The CPU of which `handle` names the idle task.
pub(super) fn idle(handle: &str) -> Option<Cpu> {
    handle.strip_prefix("idle").and_then(|n| n.parse().ok()).map(Cpu)
}

fn state(args: &mut Args<'_>) -> Result<TaskState, String> {
    let text = args.next("a state")?;
    let mut letters = text.chars();
    match (letters.next().and_then(TaskState::from_letter), letters.next()) {
        (Some(state), None) => Ok(state),
        _ => Err(format!("`{text}` is not a state (R, S, D, T, t, X, Z, P or I)")),
    }
}

fn syscall(args: &mut Args<'_>) -> Result<Option<Syscall>, String> {
    let Some(text) = args.value("syscall") else { return Ok(None) };
    let number: i64 = parsed(text, "a system call's number")?;
    Syscall::new(number).map(Some).ok_or_else(|| format!("`{text}` is not a system call's number"))
}
