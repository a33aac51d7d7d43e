//! Races perfloss's hot loops against those of a C harness of the same method (`hotloop.c`), interleaved.
//!
//! `cargo bench -p workload --bench hotloop` builds both and prints, for each case and task count, the ratio Rust / C of
//! the operations per second: the median over the pairs of runs with its 95 % interval (order statistics), and the geometric mean
//! over all. The bar: geometric mean at least 0.99, no interval wholly below 0.97. Exit status 1 if it is not met.

use std::io::Error;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use workload::meter::{Slot, State, now_ns};
use workload::{Board, Meter, Mode, Place, Spec};

/// `spawn` is a command template that runs `/bin/true`, against a plain posix_spawn and waitpid.
const CASES: [&str; 4] = ["getppid", "pread", "open", "spawn"];
const TASKS: [u32; 2] = [1, 2];
const PAIRS: usize = 24;
const WARM_UP_MS: u64 = 40;
const WINDOW_MS: u64 = 300;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["one", case, tasks, dir] => one(case, tasks, Path::new(dir)).map(|rate| {
            println!("{rate:.1}");
            true
        }),
        // What `cargo bench` passes; `cargo test --all-targets` passes nothing and must not race.
        [.., "--bench"] => race(),
        _ => {
            println!("usage: cargo bench -p workload --bench hotloop");
            Ok(true)
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn build(binary: &Path) -> Result<()> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/hotloop/hotloop.c");
    let status = Command::new("cc").arg("-O2").arg("-Wall").arg("-o").arg(binary).arg(source).status()?;
    status.success().then_some(()).ok_or_else(|| "hotloop.c does not compile".into())
}

/// One run of our loops: operations per second.
fn one(case: &str, tasks: &str, dir: &Path) -> Result<f64> {
    let place = Place {
        dir: dir.to_owned(),
        src: dir.to_owned(),
        tasks: tasks.parse()?,
        mode: Mode::Processes,
        seed: 0,
    };
    let spec = match case {
        "spawn" => {
            Spec::Command(workload::Command { each: "/bin/true".to_owned(), setup: None, shell: false })
        }
        built_in => built_in.parse()?,
    };
    let prepared = spec.open()?.prepare(&place)?;
    let board = Board::create(place.tasks)?;
    let mut pids = Vec::new();
    for task in 0..place.tasks {
        // SAFETY: this process has one thread; the child leaves with _exit.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return Err(Error::last_os_error().into());
        }
        if pid == 0 {
            pin(task as usize);
            let slot = &board.slots()[task as usize];
            board.control().wait_at_gate();
            let mut meter = Meter::new(board.control(), slot);
            let result = prepared.run(task, &mut meter);
            meter.finish();
            slot.set_state(if result.is_ok() { State::Finished } else { State::Failed });
            // SAFETY: leaves without destructors.
            unsafe { libc::_exit(result.is_err().into()) };
        }
        pids.push(pid);
    }
    board.control().open_gate();
    std::thread::sleep(Duration::from_millis(WARM_UP_MS));
    let start = now_ns();
    board.control().set_start(start);
    std::thread::sleep(Duration::from_millis(WINDOW_MS));
    let end = now_ns();
    board.control().set_end(end);
    board.control().stop();
    for pid in pids {
        let mut status = 0;
        // SAFETY: our child, and a valid place for its status.
        if unsafe { libc::waitpid(pid, &raw mut status, 0) } != pid || status != 0 {
            return Err(format!("a task ended with status {status:#x}").into());
        }
    }
    prepared.cleanup()?;
    let window = |slot: &Slot| Some(slot.count_at_end()? - slot.count_at_start()?);
    let counts: Option<Vec<f64>> = board.slots().iter().map(window).collect();
    let operations: f64 = counts.ok_or("a task did not stamp")?.iter().sum();
    Ok(operations / ((end - start) as f64 * 1e-9))
}

/// Keeps the process on the n-th of its allowed CPUs.
fn pin(n: usize) {
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else { return };
    let all: Vec<usize> = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
    let mut one = rustix::thread::CpuSet::new();
    one.set(all[n % all.len()]);
    if rustix::thread::sched_setaffinity(None, &one).is_err() {
        eprintln!("cannot pin task {n}");
    }
}

fn race() -> Result<bool> {
    let dir = tempfile::tempdir()?;
    let binary = dir.path().join("hotloop");
    build(&binary)?;
    println!("case      tasks   Rust ops/s      C ops/s   Rust / C   95 % interval");
    let (mut logs, mut all_above) = (Vec::new(), true);
    for case in CASES {
        for tasks in TASKS {
            let (mut ratios, mut rust, mut c) = (Vec::new(), Vec::new(), Vec::new());
            let c_files = dir.path().join("c");
            make_files(&c_files)?;
            for pair in 0..PAIRS {
                let ours = || -> Result<f64> {
                    let place = tempfile::tempdir_in(&dir)?;
                    let mut command = Command::new(std::env::current_exe()?);
                    rate(command.args(["one", case, &tasks.to_string()]).arg(place.path()))
                };
                let theirs = || {
                    let mut command = Command::new(&binary);
                    command.args([case, &tasks.to_string(), &WARM_UP_MS.to_string(), &WINDOW_MS.to_string()]);
                    rate(command.arg(&c_files))
                };
                // Who goes first alternates.
                let (a, b) = match pair % 2 {
                    0 => {
                        let a = ours()?;
                        (a, theirs()?)
                    }
                    _ => {
                        let b = theirs()?;
                        (ours()?, b)
                    }
                };
                ratios.push(a / b);
                rust.push(a);
                c.push(b);
            }
            std::fs::remove_dir_all(&c_files)?;
            let middle = median(&mut ratios);
            // Ranks of the 95 % interval of a median: n/2 -/+ 0.98 sqrt(n).
            let spread = 0.98 * (PAIRS as f64).sqrt();
            let low = ratios[(PAIRS as f64 / 2.0 - spread) as usize];
            let high = ratios[(PAIRS as f64 / 2.0 + spread) as usize];
            println!(
                "{case:<9} {tasks:>5} {:>12.0} {:>12.0} {middle:>10.4}   {low:.4} – {high:.4}",
                median(&mut rust),
                median(&mut c)
            );
            all_above &= high >= 0.97;
            logs.push(middle.ln());
        }
    }
    let mean = (logs.iter().sum::<f64>() / logs.len() as f64).exp();
    println!("geometric mean {mean:.4}");
    Ok(mean >= 0.99 && all_above)
}

/// The files that the C loops use: as large, and in directories alike.
fn make_files(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir.join("names"))?;
    for task in 0..TASKS[TASKS.len() - 1] {
        std::fs::write(dir.join(format!("file.{task}")), vec![b'p'; 1 << 20])?;
        std::fs::write(dir.join(format!("names/file.{task}")), "")?;
    }
    Ok(())
}

fn rate(command: &mut Command) -> Result<f64> {
    let output = command.output()?;
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout)?.trim().parse()?),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned().into()),
    }
}

/// Sorts, and takes the one in the middle.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
