//! SIGKILL at random moments: within five seconds nothing of the run is left, whatever its commands started.

use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::process::{Signal, kill_process, kill_process_group};

use crate::home::{Home, Running, perfloss};

const KILLS: usize = 10;

/// Each operation is a real compilation (whose `cc1` and `as` are grandchildren of the task), and leaves a process that ignores
/// signals and sits in a session of its own.
const EACH: &str =
    "(trap '' TERM INT HUP; setsid sleep 600 & ) ; cc -c -o {dir}/out.{task}.o {src}/src{task}.c";

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Victim {
    Perfloss,
    Group,
    Guard,
    GuardThenPerfloss,
}

fn start(home: &Home, target: &str) -> Running {
    let size = home.image_size();
    let mut command = home.command(
        perfloss(),
        &[
            "run",
            "--shell",
            "--each",
            EACH,
            "-t",
            "3",
            "--on",
            target,
            "-s",
            "0.4",
            "--warm-up",
            "0.3",
            "--rounds",
            "100",
            "--no-capture",
            "--quiet",
            "--image-size",
            &size,
        ],
    );
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    home.start(command)
}

fn kill(running: &Running, victim: Victim) {
    let guard = running.guard();
    if matches!(victim, Victim::Guard | Victim::GuardThenPerfloss)
        && let Some(guard) = guard
    {
        // Fails only if it has ended meanwhile.
        let _ = kill_process(guard, Signal::KILL);
    }
    match victim {
        Victim::Perfloss | Victim::GuardThenPerfloss => running.signal(Signal::KILL),
        Victim::Group => kill_process_group(running.pid(), Signal::KILL).unwrap(),
        // It goes on, unless the run ends because the guard is gone.
        Victim::Guard => {}
    }
}

fn nothing_survives(target: &str, seed: u64, victims: &[Victim]) {
    let home = Home::new();
    let target = if target == "directory" { home.place().display().to_string() } else { target.to_owned() };
    let on_loop = ["xfs", "ext4", "btrfs", "overlay:xfs"].contains(&target.as_str());
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (mut compilers, mut loops) = (0, 0);
    for kill_number in 0..KILLS {
        let victim = victims[kill_number % victims.len()];
        let mut running = start(&home, &target);
        // From the start of the program over mkfs and warm-up to some way into the window.
        let delay = Duration::from_micros(random.random_range(5_000..900_000));
        std::thread::sleep(delay);
        compilers +=
            home.processes().iter().filter(|(_, c)| c.contains("cc1") || c.starts_with("sleep")).count();
        loops += home.loops().len();
        let guarded = running.guard().is_some();
        kill(&running, victim);
        if victim == Victim::Guard && guarded {
            let ran = running.end();
            // A guard that had measured its round already takes nothing with it: then the run comes to its end.
            let told = ran.status == 3 && ran.stderr.contains("ended from outside");
            assert!(told || ran.status == 0, "{target}, after {delay:?}: {ran:?}");
        } else {
            if victim == Victim::Guard {
                running.signal(Signal::KILL);
            }
            let begun = Instant::now();
            while running.child.try_wait().unwrap().is_none() {
                assert!(begun.elapsed() < Duration::from_secs(5), "{target}: perfloss survives");
            }
        }
        home.nothing_is_left();
    }
    assert!(compilers > 0, "{target}: no kill came while commands ran");
    assert_eq!(loops > 0, on_loop, "{target}: the kills came at moments that prove nothing");
}

const ALL: &[Victim] =
    &[Victim::Perfloss, Victim::Guard, Victim::Perfloss, Victim::Group, Victim::GuardThenPerfloss];

#[test]
fn nothing_survives_a_killed_run_on_xfs() {
    nothing_survives("xfs", 1, ALL);
}

#[test]
fn nothing_survives_a_killed_run_on_ext4() {
    nothing_survives("ext4", 2, ALL);
}

#[test]
fn nothing_survives_a_killed_run_on_btrfs() {
    nothing_survives("btrfs", 3, ALL);
}

#[test]
fn nothing_survives_a_killed_run_on_tmpfs() {
    nothing_survives("tmpfs", 4, ALL);
}

#[test]
fn nothing_survives_a_killed_run_on_an_overlay() {
    nothing_survives("overlay:xfs", 5, ALL);
}

/// In a directory of the machine files outlive processes: perfloss and the guard remove them, each if the other is killed. (If
/// both are killed at one moment nobody is left who could.)
#[test]
fn nothing_survives_a_killed_run_in_a_directory() {
    nothing_survives("directory", 6, &[Victim::Perfloss, Victim::Guard, Victim::Group]);
}
