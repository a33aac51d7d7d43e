use super::*;
use trace::{Trace, text};

fn of(text: &str) -> Option<Timeline> {
    let trace: Trace = text::parse(text).unwrap();
    timeline(|| Ok(trace.source())).unwrap()
}

/// `state@begin+length/lock`, one word an interval, whole microseconds.
fn row(timeline: &Timeline, comm: &str) -> String {
    let row = timeline.rows.iter().find(|r| r.comm == comm).unwrap();
    let words: Vec<String> = row
        .intervals
        .iter()
        .map(|i| {
            let lock = i.lock.map_or(String::new(), |l| format!("/{}", timeline.locks[l as usize]));
            format!("{}@{:.0}+{:.0}{lock}", i.state.words().split(' ').next().unwrap(), i.at_us, i.us)
        })
        .collect();
    words.join(" ")
}

const CHAIN: &str = "
meta hz=250 online=0,1 allowed=0,1
task A scope name=a
task B scope name=b
task C scope name=c
lock L1 mutex class=i_rwsem object=dir
lock L2 mutex class=agi
0 cpu0 window start
0 cpu0 seed B running
0 cpu1 seed C running
0 cpu0 seed A runnable
100 cpu0 begin B L2 mutex spin owner=C
101 cpu0 switch B -> A D
200 cpu0 begin A L1 mutex owner=B
201 cpu0 switch A -> idle0 D
500 cpu1 wake C -> B
510 cpu0 switch idle0 -> B R
511 cpu0 end B L2
600 cpu0 wake B -> A
700 cpu0 switch B -> A S syscall=35
701 cpu0 end A L1
1000 cpu0 window end
";

#[test]
fn a_chain_is_drawn_with_states_locks_and_hand_offs() {
    let t = of(CHAIN).unwrap();
    assert_eq!((t.start_s, t.length_us), (0.0, 1000.0), "the stretch ends with the window");
    assert_eq!(
        row(&t, "b"),
        "running@0+100 spinning@100+1/agi waiting@101+399/agi runnable@500+10/agi spinning@510+1/agi running@511+189 blocked@700+300"
    );
    assert_eq!(
        row(&t, "a"),
        "runnable@0+101 running@101+99 running@200+1 waiting@201+399/i_rwsem, dir runnable@600+100/i_rwsem, dir running@700+1 running@701+299"
    );
    let hand_offs: Vec<(&str, &str, f64, f64, Option<bool>)> = t
        .hand_offs
        .iter()
        .map(|h| {
            let name = |i: u32| t.rows[i as usize].comm.as_str();
            (name(h.from.unwrap()), name(h.to), h.released_us, h.runs_us, h.cpu_idle)
        })
        .collect();
    assert_eq!(hand_offs, [("c", "b", 500.0, 510.0, Some(true)), ("b", "a", 600.0, 700.0, Some(false))]);
}

#[test]
fn intervals_of_a_task_do_not_overlap_and_lie_in_the_stretch() {
    let t = of(CHAIN).unwrap();
    for row in &t.rows {
        let mut end = 0.0;
        for i in &row.intervals {
            assert!(i.at_us >= end - 1e-9 && i.us > 0.0);
            end = i.at_us + i.us;
        }
        assert!(end <= t.length_us + 1e-9);
    }
}

#[test]
fn strangers_are_rows_only_when_they_hand_a_lock_over() {
    let text = CHAIN
        .replace("task C scope name=c", "task C name=c\ntask D name=stranger")
        .replace("0 cpu0 seed A runnable", "0 cpu0 seed A runnable\n0 cpu0 seed D blocked S");
    let t = of(&text).unwrap();
    let rows: Vec<(&str, Option<bool>)> = t.rows.iter().map(|r| (r.comm.as_str(), r.of_workload)).collect();
    assert_eq!(rows, [("b", Some(true)), ("a", Some(true)), ("c", Some(false))]);
}

#[test]
fn nothing_that_waits_is_no_timeline() {
    let text = "meta hz=250 online=0 allowed=0\ntask A scope\n0 cpu0 window start\n0 cpu0 seed A running\n1000 cpu0 window end\n";
    assert_eq!(of(text), None);
}

#[test]
fn a_futex_wait_ends_when_its_task_runs_again() {
    let text = "
meta hz=250 online=0 allowed=0
task A scope name=a
lock F futex class=futex
0 cpu0 window start
0 cpu0 seed A running
100 cpu0 switch A -> idle0 S
100 cpu0 blocked A F
300 cpu0 wake irq -> A
310 cpu0 switch idle0 -> A R
400 cpu0 switch A -> idle0 S
900 cpu0 window end
";
    assert_eq!(
        row(&of(text).unwrap(), "a"),
        "running@0+100 waiting@100+200/futex runnable@300+10/futex running@310+90 blocked@400+500"
    );
}

#[test]
fn lost_events_leave_a_gap_and_not_a_guess() {
    let text = "
meta hz=250 online=0 allowed=0
task A scope name=a
lock L mutex class=l
0 cpu0 window start
0 cpu0 seed A running
50 cpu0 begin A L mutex
60 cpu0 switch A -> idle0 D
100 cpu0 wake irq -> A
110 cpu0 switch idle0 -> A R
120 cpu0 end A L
300 cpu0 lost count=5 from=200
400 cpu0 switch A -> idle0 S
900 cpu0 window end
";
    let t = row(&of(text).unwrap(), "a");
    assert!(t.ends_with("running@120+80 blocked@400+500"), "{t}");
}
