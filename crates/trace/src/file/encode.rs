//! Records to bytes.

use super::{MAX_CPUS, MAX_FRAMES, MAX_NAMES, MAX_OPTIONS, MAX_STRING, tag};
use crate::event::{Event, Kind, SeedState, Syscall, TaskState, Waker};
use crate::ids::{Cpu, TimeNs};
use crate::tables::{Definition, Task, TaskKind};

/// Appends `value` as LEB128.
fn number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn signed(out: &mut Vec<u8>, value: i64) {
    number(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// The longest beginning of `text` that is at most `MAX_STRING` bytes long.
pub(super) fn cut(text: &str) -> &str {
    let mut end = text.len().min(MAX_STRING);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn string(out: &mut Vec<u8>, text: &str) {
    let text = cut(text);
    number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn cpus(out: &mut Vec<u8>, cpus: &[Cpu]) {
    let cpus = &cpus[..cpus.len().min(MAX_CPUS)];
    number(out, cpus.len() as u64);
    for cpu in cpus {
        number(out, cpu.0.into());
    }
}

/// 0 for none: the raw form of a handle is never 0.
macro_rules! id {
    ($out:expr, $id:expr) => {
        number($out, $id.raw().into())
    };
}
macro_rules! optional {
    ($out:expr, $id:expr) => {
        number($out, $id.map_or(0, |id| id.raw()).into())
    };
}

fn syscall(out: &mut Vec<u8>, syscall: Option<Syscall>) {
    number(out, syscall.map_or(0, |s| u64::from(s.number()) + 1));
}

/// State in the low bits, flags above: one byte for most switches.
fn state_byte(state: TaskState, preempt: bool, iowait: bool) -> u8 {
    state as u8 | (u8::from(preempt) << 4) | (u8::from(iowait) << 5)
}

/// Appends an event; `last` is the time of the event before it in the block.
pub(super) fn event(out: &mut Vec<u8>, event: &Event, last: TimeNs) {
    let mut start = |tag: u8| {
        out.push(tag);
        signed(out, event.time.0.wrapping_sub(last.0) as i64);
        number(out, event.cpu.0.into());
    };
    match event.kind {
        Kind::WindowStart => start(tag::WINDOW_START),
        Kind::WindowEnd => start(tag::WINDOW_END),
        Kind::Seed { task, state, lock } => {
            start(tag::SEED);
            id!(out, task);
            match state {
                SeedState::Running => out.push(0),
                SeedState::Runnable => out.push(1),
                SeedState::Blocked { state, iowait, syscall: call } => {
                    out.push(2);
                    out.push(state_byte(state, false, iowait));
                    syscall(out, call);
                }
            }
            optional!(out, lock);
        }
        Kind::Switch { prev, next, prev_state, preempt, iowait, syscall: call } => {
            start(tag::SWITCH);
            id!(out, prev);
            id!(out, next);
            out.push(state_byte(prev_state, preempt, iowait));
            syscall(out, call);
        }
        Kind::Waking { waker, wakee, target, stack } => {
            start(tag::WAKING);
            number(
                out,
                match waker {
                    Waker::Unknown => 0,
                    Waker::Interrupt => 1,
                    Waker::Task(task) => u64::from(task.raw()) + 1,
                },
            );
            id!(out, wakee);
            number(out, target.0.into());
            optional!(out, stack);
        }
        Kind::ContentionBegin { task, lock, flags, owner, quality } => {
            start(tag::CONTENTION_BEGIN);
            id!(out, task);
            id!(out, lock);
            out.push(flags.0);
            optional!(out, owner);
            out.push(quality as u8);
        }
        Kind::ContentionEnd { task, lock, ret } => {
            start(tag::CONTENTION_END);
            id!(out, task);
            id!(out, lock);
            signed(out, ret.into());
        }
        Kind::BlockedOn { task, lock } => {
            start(tag::BLOCKED_ON);
            id!(out, task);
            id!(out, lock);
        }
        Kind::IoDone { task, device, issued, done } => {
            start(tag::IO_DONE);
            id!(out, task);
            id!(out, device);
            // as differences, which are small
            let before = |at: TimeNs| event.time.0.wrapping_sub(at.0) as i64;
            out.push(issued.is_some().into());
            if let Some(issued) = issued {
                signed(out, before(issued));
            }
            signed(out, before(done));
        }
        Kind::Owner { lock, owner, quality } => {
            start(tag::OWNER);
            id!(out, lock);
            optional!(out, owner);
            out.push(quality as u8);
        }
        Kind::Acquired { task, lock } => {
            start(tag::ACQUIRED);
            id!(out, task);
            id!(out, lock);
        }
        Kind::Released { task, lock } => {
            start(tag::RELEASED);
            id!(out, task);
            id!(out, lock);
        }
        Kind::WaitStack { task, lock, kernel, user, weight_ns } => {
            start(tag::WAIT_STACK);
            id!(out, task);
            optional!(out, lock);
            optional!(out, kernel);
            optional!(out, user);
            number(out, weight_ns);
        }
        Kind::Sample { task, mode, kernel, user, weight_ns } => {
            start(tag::SAMPLE);
            id!(out, task);
            out.push(mode as u8);
            optional!(out, kernel);
            optional!(out, user);
            number(out, weight_ns);
        }
        Kind::Fork { parent, child } => {
            start(tag::FORK);
            id!(out, parent);
            id!(out, child);
        }
        Kind::Exec { task, name } => {
            start(tag::EXEC);
            id!(out, task);
            optional!(out, name);
        }
        Kind::Exit { task, status } => {
            start(tag::EXIT);
            id!(out, task);
            signed(out, status.into());
        }
        Kind::WorkStart { task, function } => {
            start(tag::WORK_START);
            id!(out, task);
            id!(out, function);
        }
        Kind::WorkEnd { task } => {
            start(tag::WORK_END);
            id!(out, task);
        }
        Kind::IrqEnter { irq, number: vector } => {
            start(tag::IRQ_ENTER);
            out.push(irq as u8);
            number(out, vector.into());
        }
        Kind::IrqExit { irq, number: vector } => {
            start(tag::IRQ_EXIT);
            out.push(irq as u8);
            number(out, vector.into());
        }
        Kind::Throttle { cgroup, count, throttled_ns } => {
            start(tag::THROTTLE);
            id!(out, cgroup);
            number(out, count.into());
            number(out, throttled_ns);
        }
        Kind::HeldBack { task, cgroup } => {
            start(tag::HELD_BACK);
            id!(out, task);
            optional!(out, cgroup);
        }
        Kind::Lost { count, from } => {
            start(tag::LOST);
            number(out, count.into());
            number(out, from.0);
        }
    }
}

/// Appends a definition.
pub(super) fn definition(out: &mut Vec<u8>, definition: &Definition) {
    match definition {
        Definition::Meta(meta) => {
            out.push(tag::DEF_META);
            string(out, &meta.machine);
            string(out, &meta.kernel);
            string(out, &meta.arch);
            number(out, meta.hz.into());
            signed(out, meta.realtime_offset_ns);
            cpus(out, &meta.online);
            cpus(out, &meta.allowed);
            let options = &meta.options[..meta.options.len().min(MAX_OPTIONS)];
            number(out, options.len() as u64);
            for (name, value) in options {
                string(out, name);
                string(out, value);
            }
        }
        Definition::Str(id, text) => {
            out.push(tag::DEF_STR);
            id!(out, id);
            string(out, text);
        }
        Definition::Symbol(id, symbol) => {
            out.push(tag::DEF_SYMBOL);
            id!(out, id);
            id!(out, symbol.name);
            optional!(out, symbol.module);
        }
        Definition::Stack(id, frames) => {
            out.push(tag::DEF_STACK);
            id!(out, id);
            let frames = &frames[..frames.len().min(MAX_FRAMES)];
            number(out, frames.len() as u64);
            for frame in frames {
                id!(out, frame);
            }
        }
        Definition::Task(id, task) => {
            out.push(tag::DEF_TASK);
            id!(out, id);
            self::task(out, task);
        }
        Definition::Lock(id, lock) => {
            out.push(tag::DEF_LOCK);
            id!(out, id);
            out.push(lock.kind as u8);
            number(out, lock.address);
            optional!(out, lock.class);
            optional!(out, lock.object);
            optional!(out, lock.process);
        }
        Definition::Cgroup(id, path) => {
            out.push(tag::DEF_CGROUP);
            id!(out, id);
            id!(out, path);
        }
        Definition::Summary(summary) => {
            out.push(tag::DEF_SUMMARY);
            number(out, summary.lost_events);
            number(out, summary.lost_stacks);
            number(out, summary.truncated_names);
            number(out, summary.reordered);
        }
    }
}

fn task(out: &mut Vec<u8>, task: &Task) {
    number(out, task.tid.into());
    number(out, task.tgid.into());
    match task.kind {
        TaskKind::User => out.push(0),
        TaskKind::Kernel => out.push(1),
        TaskKind::Idle(cpu) => {
            out.push(2);
            number(out, cpu.0.into());
        }
    }
    optional!(out, task.parent);
    out.push(task.in_scope.into());
    number(out, task.start.0);
    let names = &task.names[task.names.len().saturating_sub(MAX_NAMES)..];
    number(out, names.len() as u64);
    for name in names {
        number(out, name.from.0);
        id!(out, name.name);
    }
    optional!(out, task.command);
    optional!(out, task.cgroup);
    match task.exit {
        None => out.push(0),
        Some(exit) => {
            out.push(1);
            number(out, exit.time.0);
            signed(out, exit.status.into());
        }
    }
}
