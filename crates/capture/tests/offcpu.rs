//! The measurement behind `perfloss offcpu`.

mod common;

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use capture::offcpu::{Measured, OffCpu, Options, Stack, Whom};
use common::*;

fn measured<T>(options: Options, work: impl FnOnce() -> T) -> (Measured, T) {
    let _alone = alone();
    let running = OffCpu::start(options).unwrap_or_else(|e| panic!("{e}"));
    let result = work();
    let measured = running.stop().unwrap_or_else(|e| panic!("{e}"));
    note_unseen(&measured.report);
    (measured, result)
}

fn names(stack: &Stack) -> Vec<String> {
    match stack {
        Stack::Frames(frames) => frames.iter().map(|f| f.name.clone().unwrap_or_default()).collect(),
        _ => Vec::new(),
    }
}

fn sleeper(sleeps: u32, length: Duration) -> Stamp {
    let work = move || stamped(|| (0..sleeps).for_each(|_| thread::sleep(length)));
    thread::spawn(work).join().expect("sleeps")
}

#[test]
fn a_sleepers_time_is_in_its_row_with_its_stack() {
    undisturbed(|| {
        let whom = Whom::Processes(vec![std::process::id()]);
        let (measured, stamp) =
            measured(Options { whom, ..Options::default() }, || sleeper(20, Duration::from_millis(5)));
        assert!(measured.report.complete(), "{:?}", measured.report);
        let rows: Vec<_> = measured.rows.iter().filter(|r| r.tid == stamp.tid).collect();
        let total: u64 = rows.iter().map(|r| r.ns).sum();
        // its start, before the first stamp, and its end may be waits, too
        let allowed = (stamp.off / 50).max(50_000 * 22);
        assert!(
            total + allowed >= stamp.off && total <= stamp.off + allowed + 5_000_000,
            "{total} {stamp:?}"
        );
        let sleeping = rows.iter().max_by_key(|r| r.ns).expect("it slept");
        assert!(sleeping.ns > stamp.off * 9 / 10);
        let kernel = names(&sleeping.kernel);
        assert!(kernel.iter().any(|f| f.contains("nanosleep")), "{kernel:?}");
        assert!(kernel.iter().any(|f| f == "schedule"), "the scheduler's frames are there: {kernel:?}");
        assert!(!kernel.iter().any(|f| f.starts_with("bpf_")), "the tracer's are not: {kernel:?}");
        assert!(matches!(sleeping.user, Stack::Frames(_)), "{:?}", sleeping.user);
        Ok(())
    });
}

/// Short waits are sampled, and what stands for them must not be more or less than they were.
#[test]
fn short_waits_add_up_though_only_some_have_stacks() {
    undisturbed(|| {
        const N: u32 = 3000;
        let whom = Whom::Processes(vec![std::process::id()]);
        let (measured, stamp) = measured(Options { whom, user: false, ..Options::default() }, || {
            sleeper(N, Duration::from_micros(1))
        });
        assert_eq!(measured.report.lost_stacks, 0);
        let total: u64 = measured.rows.iter().filter(|r| r.tid == stamp.tid).map(|r| r.ns).sum();
        // The thread's own clock runs some us longer per wait than the switches show, so it gives the least, and the wall clock the
        // most that can be; a few percent are sampling error.
        let wall = stamp.until - stamp.from;
        let (least, most) = (stamp.off - stamp.off / 20, wall + wall / 20);
        assert!((least - 1_000_000..=most + 1_000_000).contains(&total), "{total}, {least} to {most}");
        Ok(())
    });
}

#[test]
fn a_wait_that_spans_the_window_counts_up_to_its_edges_if_it_was_asked_for() {
    undisturbed(|| {
        let mut child = Command::new("sleep").arg("30").spawn().expect("a sleeper");
        thread::sleep(Duration::from_millis(100));
        let whom = Whom::Processes(vec![child.id()]);
        let (of_child, window) = measured(Options { whom, ..Options::default() }, || {
            let begin = Instant::now();
            thread::sleep(Duration::from_millis(150));
            begin.elapsed()
        });
        let (of_all, ()) = measured(Options::default(), || thread::sleep(Duration::from_millis(50)));
        child.kill().expect("our child");
        child.wait().expect("our child");
        let total: u64 = of_child.rows.iter().map(|r| r.ns).sum();
        let window = window.as_nanos() as u64;
        assert!(total >= window && total < window + 60_000_000, "{total} {window}");
        assert!(names(&of_child.rows[0].kernel).iter().any(|f| f.contains("nanosleep")));
        // nothing was seen of it: no phantom among all
        assert!(of_all.rows.iter().all(|r| r.tid != child.id()));
        Ok(())
    });
}

#[test]
fn thresholds_and_states_select_waits() {
    undisturbed(|| {
        let whom = || Whom::Processes(vec![std::process::id()]);
        let work = || (sleeper(5, Duration::from_millis(1)), sleeper(2, Duration::from_millis(200)));
        // far apart: on a busy machine, a short sleeper waits for a CPU, too
        let long = Options { whom: whom(), min_us: 150_000, ..Options::default() };
        let (measured_long, (short, long_sleeper)) = measured(long, work);
        let of = |m: &Measured, tid| m.rows.iter().filter(|r| r.tid == tid).map(|r| r.ns).sum::<u64>();
        assert_eq!(of(&measured_long, short.tid), 0);
        assert!(of(&measured_long, long_sleeper.tid) >= 400_000_000);
        let brief = Options { whom: whom(), max_us: 150_000, ..Options::default() };
        let (measured_brief, (short, long_sleeper)) = measured(brief, work);
        assert!(of(&measured_brief, short.tid) > 4_000_000);
        assert!(of(&measured_brief, long_sleeper.tid) < 200_000_000);
        let uninterruptible = Options { whom: whom(), state: Some(2), ..Options::default() };
        let (measured_state, (short, long_sleeper)) = measured(uninterruptible, work);
        let nanosleeps =
            |m: &Measured| m.rows.iter().any(|r| names(&r.kernel).iter().any(|f| f.contains("nanosleep")));
        assert!(!nanosleeps(&measured_state), "sleeps are interruptible: {short:?} {long_sleeper:?}");
        Ok(())
    });
}

#[test]
fn one_kind_of_stack_can_be_had_alone() {
    undisturbed(|| {
        let whom = || Whom::Processes(vec![std::process::id()]);
        let work = || sleeper(5, Duration::from_millis(2));
        let (kernel, stamp) = measured(Options { whom: whom(), user: false, ..Options::default() }, work);
        let row = kernel.rows.iter().filter(|r| r.tid == stamp.tid).max_by_key(|r| r.ns).expect("it slept");
        assert!(matches!((&row.kernel, &row.user), (Stack::Frames(_), Stack::None)));
        let (user, stamp) = measured(Options { whom: whom(), kernel: false, ..Options::default() }, work);
        let row = user.rows.iter().filter(|r| r.tid == stamp.tid).max_by_key(|r| r.ns).expect("it slept");
        assert!(matches!((&row.kernel, &row.user), (Stack::None, Stack::Frames(_))), "{row:?}");
        Ok(())
    });
}

#[test]
fn the_self_test_sees_its_sleeper() {
    let _alone = alone();
    let test = capture::self_test().unwrap_or_else(|e| panic!("{e}"));
    assert!(test.seen >= Duration::from_millis(10) && test.seen <= test.slept);
}

#[test]
fn the_doctor_finds_this_machine_fit_for_captures() {
    let _alone = alone();
    let findings = capture::doctor();
    let bad: Vec<_> = findings.iter().filter(|f| f.status == capture::Status::Missing).collect();
    assert!(bad.is_empty(), "{bad:?}");
    assert!(findings.iter().any(|f| f.name == "self-test"));
}
