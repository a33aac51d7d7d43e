//! Captures for some seconds and says how that went: for benches, and to look at what a capture sees.
//!
//! `record SECONDS [--stackless] [--no-irq] [--no-samples] [--offcpu] [--file PATH] [--text] [--locks] [--handoffs] [--cost]`

use std::error::Error;
use std::time::{Duration, Instant};

use capture::{Capture, Options, Sink};

/// How long our BPF programs have run; counted while kernel.bpf_stats_enabled is set.
fn programs_ns() -> std::io::Result<u64> {
    let mut sum = 0;
    for entry in std::fs::read_dir("/proc/self/fdinfo")? {
        // the directory's own descriptor is gone by then
        let Ok(info) = std::fs::read_to_string(entry?.path()) else { continue };
        let time = info.lines().find_map(|l| l.strip_prefix("run_time_ns:"));
        sum += time.and_then(|t| t.trim().parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(sum)
}

/// CPU time of this process.
fn own_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let seconds: f64 = args.next().ok_or("how many seconds?")?.parse()?;
    let mut options = Options::default();
    let (mut text, mut locks, mut show_handoffs, mut cost, mut sink) =
        (false, false, false, false, Sink::Memory);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--stackless" => options.stacks = false,
            "--no-irq" => options.interrupts = false,
            "--no-samples" => options.sample_hz = 0,
            "--offcpu" => return offcpu(seconds),
            "--text" => text = true,
            "--locks" => locks = true,
            "--handoffs" => show_handoffs = true,
            "--cost" => cost = true,
            "--file" => {
                let path = args.next().ok_or("which file?")?;
                sink = Sink::File(Box::new(std::fs::File::create(path)?));
            }
            other => return Err(format!("no such option: {other}").into()),
        }
    }
    let begin = Instant::now();
    let capture = Capture::start_to(options, sink)?;
    let started = begin.elapsed();
    let before = (programs_ns()?, own_ns());
    std::thread::sleep(Duration::from_secs_f64(seconds));
    if cost {
        println!("programs_ns: {}\nreader_ns: {}", programs_ns()? - before.0, own_ns() - before.1);
    }
    let begin = Instant::now();
    let captured = capture.stop()?;
    let stopped = begin.elapsed();
    eprintln!("started in {started:?}, stopped in {stopped:?}\n{:#?}", captured.report);
    let Some(trace) = captured.trace else { return Ok(()) };
    eprintln!("{:?}", trace.tables().summary());
    if locks {
        let mut waits = std::collections::HashMap::new();
        for event in trace.events() {
            if let trace::Kind::ContentionBegin { lock, owner, .. } = event.kind {
                let entry: &mut (u64, u64) = waits.entry(lock).or_default();
                entry.0 += 1;
                entry.1 += u64::from(owner.is_some());
            }
        }
        let mut rows: Vec<_> = waits.into_iter().collect();
        rows.sort_by_key(|r| std::cmp::Reverse(r.1.0));
        for (id, (count, owned)) in rows.into_iter().take(25) {
            let Some(lock) = trace.tables().lock(id) else { continue };
            let name = |s: Option<trace::StrId>| s.map_or("-", |s| trace.tables().str(s)).to_owned();
            let (class, object) = (name(lock.class), name(lock.object));
            println!("{count:8} {owned:8} {:10} {class:34} {object}", lock.kind.name());
        }
    }
    if show_handoffs {
        handoffs(&trace);
    }
    if text {
        print!("{}", trace::text::print(&trace));
    }
    Ok(())
}

fn offcpu(seconds: f64) -> Result<(), Box<dyn Error>> {
    let running = capture::offcpu::OffCpu::start(capture::offcpu::Options::default())?;
    std::thread::sleep(Duration::from_secs_f64(seconds));
    let measured = running.stop()?;
    eprintln!("{} rows\n{:#?}", measured.rows.len(), measured.report);
    Ok(())
}

/// How long the next holder of a semaphore takes from its wake-up (the lock is granted to it by then) to the end of its wait.
fn handoffs(trace: &trace::Trace) {
    let mut woken = std::collections::HashMap::new();
    let mut times = Vec::new();
    for event in trace.events() {
        match event.kind {
            trace::Kind::Waking { wakee, .. } => drop(woken.insert(wakee, event.time)),
            trace::Kind::ContentionBegin { task, .. } => drop(woken.remove(&task)),
            trace::Kind::ContentionEnd { task, lock, .. } => {
                let semaphore =
                    trace.tables().lock(lock).is_some_and(|l| l.kind == trace::LockKind::Semaphore);
                if let Some(at) = woken.remove(&task)
                    && semaphore
                {
                    times.push(event.time.since(at));
                }
            }
            _ => {}
        }
    }
    times.sort_unstable();
    if times.is_empty() {
        return println!("no hand-offs of semaphores");
    }
    let at = |q: f64| times[((times.len() - 1) as f64 * q) as usize] as f64 / 1e3;
    let slow = times.iter().filter(|t| **t >= 1_000_000).count();
    println!(
        "handoffs {} p10 {:.1} p50 {:.1} p90 {:.1} p99 {:.1} max {:.0} us, {slow} of 1 ms or more",
        times.len(),
        at(0.1),
        at(0.5),
        at(0.9),
        at(0.99),
        at(1.0)
    );
}
