//! From a trace to text.

use std::collections::HashSet;
use std::fmt::Write;

use super::parse::{FLAGS, idle};
use crate::event::{Event, IrqKind, Kind, OwnerQuality, SampleMode, SeedState, Syscall, Waker};
use crate::ids::{Cpu, LockId, StackId, SymbolId, TaskId, TimeNs};
use crate::memory::Trace;
use crate::tables::{Tables, Task, TaskKind};

/// Writes a trace in its text form. [`super::parse`] reads it back: the same events, and tables that differ at most in their order
/// and in rows that nothing refers to.
pub fn print(trace: &Trace) -> String {
    let printer = Printer::new(&trace.tables);
    let mut out = String::new();
    // writing to a string cannot fail
    let _ = printer.definitions(&mut out);
    for event in &trace.events {
        let _ = printer.event(&mut out, event);
    }
    out
}

type Result = std::fmt::Result;

struct Printer<'a> {
    tables: &'a Tables,
    tasks: Vec<String>,
    locks: Vec<String>,
}

impl<'a> Printer<'a> {
    fn new(tables: &'a Tables) -> Printer<'a> {
        let mut seen = HashSet::new();
        let tasks = tables.tasks.iter().map(|task| match task.kind {
            TaskKind::Idle(cpu) => format!("idle{}", cpu.0),
            _ => {
                let name = task.names.first().map_or("", |n| tables.str(n.name));
                unique(&mut seen, &format!("{}.{}", word(name, "task"), task.tid))
            }
        });
        let tasks = tasks.collect();
        let mut seen = HashSet::new();
        let locks = tables.locks.iter().map(|lock| {
            let class = lock.class.map_or(lock.kind.name(), |c| tables.str(c));
            unique(&mut seen, &word(class, lock.kind.name()))
        });
        let locks = locks.collect();
        Printer { tables, tasks, locks }
    }

    fn definitions(&self, out: &mut String) -> Result {
        let meta = &self.tables.meta;
        let list = |cpus: &[Cpu]| cpus.iter().map(|c| c.0.to_string()).collect::<Vec<_>>().join(",");
        write!(out, "meta machine={} kernel={}", quoted(&meta.machine), quoted(&meta.kernel))?;
        write!(out, " arch={} hz={}", quoted(&meta.arch), meta.hz)?;
        write!(out, " realtime_offset_ns={}", meta.realtime_offset_ns)?;
        write!(out, " online={} allowed={}", list(&meta.online), list(&meta.allowed))?;
        for (name, value) in &meta.options {
            write!(out, " {} {}", quoted(name), quoted(value))?;
        }
        let sum = &self.tables.summary;
        write!(out, "\nsummary lost_events={} lost_stacks={}", sum.lost_events, sum.lost_stacks)?;
        writeln!(out, " truncated_names={} reordered={}", sum.truncated_names, sum.reordered)?;
        for (i, task) in self.tables.tasks.iter().enumerate() {
            if !matches!(task.kind, TaskKind::Idle(_)) {
                self.task(out, i, task)?;
            }
        }
        for (i, lock) in self.tables.locks.iter().enumerate() {
            write!(out, "lock {} {} address={:#x}", self.locks[i], lock.kind.name(), lock.address)?;
            if let Some(class) = lock.class {
                write!(out, " class={}", quoted(self.tables.str(class)))?;
            }
            if let Some(object) = lock.object {
                write!(out, " object={}", quoted(self.tables.str(object)))?;
            }
            if let Some(process) = lock.process {
                write!(out, " process={}", self.name(process))?;
            }
            out.push('\n');
        }
        for (i, frames) in self.tables.stacks.iter().enumerate() {
            write!(out, "stack s{i}")?;
            for frame in frames {
                write!(out, " {}", self.symbol(*frame))?;
            }
            out.push('\n');
        }
        Ok(())
    }

    fn task(&self, out: &mut String, index: usize, task: &Task) -> Result {
        let handle = &self.tasks[index];
        write!(out, "task {handle} tid={} tgid={}", task.tid, task.tgid)?;
        if task.kind == TaskKind::Kernel {
            out.push_str(" kernel");
        }
        if task.in_scope {
            out.push_str(" scope");
        }
        // a parent that is defined later cannot be referred to yet
        if let Some(parent) = task.parent.filter(|p| p.index() < index) {
            write!(out, " parent={}", self.name(parent))?;
        }
        if task.start != TimeNs(0) {
            write!(out, " start={}", micros(task.start.0))?;
        }
        match task.names.first() {
            None => out.push_str(" nameless"),
            Some(first) => {
                write!(out, " name={}", quoted(self.tables.str(first.name)))?;
                if first.from != TimeNs(0) {
                    write!(out, " named={}", micros(first.from.0))?;
                }
            }
        }
        if let Some(command) = task.command {
            write!(out, " command={}", quoted(self.tables.str(command)))?;
        }
        if let Some(cgroup) = task.cgroup {
            write!(out, " cgroup={}", quoted(self.tables.cgroup_path(cgroup)))?;
        }
        out.push('\n');
        for name in task.names.iter().skip(1) {
            let text = quoted(self.tables.str(name.name));
            writeln!(out, "name {handle} {} {text}", micros(name.from.0))?;
        }
        if let Some(exit) = task.exit {
            writeln!(out, "ended {handle} {} {}", micros(exit.time.0), exit.status)?;
        }
        Ok(())
    }

    fn name(&self, task: TaskId) -> &str {
        self.tasks.get(task.index()).map_or("?", |t| t)
    }

    fn lock(&self, lock: LockId) -> &str {
        self.locks.get(lock.index()).map_or("?", |l| l)
    }

    fn symbol(&self, symbol: SymbolId) -> String {
        let name = self.tables.symbol_name(symbol);
        match self.tables.symbol(symbol).and_then(|s| s.module) {
            Some(module) => quoted(&format!("{name}@{}", self.tables.str(module))),
            None => quoted(name),
        }
    }

    fn event(&self, out: &mut String, event: &Event) -> Result {
        write!(out, "{} {} ", micros(event.time.0), event.cpu)?;
        self.kind(out, &event.kind)?;
        out.push('\n');
        Ok(())
    }

    fn kind(&self, out: &mut String, kind: &Kind) -> Result {
        match *kind {
            Kind::WindowStart => write!(out, "window start"),
            Kind::WindowEnd => write!(out, "window end"),
            Kind::Seed { task, state, lock } => {
                write!(out, "seed {} ", self.name(task))?;
                match state {
                    SeedState::Running => out.push_str("running"),
                    SeedState::Runnable => out.push_str("runnable"),
                    SeedState::Blocked { state, iowait, syscall } => {
                        write!(out, "blocked {}", state.letter())?;
                        out.push_str(if iowait { " io" } else { "" });
                        call(out, syscall)?;
                    }
                }
                lock.map_or(Ok(()), |l| write!(out, " on={}", self.lock(l)))
            }
            Kind::Switch { prev, next, prev_state, preempt, iowait, syscall } => {
                let letter = prev_state.letter();
                write!(out, "switch {} -> {} {letter}", self.name(prev), self.name(next))?;
                out.push_str(if preempt { " preempt" } else { "" });
                out.push_str(if iowait { " io" } else { "" });
                call(out, syscall)
            }
            Kind::Waking { waker, wakee, target, stack } => {
                let waker = match waker {
                    Waker::Task(task) => self.name(task),
                    Waker::Interrupt => "irq",
                    Waker::Unknown => "?",
                };
                write!(out, "wake {waker} -> {} cpu={}", self.name(wakee), target.0)?;
                stacks(out, &[("stack", stack)])
            }
            Kind::ContentionBegin { task, lock, flags, owner, quality } => {
                write!(out, "begin {} {}", self.name(task), self.lock(lock))?;
                for (bit, name) in FLAGS {
                    if flags.contains(bit) {
                        write!(out, " {name}")?;
                    }
                }
                self.owner(out, owner, quality)
            }
            Kind::ContentionEnd { task, lock, ret } => {
                write!(out, "end {} {}", self.name(task), self.lock(lock))?;
                if ret != 0 { write!(out, " ret={ret}") } else { Ok(()) }
            }
            Kind::BlockedOn { task, lock } => {
                write!(out, "blocked {} {}", self.name(task), self.lock(lock))
            }
            Kind::IoDone { task, device, issued, done } => {
                write!(out, "iodone {} {}", self.name(task), self.lock(device))?;
                issued.map_or(Ok(()), |at| write!(out, " issued={}", micros(at.0)))?;
                write!(out, " done={}", micros(done.0))
            }
            Kind::Owner { lock, owner, quality } => {
                write!(out, "owner {}", self.lock(lock))?;
                self.owner(out, owner, quality)
            }
            Kind::Acquired { task, lock } => {
                write!(out, "acquire {} {}", self.name(task), self.lock(lock))
            }
            Kind::Released { task, lock } => {
                write!(out, "release {} {}", self.name(task), self.lock(lock))
            }
            Kind::WaitStack { task, lock, kernel, user, weight_ns } => {
                write!(out, "waitstack {}", self.name(task))?;
                if let Some(lock) = lock {
                    write!(out, " lock={}", self.lock(lock))?;
                }
                stacks(out, &[("kernel", kernel), ("user", user)])?;
                write!(out, " weight={}", micros(weight_ns))
            }
            Kind::Sample { task, mode, kernel, user, weight_ns } => {
                let mode = match mode {
                    SampleMode::User => "user",
                    SampleMode::Kernel => "kernel",
                    SampleMode::Interrupt => "irq",
                };
                write!(out, "sample {} {mode}", self.name(task))?;
                stacks(out, &[("kernel", kernel), ("user", user)])?;
                write!(out, " weight={}", micros(weight_ns))
            }
            Kind::Fork { parent, child } => {
                write!(out, "fork {} -> {}", self.name(parent), self.name(child))
            }
            Kind::Exec { task, name } => {
                write!(out, "exec {}", self.name(task))?;
                name.map_or(Ok(()), |n| write!(out, " name={}", quoted(self.tables.str(n))))
            }
            Kind::Exit { task, status } => write!(out, "exit {} {status}", self.name(task)),
            Kind::WorkStart { task, function } => {
                let function = quoted(self.tables.symbol_name(function));
                write!(out, "work {} {function}", self.name(task))
            }
            Kind::WorkEnd { task } => write!(out, "workend {}", self.name(task)),
            Kind::IrqEnter { irq, number } => write!(out, "irq enter {} {number}", interrupt(irq)),
            Kind::IrqExit { irq, number } => write!(out, "irq exit {} {number}", interrupt(irq)),
            Kind::Throttle { cgroup, count, throttled_ns } => {
                let path = quoted(self.tables.cgroup_path(cgroup));
                write!(out, "throttle {path} count={count} us={}", micros(throttled_ns))
            }
            Kind::HeldBack { task, cgroup } => {
                write!(out, "heldback {}", self.name(task))?;
                let path = cgroup.map(|c| quoted(self.tables.cgroup_path(c)));
                path.map_or(Ok(()), |path| write!(out, " cgroup={path}"))
            }
            Kind::Lost { count, from } => {
                write!(out, "lost count={count} from={}", micros(from.0))
            }
        }
    }

    fn owner(&self, out: &mut String, owner: Option<TaskId>, quality: OwnerQuality) -> Result {
        let key = match quality {
            OwnerQuality::None => return Ok(()),
            OwnerQuality::Owner => "owner",
            OwnerQuality::Reader => "reader",
            OwnerQuality::LastHolder => "last",
        };
        owner.map_or(Ok(()), |o| write!(out, " {key}={}", self.name(o)))
    }
}

fn stacks(out: &mut String, stacks: &[(&str, Option<StackId>)]) -> Result {
    for (key, stack) in stacks {
        if let Some(stack) = stack {
            write!(out, " {key}=s{}", stack.index())?;
        }
    }
    Ok(())
}

fn call(out: &mut String, syscall: Option<Syscall>) -> Result {
    syscall.map_or(Ok(()), |s| write!(out, " syscall={}", s.number()))
}

fn interrupt(irq: IrqKind) -> &'static str {
    match irq {
        IrqKind::Hard => "hard",
        IrqKind::Soft => "soft",
        IrqKind::Vector => "vector",
    }
}

fn micros(ns: u64) -> String {
    let text = format!("{}.{:03}", ns / 1000, ns % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A text as one word of a line.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-./:+@[]()<>,*&~$;".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A text as a handle: without blanks and signs that mean something.
fn word(text: &str, otherwise: &str) -> String {
    let keep = |c: char| if c.is_ascii_alphanumeric() || "_-./:".contains(c) { c } else { '_' };
    let word: String = text.chars().map(keep).collect();
    if word.is_empty() || idle(&word).is_some() || word == "irq" { otherwise.to_owned() } else { word }
}

fn unique(seen: &mut HashSet<String>, wanted: &str) -> String {
    let mut name = wanted.to_owned();
    let mut n = 1;
    while !seen.insert(name.clone()) {
        n += 1;
        name = format!("{wanted}~{n}");
    }
    name
}
