//! Captures for some seconds and says how that went: for benches, and to look at what a capture sees.
//!
//! `record SECONDS [--stackless] [--no-irq] [--no-samples] [--offcpu] [--file PATH] [--text] [--locks]`

use std::error::Error;
use std::time::{Duration, Instant};

use capture::{Capture, Options, Sink};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let seconds: f64 = args.next().ok_or("how many seconds?")?.parse()?;
    let mut options = Options::default();
    let (mut text, mut locks, mut sink) = (false, false, Sink::Memory);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--stackless" => options.stacks = false,
            "--no-irq" => options.interrupts = false,
            "--no-samples" => options.sample_hz = 0,
            "--offcpu" => return offcpu(seconds),
            "--text" => text = true,
            "--locks" => locks = true,
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
    std::thread::sleep(Duration::from_secs_f64(seconds));
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
