//! Programs whose waits are known.

use crate::place::{Place, idle_in_locks_s, idle_s, lock, shares_add_up, text};
use result::{Point, RootKind};
use std::process::{Command, Stdio};

#[test]
fn sleepers_lose_nothing() {
    let place = Place::new();
    let (_, point) = place.point(&["-q", "--", "sh", "-c", "sleep 0.5 & sleep 0.5; wait"]);
    shares_add_up(&point);
    no_loss_by_waiting(&point);
}

#[test]
fn a_shell_at_a_prompt_loses_nothing() {
    let place = Place::new();
    let mut shell = Command::new("sh").stdin(Stdio::piped()).spawn().unwrap();
    let (_, point) = place.point(&["-q", "-p", &shell.id().to_string(), "-d", "0.5"]);
    shell.kill().unwrap();
    shell.wait().unwrap();
    shares_add_up(&point);
    no_loss_by_waiting(&point);
    // it did not run either
    assert_eq!(idle_s(&point, RootKind::Serial), 0.0, "{:#?}", point.roots);
}

/// No idle time is charged to locks or to others' words.
fn no_loss_by_waiting(point: &Point) {
    assert!(idle_in_locks_s(point) < 0.005, "{:#?}", point.roots);
    for kind in [RootKind::Pipe, RootKind::Sleep, RootKind::Child, RootKind::Throttled] {
        assert_eq!(idle_s(point, kind), 0.0, "{:#?}", point.roots);
    }
}

#[test]
fn hogs_wait_for_cpus_and_not_for_locks() {
    let place = Place::new();
    let cpus = std::thread::available_parallelism().unwrap().get();
    let hogs = format!(
        "i=0; while [ $i -lt {} ]; do timeout 1 sh -c 'while :; do :; done' & i=$((i+1)); done; wait",
        12 * cpus
    );
    let (_, point) = place.point(&["-q", "--", "sh", "-c", &hogs]);
    shares_add_up(&point);
    assert!(idle_in_locks_s(&point) < 0.02, "{:#?}", point.roots);
    let seen = point.recorded.as_ref().unwrap();
    // each of them is there for a second, in which all of them together get at most the seconds that there are
    let (busy, runnable) = (seen.busy_s.unwrap(), seen.runnable_s.unwrap());
    assert!(runnable > 12.0 * cpus as f64 - busy - 1.0, "{seen:?}");
    // from when the first hogs run until they end there is nothing idle; before and after is ours
    assert!(seen.idle_s.unwrap() <= seen.capacity_s - cpus as f64 * 0.9, "{seen:?}");
}

#[test]
fn a_chain_of_futexes_is_followed_to_the_one_that_is_held_asleep() {
    let place = Place::new();
    let program = place.program("chain");
    let (output, point) = place.point(&["-q", "--", &program]);
    shares_add_up(&point);
    // the program's own stamps: addresses of the locks, and microseconds that a and b waited
    let said = text(&output.stdout);
    let words: Vec<&str> = said.split_whitespace().collect();
    let (first, second) = (words[0], words[1]);
    let (a_us, b_us): (f64, f64) = (words[2].parse().unwrap(), words[3].parse().unwrap());
    let within = |seconds: f64, us: f64| {
        let off = (seconds * 1e6 - us).abs();
        assert!(off <= (0.02 * us).max(5.0 * 50.0), "{seconds} s, {us} us");
    };
    let of = |object: &Option<String>, address: &str| {
        object.as_deref().is_some_and(|o| o.contains(&format!("{address} ")))
    };
    let root = point.roots.iter().find(|r| of(&r.lock.object, second)).unwrap();
    assert_eq!(root.lock.kind, RootKind::Futex);
    within(root.wait_s.unwrap(), b_us);
    assert_eq!(root.holders[0].comm, "c");
    // c sleeps for 100 ms of each wait, whenever it gets a CPU afterwards
    let split = root.split.as_ref().unwrap();
    assert!(split.holder_blocked > 0.5 && split.unknown < 0.1, "{split:?}");
    let through = root.waits_through.iter().find(|t| of(&t.object, first));
    within(through.unwrap().wait_s.unwrap(), a_us);
}

/// A holder frees a mutex, and before it wakes who waits, a thief has taken it in user space, where nobody sees it.
#[test]
fn the_time_of_a_thief_is_not_that_of_who_was_robbed() {
    let place = Place::new();
    let program = place.program("thief");
    let (output, point) = place.point(&["-q", "--", &program]);
    shares_add_up(&point);
    let said = text(&output.stdout);
    let words: Vec<&str> = said.split_whitespace().collect();
    let (waited_us, stolen_us): (f64, f64) = (words[1].parse().unwrap(), words[2].parse().unwrap());
    let object = format!("{} ", words[0]);
    let root = point.roots.iter().find(|r| r.lock.object.as_deref().is_some_and(|o| o.contains(&object)));
    let root = root.unwrap_or_else(|| panic!("{:#?}", point.roots));
    let wait_us = root.wait_s.unwrap() * 1e6;
    // ten sleeps
    let allowed = (0.02 * waited_us).max(10.0 * 50.0);
    assert!((wait_us - waited_us).abs() <= allowed, "{wait_us}: {said}");
    let of =
        |comm: &str| root.holders.iter().filter(|h| h.comm == comm).map(|h| h.share * wait_us).sum::<f64>();
    let split = root.split.as_ref().unwrap();
    assert!(of("holder") <= waited_us - stolen_us + allowed, "{said}{root:#?}");
    // who waits is woken when the thief has the lock: until it runs, that is a hand-off
    let to_thief = of("thief") + (split.unknown + split.hand_off) * wait_us;
    assert!(to_thief >= stolen_us - allowed, "{said}{root:#?}");
    assert!(stolen_us > 0.0, "{said}");
}

#[test]
fn threads_that_map_memory_wait_for_their_mmap_lock() {
    let place = Place::new();
    let program = place.program("map");
    let (_, point) = place.point(&["-q", "--", &program]);
    shares_add_up(&point);
    let root = lock(&point, "mm_struct.mmap_lock");
    assert!(root.lock.object.as_deref().unwrap().contains("address space of process"));
    assert!(root.wait_s.unwrap() > 0.0, "{root:?}");
}

#[test]
fn the_slow_steps_of_a_build_are_named() {
    let place = Place::new();
    // A step that lasts until 50 ms of CPU time have idled meanwhile, for some seconds at most, and says how much has.
    let slow = "idle() { read -r cpu a b c now rest < /proc/stat; }\n\
        idle; before=$now; n=0\n\
        while [ $((now - before)) -lt 5 ] && [ $n -lt 40000 ]; do idle; n=$((n+1)); done\n\
        echo $((now - before)) > $1\n";
    std::fs::write(place.file("slow.sh"), slow).unwrap();
    std::fs::write(place.file("link.sh"), slow).unwrap();
    let makefile = "prog: a.o b.o slow.o\n\tsh ./link.sh $@\n%.o:\n\ttouch $@\nslow.o:\n\tsh ./slow.sh $@\n";
    std::fs::write(place.file("Makefile"), makefile).unwrap();
    let (output, point) = place.point(&["-q", "--", "make", "-j2"]);
    assert!(output.status.success());
    shares_add_up(&point);
    for (command, file) in [("sh ./slow.sh slow.o", "slow.o"), ("sh ./link.sh prog", "prog")] {
        let said: f64 = std::fs::read_to_string(place.file(file)).unwrap().trim().parse().unwrap();
        let of = |r: &&result::Root| r.lock.kind == RootKind::Serial && r.lock.class == command;
        let idle = point.roots.iter().find(of).and_then(|r| r.idle_cpu_s).unwrap_or(0.0);
        // what idled behind it is charged to it; /proc/stat counts in steps of 10 ms
        assert!(idle > 0.5 * (said - 2.0) * 0.01, "{command}: {idle} s of {said}, {:#?}", point.roots);
    }
    assert!(idle_in_locks_s(&point) < 0.01, "{:#?}", point.roots);
}
