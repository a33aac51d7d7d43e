//! `perfloss offcpu`: drop-in for bcc's offcputime, with the options of both of its versions and the output of the older one.

use std::io::{self, Write};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context;
use capture::offcpu::{Frame, Measured, OffCpu, Options, Row, Stack, Whom};
use clap::Args as ClapArgs;

use crate::exit::{Failure, Status};

/// Sum the time that threads spend off the CPU, by stack (as offcputime does)
#[derive(ClapArgs, Debug)]
#[command(
    after_help = "Exit status: 0 done, 2 bad usage, 3 stacks were lost, 4 not allowed here.\n\nExamples:\n  \
        perfloss offcpu -K -f 10        kernel stacks, folded, for 10 seconds\n  \
        perfloss offcpu -p 1234,1235    two processes, until Ctrl-C\n  \
        perfloss offcpu --state 2 5     only uninterruptible waits"
)]
pub struct Args {
    /// Only these processes (comma-separated)
    #[arg(short, long = "pid", value_name = "PID,…", value_delimiter = ',', group = "whom")]
    pid: Vec<u32>,

    /// Only these threads (comma-separated)
    #[arg(short, long = "tid", value_name = "TID,…", value_delimiter = ',', group = "whom")]
    tid: Vec<u32>,

    /// Only threads of user processes
    #[arg(short, long, group = "whom")]
    user_threads_only: bool,

    /// Only kernel threads
    #[arg(short, long, group = "whom")]
    kernel_threads_only: bool,

    /// Only user stacks
    #[arg(short = 'U', long, group = "stacks")]
    user_stacks_only: bool,

    /// Only kernel stacks
    #[arg(short = 'K', long, group = "stacks")]
    kernel_stacks_only: bool,

    /// Put a mark between kernel and user stacks
    #[arg(short, long)]
    delimited: bool,

    /// One line a stack, for flame graphs
    #[arg(short, long)]
    folded: bool,

    /// Show the offset of the address in its function
    #[arg(short = 's', long, conflicts_with = "folded")]
    offset: bool,

    /// Leave out waits shorter than this (us)
    #[arg(short, long, value_name = "US", default_value_t = 1)]
    min_block_time: u64,

    /// Leave out waits longer than this (us)
    #[arg(short = 'M', long, value_name = "US")]
    max_block_time: Option<u64>,

    /// Only waits that began in a state of this mask (0: running, 1: interruptible, 2: uninterruptible, …)
    #[arg(long, value_name = "MASK")]
    state: Option<u64>,

    /// Accepted for scripts; there is no limit to the number of stacks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    stack_storage_size: Option<u64>,

    /// Most frames of a stack
    #[arg(long, value_name = "N", default_value_t = 127, value_parser = clap::value_parser!(u32).range(1..=127))]
    perf_max_stack_depth: u32,

    /// Show addresses, and what was lost in detail
    #[arg(short, long)]
    verbose: bool,

    /// Check that a known sleeper is seen, and do nothing else
    #[arg(long)]
    self_test: bool,

    /// For how many seconds (default: until Ctrl-C)
    #[arg(value_name = "DURATION", value_parser = clap::value_parser!(u64).range(1..))]
    duration: Option<u64>,
}

impl Args {
    fn options(&self) -> Result<Options, Failure> {
        let max_us = self.max_block_time.unwrap_or(u64::MAX);
        if self.min_block_time > max_us {
            return Err(Failure::usage(format!(
                "-m {} is more than -M {max_us}: no wait can be as long; exchange them",
                self.min_block_time
            )));
        }
        if self.pid.contains(&0) || self.tid.contains(&0) {
            return Err(Failure::usage(
                "0 is not a process or thread that can wait; name others with -p or -t",
            ));
        }
        // in a container as well as outside, /proc has those that can be named here
        let gone = |id: &&u32| !std::path::Path::new(&format!("/proc/{id}")).exists();
        if let Some(pid) = self.pid.iter().find(gone) {
            return Err(Failure::usage(format!(
                "there is no process {pid}; `ps -e` lists those that there are"
            )));
        }
        if let Some(tid) = self.tid.iter().find(gone) {
            return Err(Failure::usage(format!(
                "there is no thread {tid}; `ps -eL` lists those that there are (LWP)"
            )));
        }
        let whom = match () {
            () if !self.pid.is_empty() => Whom::Processes(self.pid.clone()),
            () if !self.tid.is_empty() => Whom::Threads(self.tid.clone()),
            () if self.user_threads_only => Whom::UserThreads,
            () if self.kernel_threads_only => Whom::KernelThreads,
            () => Whom::All,
        };
        Ok(Options {
            whom,
            kernel: !self.user_stacks_only,
            user: !self.kernel_stacks_only,
            min_us: self.min_block_time,
            max_us,
            state: self.state,
            max_frames: self.perf_max_stack_depth,
        })
    }

    fn header(&self) -> String {
        let list = |ids: &[u32]| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let whom = match () {
            () if !self.pid.is_empty() => format!("PIDs {}", list(&self.pid)),
            () if !self.tid.is_empty() => format!("TIDs {}", list(&self.tid)),
            () if self.user_threads_only => "user threads".to_owned(),
            () if self.kernel_threads_only => "kernel threads".to_owned(),
            () => "all threads".to_owned(),
        };
        let what = match () {
            () if self.user_stacks_only => "user",
            () if self.kernel_stacks_only => "kernel",
            () => "user + kernel",
        };
        let end = match self.duration {
            Some(seconds) => format!(" for {seconds} secs."),
            None => "... Hit Ctrl-C to end.".to_owned(),
        };
        format!("Tracing off-CPU time (us) of {whom} by {what} stack{end}")
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Status, Failure> {
    if args.self_test {
        return self_test();
    }
    let options = args.options()?;
    let (stopped, stop) = mpsc::channel();
    let mut signals = signal_hook::iterator::Signals::new([
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGHUP,
    ])
    .context("cannot handle signals")?;
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            // the receiver is gone once the time is over
            let _ = stopped.send(());
        }
    });
    let measure = OffCpu::start(options.clone()).map_err(failure)?;
    for missing in measure.missing() {
        eprintln!("WARNING: {missing}");
    }
    let mut out = io::stdout().lock();
    if !args.folded {
        writeln!(out, "{}", args.header()).and_then(|()| out.flush()).context("cannot print")?;
    }
    match args.duration {
        Some(seconds) => {
            // a signal or the end of the time, whichever comes first
            let _ = stop.recv_timeout(Duration::from_secs(seconds));
        }
        None => {
            let _ = stop.recv();
        }
    }
    let measured = measure.stop().map_err(failure)?;
    print(&mut out, args, &measured).context("cannot print")?;
    Ok(warn(args, &options, &measured))
}

fn self_test() -> Result<Status, Failure> {
    let test = capture::self_test().map_err(failure)?;
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    println!(
        "self-test: a thread that slept {:.2} ms was seen off the CPU for {:.2} ms; tracing started in {:.0} ms",
        ms(test.slept),
        ms(test.seen),
        ms(test.started)
    );
    Ok(Status::Done)
}

fn failure(error: capture::Error) -> Failure {
    let status = if error.is_not_allowed() { Status::NotAllowed } else { Status::Untrusted };
    Failure::new(status, error)
}

/// Tells what the rows do not show. Lost stacks make the result incomplete, no rows need a reason.
fn warn(args: &Args, options: &Options, measured: &Measured) -> Status {
    let report = &measured.report;
    if !measured.named && options.kernel {
        eprintln!("WARNING: kernel functions have no names (kernel.kptr_restrict, CAP_SYSLOG)");
    }
    if report.late_maps > 0 && (options.user || args.verbose) {
        eprintln!("WARNING: user stacks of {} processes that had ended have no names", report.late_maps);
    }
    if args.verbose {
        eprintln!(
            "{} switches of tasks that were new to the tracer; {} that the kernel did not show; {} user or kernel stacks lost",
            report.stateless_switches, report.unseen_switches, report.lost_stacks
        );
    }
    if report.lost_stacks > 0 {
        eprintln!(
            "WARNING: {} stack traces could not be kept or walked; at least {} us of off-CPU time are not shown",
            report.lost_stacks,
            report.lost_stack_ns / 1000
        );
    }
    if measured.rows.is_empty() {
        eprintln!(
            "No off-CPU time was seen: nobody that was asked for left its CPU and waited {} us or longer in that time.",
            options.min_us
        );
    }
    if report.lost_stack_ns > 0 || report.unfinished > 0 { Status::Untrusted } else { Status::Done }
}

fn print(out: &mut impl Write, args: &Args, measured: &Measured) -> io::Result<()> {
    if !args.folded {
        writeln!(out)?;
    }
    for row in measured.rows.iter().filter(|r| r.ns >= 1000) {
        if args.folded {
            writeln!(out, "{}", folded(args, row))?;
        } else {
            text(out, args, row)?;
        }
    }
    out.flush()
}

/// Between the stacks, if asked for and if there are both.
fn delimiter(args: &Args, row: &Row) -> bool {
    let both = matches!((&row.kernel, &row.user), (Stack::Frames(_), Stack::Frames(_)));
    args.delimited && both
}

fn folded(args: &Args, row: &Row) -> String {
    let mut parts = vec![row.name.clone()];
    let mut push = |stack: &Stack, missed: &str| match stack {
        Stack::None => {}
        Stack::Missed => parts.push(missed.to_owned()),
        Stack::Frames(frames) => parts.extend(frames.iter().rev().map(|f| name(f).to_owned())),
    };
    push(&row.user, "[Missed User Stack]");
    if delimiter(args, row) {
        push(&Stack::Missed, "-");
    }
    push(&row.kernel, "[Missed Kernel Stack]");
    format!("{} {}", parts.join(";"), row.ns / 1000)
}

fn text(out: &mut impl Write, args: &Args, row: &Row) -> io::Result<()> {
    stack(out, args, &row.kernel, "[Missed Kernel Stack]")?;
    if delimiter(args, row) {
        writeln!(out, "    --")?;
    }
    stack(out, args, &row.user, "[Missed User Stack]")?;
    writeln!(out, "    {:<16} {} ({})", "-", row.name, row.tid)?;
    writeln!(out, "        {}\n", row.ns / 1000)
}

fn stack(out: &mut impl Write, args: &Args, stack: &Stack, missed: &str) -> io::Result<()> {
    match stack {
        Stack::None => Ok(()),
        Stack::Missed => writeln!(out, "    {missed}"),
        Stack::Frames(frames) => frames.iter().try_for_each(|frame| {
            let address = if args.verbose { format!("{:<16x} ", frame.address) } else { String::new() };
            let offset = match (args.offset, &frame.name) {
                (true, Some(_)) => format!("+{:#x}", frame.offset),
                _ => String::new(),
            };
            writeln!(out, "    {address}{}{offset}", name(frame))
        }),
    }
}

fn name(frame: &Frame) -> &str {
    frame.name.as_deref().unwrap_or("[unknown]")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn parse(words: &[&str]) -> Result<Args, clap::Error> {
        Command::try_parse_from([&["offcpu"], words].concat()).map(|c| c.args)
    }

    fn frames(names: &[&str]) -> Stack {
        let frame = |n: &&str| Frame { address: 0x1000, name: Some((*n).to_owned()), offset: 0x1a };
        Stack::Frames(names.iter().map(frame).collect())
    }

    fn row() -> Row {
        Row {
            tid: 77,
            tgid: 70,
            name: "cc".into(),
            kernel: frames(&["schedule", "down", "xfs_buf_lock"]),
            user: frames(&["unlink", "main"]),
            ns: 10_639_499,
        }
    }

    fn shown(words: &[&str], row: &Row) -> String {
        let args = parse(words).expect("good options");
        let mut out = Vec::new();
        text(&mut out, &args, row).expect("memory takes all");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn the_text_is_that_of_the_python_version() {
        let expected = "    schedule\n    down\n    xfs_buf_lock\n    --\n    unlink\n    main\n    -                cc (77)\n        10639\n\n";
        assert_eq!(shown(&["-d"], &row()), expected);
        assert!(shown(&["-s"], &row()).contains("    down+0x1a\n"));
    }

    #[test]
    fn folded_lines_begin_with_the_name_and_the_user_root() {
        let line = |words: &[&str], row: &Row| folded(&parse(words).expect("good options"), row);
        assert_eq!(line(&["-f"], &row()), "cc;main;unlink;xfs_buf_lock;down;schedule 10639");
        assert_eq!(line(&["-fd"], &row()), "cc;main;unlink;-;xfs_buf_lock;down;schedule 10639");
        let missed = Row { user: Stack::Missed, ..row() };
        assert_eq!(line(&["-fd"], &missed), "cc;[Missed User Stack];xfs_buf_lock;down;schedule 10639");
        let kernel_thread = Row { user: Stack::None, ..row() };
        assert_eq!(line(&["-f"], &kernel_thread), "cc;xfs_buf_lock;down;schedule 10639");
    }

    #[test]
    fn headers_say_whom_by_what_and_for_how_long() {
        let header = |words: &[&str]| parse(words).expect("good options").header();
        assert_eq!(
            header(&[]),
            "Tracing off-CPU time (us) of all threads by user + kernel stack... Hit Ctrl-C to end."
        );
        assert_eq!(
            header(&["-K", "-p", "1,2", "5"]),
            "Tracing off-CPU time (us) of PIDs 1,2 by kernel stack for 5 secs."
        );
        assert!(header(&["-U", "-k", "1"]).contains("kernel threads by user stack"));
    }

    #[test]
    fn options_that_exclude_each_other_are_refused() {
        for words in [
            &["-u", "-k"][..],
            &["-p", "1", "-t", "2"],
            &["-p", "1", "-u"],
            &["-U", "-K"],
            &["-s", "-f"],
            &["-p", "x"],
            &["--perf-max-stack-depth", "0"],
            &["--stack-storage-size", "0"],
            &["0"],
            &["-1"],
        ] {
            assert!(parse(words).is_err(), "{words:?}");
        }
        // above what the kernel can give
        for words in [&["-m", "10", "-M", "5"][..], &["-p", "0"], &["-p", "4194305"], &["-t", "4194305"]] {
            assert!(parse(words).expect("each alone is good").options().is_err(), "{words:?}");
        }
        let own = std::process::id().to_string();
        assert!(parse(&["-p", &own]).expect("a number").options().is_ok());
    }

    #[test]
    fn options_of_both_versions_are_accepted() {
        let args = parse(&[
            "--stack-storage-size",
            "16384",
            "--perf-max-stack-depth=64",
            "--state=2",
            "--min-block-time=1000",
            "--max-block-time",
            "10000",
            "--kernel-stacks-only",
            "--user-threads-only",
            "-v",
            "3",
        ])
        .expect("they are all known");
        let options = args.options().expect("they go together");
        assert_eq!((options.min_us, options.max_us, options.state), (1000, 10000, Some(2)));
        assert_eq!(options.whom, Whom::UserThreads);
        assert!(options.kernel && !options.user);
    }
}
