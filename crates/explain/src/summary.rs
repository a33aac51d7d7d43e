//! An explanation as a few lines of text: for tests and for people who debug perfloss. What users see is made by `report`.

use std::fmt::Write;

use crate::explanation::{Explanation, Root, RootKind};

/// The figures of an explanation, in microseconds, one fact a line, worst root first.
pub fn summary(explanation: &Explanation) -> String {
    let mut out = String::new();
    // writing to a string cannot fail
    let _ = write_summary(&mut out, explanation);
    out
}

fn write_summary(out: &mut String, e: &Explanation) -> std::fmt::Result {
    let b = &e.budget;
    writeln!(out, "window {} x {} cpus", us(e.window_ns as f64), e.allowed_cpus)?;
    write!(out, "cpus   idle {} workload {}", us(b.idle_ns), us(b.scope_ns as f64))?;
    some(out, "others", b.others_ns as f64)?;
    some(out, "unknown", b.unknown_ns)?;
    some(out, "elsewhere", b.elsewhere_ns as f64)?;
    for (name, sampled) in [("user", b.user), ("system", b.system), ("spin", b.spin), ("irq", b.irq)] {
        some(out, name, sampled.map_or(0.0, |s| s.ns))?;
    }
    let t = &e.times;
    write!(out, "\ntasks  running {}", us(t.running_ns as f64))?;
    for (name, ns) in [
        ("in-lock", t.in_lock_on_cpu_ns),
        ("runnable", t.runnable_ns),
        ("lock", t.lock_ns),
        ("io", t.io_ns),
        ("kernel", t.kernel_ns),
        ("futex", t.futex_ns),
        ("peer", t.peer_ns),
        ("idle", t.idle_ns),
    ] {
        some(out, name, ns as f64)?;
    }
    out.push('\n');
    for root in &e.roots {
        write_root(out, root)?;
    }
    for serial in &e.serial {
        writeln!(out, "serial {}: idle {}", serial.command, us(serial.idle_ns))?;
    }
    if e.nothing_to_run_ns >= 0.5 {
        writeln!(out, "nothing_to_run: idle {}", us(e.nothing_to_run_ns))?;
    }
    let f = &e.facts;
    for (name, count) in
        [("lost", f.lost_events), ("cycles dropped", f.cycles_dropped), ("unpaired", f.unpaired)]
    {
        if count > 0 {
            writeln!(out, "{name} {count}")?;
        }
    }
    for (task, status) in &f.failed {
        writeln!(out, "failed {task}: status {status}")?;
    }
    Ok(())
}

fn write_root(out: &mut String, root: &Root) -> std::fmt::Result {
    write!(out, "root   {}", kind(root.kind))?;
    if !root.class.is_empty() {
        write!(out, " {}", root.class)?;
    }
    if let Some(object) = &root.object {
        write!(out, ", {object}")?;
    }
    write!(out, ": idle {}", us(root.idle_ns))?;
    some(out, "wait", root.wait_ns as f64)?;
    some(out, "on-cpu", root.spin_ns as f64)?;
    some(out, "elsewhere", root.elsewhere_ns as f64)?;
    out.push_str(if root.latent { " latent\n" } else { "\n" });
    let s = &root.split;
    if s.total_ns() > 0 {
        write!(out, "  split")?;
        for (name, ns) in [
            ("running", s.holder_running_ns),
            ("blocked", s.holder_blocked_ns),
            ("runnable", s.holder_runnable_ns),
            ("hand-off-idle", s.hand_off_cpu_idle_ns),
            ("hand-off-busy", s.hand_off_cpu_busy_ns),
            ("hand-off", s.hand_off_other_ns),
            ("unknown", s.unknown_ns),
        ] {
            some(out, name, ns as f64)?;
        }
        out.push('\n');
    }
    for path in &root.paths {
        let entry = path.entry.as_deref().unwrap_or("?");
        writeln!(out, "  path  {} {}: {}", us(path.ns as f64), entry, path.stack.join(" < "))?;
    }
    for holder in &root.holders {
        let whose = if holder.in_scope { "" } else { " (other)" };
        writeln!(out, "  held  {} {}{whose}", us(holder.ns as f64), holder.name)?;
        for stack in &holder.stacks {
            writeln!(out, "    ran {} {}", us(stack.ns as f64), stack.stack.join(" < "))?;
        }
    }
    for through in &root.through {
        write!(out, "  through {} {} {}", us(through.wait_ns as f64), kind(through.kind), through.class)?;
        match &through.object {
            Some(object) => writeln!(out, ", {object}")?,
            None => out.push('\n'),
        }
    }
    Ok(())
}

fn some(out: &mut String, name: &str, ns: f64) -> std::fmt::Result {
    if ns >= 0.5 { write!(out, " {name} {}", us(ns)) } else { Ok(()) }
}

fn us(ns: f64) -> String {
    let text = format!("{:.3}", ns / 1000.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn kind(kind: RootKind) -> &'static str {
    match kind {
        RootKind::Lock(kind) => kind.name(),
        RootKind::Io => "io",
        RootKind::Kernel => "kernel",
        RootKind::Timed => "timed",
        RootKind::Futex => "futex",
        RootKind::Pipe => "pipe",
        RootKind::Child => "child",
        RootKind::Sleep => "sleep",
        RootKind::WakeUp => "wake_up",
        RootKind::Throttled => "throttled",
        RootKind::Other => "other",
    }
}
