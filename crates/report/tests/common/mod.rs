//! A made-up result in the likeness of the reported case. Nothing here was measured: the figures are chosen so that the
//! reports have something of every kind to show.

#![allow(clippy::unwrap_used, dead_code)]

use result::*;

pub const AGI: &str = "AGI of AG 0 on loop0";

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|w| (*w).to_owned()).collect()
}

pub fn estimate(median: f64, relative: f64, rounds: usize) -> Estimate {
    let rounds: Vec<f64> =
        (0..rounds).map(|i| median * (1.0 + relative * ((i as f64 * 2.399).sin()))).collect();
    Estimate {
        median,
        mad: median * relative * 0.6,
        low: median * (1.0 - relative * 0.7),
        high: median * (1.0 + relative * 0.7),
        rounds,
    }
}

/// A point whose budget adds up: user and idle are given, the rest is system.
pub fn point(target: &str, tasks: u32, rate: f64, relative: f64, user: f64, idle: f64) -> Point {
    let cpus = 2.0;
    let total = cpus * 1e6 / rate;
    let unused = (cpus - f64::from(tasks)).max(0.0) * 1e6 / rate;
    let steal = total * 0.002;
    let system = total - unused - user - idle - steal;
    let ops = estimate(rate, relative, 8);
    let each = rate / f64::from(tasks);
    let rounds = ops
        .rounds
        .iter()
        .enumerate()
        .map(|(i, r)| Round {
            round: i as u32,
            order: (i * 9 + tasks as usize) as u32,
            kept: true,
            warm_up_s: 0.3,
            warm_up_steady: true,
            window_s: 1.0,
            operations: *r,
            ops_per_s: *r,
            per_task_ops_per_s: vec![r / f64::from(tasks); tasks as usize],
            cpu: CpuSeconds {
                capacity: Some(2.0),
                user: Some(user * r / 1e6),
                system: Some(system * r / 1e6),
                idle: Some((idle + unused) * r / 1e6),
                steal: Some(steal * r / 1e6),
                ..Default::default()
            },
            other_load_s: Some(0.01),
            pressure: Some(Pressure { cpu_some: Some(0.02), io_some: Some(0.0), memory_some: Some(0.0) }),
            procs_running: Some(2.1),
            taints: if i == 3 && target == "xfs" { vec![Taint::Steal { share: 0.03 }] } else { Vec::new() },
            ..Default::default()
        })
        .collect();
    Point {
        workload: "create_unlink".into(),
        target: target.into(),
        tasks,
        valid: true,
        ops_per_s: Some(ops),
        per_task_ops_per_s: Some(PerTask {
            min: each * 0.97,
            median: each,
            max: each * 1.04,
            rates: vec![each; tasks as usize],
        }),
        budget_us_per_op: Some(Budget {
            user: Some(user),
            system: Some(system),
            steal: Some(steal),
            idle: Some(idle),
            unused: Some(unused),
            total: Some(total),
            unaccounted: Some(0.0),
            ..Default::default()
        }),
        rounds,
        ..Default::default()
    }
}

fn unlink_path() -> Vec<String> {
    strings(&[
        "down",
        "xfs_buf_lock",
        "xfs_buf_find_lock",
        "xfs_buf_get_map",
        "xfs_buf_read_map",
        "xfs_trans_read_buf_map",
        "xfs_read_agi",
        "xfs_iunlink",
        "xfs_dir_remove_child",
        "xfs_remove",
        "xfs_vn_unlink",
        "vfs_unlink",
        "do_unlinkat",
        "__x64_sys_unlink",
        "do_syscall_64",
        "entry_SYSCALL_64_after_hwframe",
    ])
}

fn create_path() -> Vec<String> {
    strings(&[
        "down",
        "xfs_buf_lock",
        "xfs_buf_find_lock",
        "xfs_buf_get_map",
        "xfs_buf_read_map",
        "xfs_trans_read_buf_map",
        "xfs_read_agi",
        "xfs_ialloc_read_agi",
        "xfs_dialloc",
        "xfs_create",
        "xfs_generic_create",
        "path_openat",
        "do_filp_open",
        "do_sys_openat2",
        "__x64_sys_openat",
        "do_syscall_64",
        "entry_SYSCALL_64_after_hwframe",
    ])
}

fn stacks(operations: f64, cost: f64) -> Stacks {
    let mut frames: Vec<String> = Vec::new();
    let mut ids = |names: Vec<String>| -> Vec<u32> {
        names
            .into_iter()
            .map(|n| match frames.iter().position(|f| *f == n) {
                Some(i) => i as u32,
                None => {
                    frames.push(n);
                    frames.len() as u32 - 1
                }
            })
            .collect()
    };
    let unlink = ids(unlink_path());
    let create = ids(create_path());
    let rwsem = ids(strings(&[
        "rwsem_down_write_slowpath",
        "down_write",
        "path_openat",
        "do_filp_open",
        "do_sys_openat2",
        "__x64_sys_openat",
        "do_syscall_64",
        "entry_SYSCALL_64_after_hwframe",
    ]));
    let run = ids(strings(&[
        "xfs_trans_commit",
        "xfs_create",
        "xfs_generic_create",
        "path_openat",
        "do_filp_open",
        "do_sys_openat2",
        "__x64_sys_openat",
        "do_syscall_64",
        "entry_SYSCALL_64_after_hwframe",
    ]));
    let user = ids(strings(&["unlink", "create_unlink", "main"]));
    let stack = |kernel: &Vec<u32>, us: f64| Stack {
        comm: "perfloss".into(),
        of_workload: Some(true),
        kernel: kernel.clone(),
        user: user.clone(),
        us,
        count: (us / 25.0) as u64,
    };
    let off_cpu = vec![
        stack(&rwsem, operations * 32.6 * cost),
        stack(&unlink, operations * 13.0 * cost),
        stack(&create, operations * 11.8 * cost),
    ];
    let on_cpu = vec![stack(&run, operations * (60.0 - 20.0 * cost)), stack(&unlink, operations * 3.0)];
    Stacks { frames, off_cpu, on_cpu, operations: Some(operations) }
}

fn timeline() -> Timeline {
    let mut rows = vec![
        TimelineRow { tid: 4711, comm: "perfloss".into(), of_workload: Some(true), intervals: vec![] },
        TimelineRow { tid: 4712, comm: "perfloss".into(), of_workload: Some(true), intervals: vec![] },
        TimelineRow {
            tid: 97,
            comm: "kworker/0:1-xfs-inodegc".into(),
            of_workload: Some(false),
            intervals: vec![],
        },
    ];
    let mut hand_offs = Vec::new();
    for k in 0..12 {
        let t = f64::from(k) * 80.0;
        let mut put = |row: usize, at: f64, us: f64, state: TaskState, lock: Option<u32>| {
            rows[row].intervals.push(Interval {
                at_us: t + at,
                us,
                state,
                cpu: (state == TaskState::Running).then_some(row as u32 % 2),
                lock,
            });
        };
        put(0, 0.0, 30.0, TaskState::Running, None);
        put(0, 30.0, 50.0, TaskState::BlockedLock, Some(0));
        put(1, 0.0, 4.0, TaskState::Spinning, Some(1));
        put(1, 4.0, 36.0, TaskState::BlockedLock, Some(1));
        put(1, 40.0, 40.0, TaskState::Running, None);
        put(2, 0.0, 20.0, TaskState::Blocked, None);
        put(2, 20.0, 8.0, TaskState::Runnable, None);
        put(2, 28.0, 22.0, TaskState::Running, None);
        put(2, 50.0, 30.0, TaskState::Blocked, None);
        hand_offs.push(HandOff {
            lock: Some(1),
            from: Some(0),
            to: 1,
            released_us: t + 30.0,
            runs_us: t + 40.0,
            cpu_idle: Some(true),
        });
        hand_offs.push(HandOff {
            lock: Some(0),
            from: Some(2),
            to: 0,
            released_us: t + 50.0,
            runs_us: t + 80.0,
            cpu_idle: Some(true),
        });
    }
    Timeline {
        start_s: 1.25,
        length_us: 960.0,
        rows,
        locks: vec![format!("xfs_buf.b_sema, {AGI}"), "inode.i_rwsem, directory 131 on loop0".into()],
        hand_offs,
    }
}

fn captured(mut p: Point) -> Point {
    let operations = p.rate().unwrap() * 2.0;
    p.capture = Some(Capture {
        events: 481_332,
        throughput_ratio: Some(0.97),
        window_s: 2.0,
        operations: Some(operations),
        coverage: Some(1.0),
        idle_share: Some(0.36),
        trace: Some("create_unlink-xfs-2.trace".into()),
        ..Default::default()
    });
    if let Some(budget) = &mut p.budget_us_per_op {
        budget.spin = Some(3.9);
        budget.system = budget.system.map(|s| s - 3.9);
    }
    let cost = if p.target == "xfs" { 1.0 } else { 0.3 };
    p.stacks = Some(stacks(operations, cost));
    p
}

fn storm(p: Point) -> Point {
    let mut p = captured(p);
    p.warnings.push(Warning::RoundsDiffer {
        spread: 0.62,
        because: Some("hand-offs of 1–4 ms, on idle CPUs, in rounds 2 and 3".into()),
    });
    p.roots = vec![
        Root {
            lock: Lock {
                kind: RootKind::Semaphore,
                class: "xfs_buf.b_sema".into(),
                object: Some(AGI.into()),
            },
            idle_us_per_op: Some(29.0),
            share_of_idle: Some(0.91),
            wait_us_per_op: Some(24.8),
            wait_s: Some(1.15),
            waits: Some(46_000),
            split: Some(Split {
                holder_running: 0.33,
                holder_blocked: 0.04,
                holder_runnable: 0.01,
                hand_off: 0.61,
                hand_off_cpu_idle: 0.59,
                hand_off_cpu_busy: 0.02,
                unknown: 0.01,
            }),
            spin_us_per_op: Some(0.0),
            paths: vec![
                Path { stack: unlink_path(), share: 0.48, entry: Some("unlink".into()) },
                Path { stack: create_path(), share: 0.44, entry: Some("create".into()) },
                Path {
                    stack: strings(&[
                        "down",
                        "xfs_buf_lock",
                        "xfs_buf_find_lock",
                        "xfs_buf_get_map",
                        "xfs_buf_read_map",
                        "xfs_trans_read_buf_map",
                        "xfs_read_agi",
                        "xfs_difree",
                        "xfs_ifree",
                        "xfs_inactive_ifree",
                        "xfs_inodegc_worker",
                        "process_one_work",
                    ]),
                    share: 0.08,
                    entry: Some("worker".into()),
                },
            ],
            holders: vec![
                Holder {
                    comm: "kworker/0:1-xfs-inodegc".into(),
                    share: 0.23,
                    of_workload: Some(false),
                    stacks: vec![Path {
                        stack: strings(&["xfs_difree_inobt", "xfs_difree", "xfs_inactive_ifree"]),
                        share: 0.7,
                        entry: None,
                    }],
                },
                Holder { comm: "perfloss".into(), share: 0.15, of_workload: Some(true), stacks: Vec::new() },
            ],
            waits_through: vec![WaitThrough {
                kind: RootKind::RwsemWrite,
                class: "inode.i_rwsem".into(),
                object: Some("directory 131 on loop0".into()),
                wait_us_per_op: Some(32.6),
                wait_s: Some(1.5),
            }],
            ..Default::default()
        },
        Root {
            lock: Lock { kind: RootKind::Io, class: "log force on loop0".into(), object: None },
            idle_us_per_op: Some(1.3),
            share_of_idle: Some(0.04),
            wait_us_per_op: Some(1.4),
            paths: vec![Path {
                stack: strings(&["xlog_wait_on_iclog", "xfs_log_force"]),
                share: 1.0,
                entry: None,
            }],
            ..Default::default()
        },
        Root {
            lock: Lock { kind: RootKind::NothingToRun, ..Default::default() },
            idle_us_per_op: Some(1.6),
            share_of_idle: Some(0.05),
            ..Default::default()
        },
    ];
    p.remedies = vec![
        Remedy {
            what: "own directory per task".into(),
            how: RemedyHow::Measured,
            ops_per_s: Some(93_400.0),
            gain: Some(4.02),
            low: Some(3.9),
            high: Some(4.2),
            root: Some("xfs_buf.b_sema".into()),
            note: None,
        },
        Remedy {
            what: "twice as many allocation groups".into(),
            how: RemedyHow::Measured,
            ops_per_s: Some(23_900.0),
            gain: Some(1.03),
            low: Some(0.9),
            high: Some(1.1),
            root: Some("xfs_buf.b_sema".into()),
            note: Some("no help alone, one directory means one allocation group".into()),
        },
        Remedy {
            what: "adaptive spinning".into(),
            how: RemedyHow::NotKnown,
            root: Some("xfs_buf.b_sema".into()),
            ..Default::default()
        },
    ];
    let node = |kind, label: &str, detail: Option<&str>, lock_kind| ChainNode {
        kind,
        label: label.into(),
        detail: detail.map(str::to_owned),
        lock_kind,
    };
    let edge = |from, to, us: f64| ChainEdge {
        from,
        to,
        wait_s: us * 46_400.0 / 1e6,
        us_per_op: Some(us),
        waits: (us * 1000.0) as u64,
    };
    p.chains = Some(Chains {
        nodes: vec![
            node(ChainNodeKind::Tasks, "perfloss", Some("2 tasks"), None),
            node(
                ChainNodeKind::Lock,
                "inode.i_rwsem",
                Some("directory 131 on loop0"),
                Some(RootKind::RwsemWrite),
            ),
            node(ChainNodeKind::Root, "xfs_buf.b_sema", Some(AGI), Some(RootKind::Semaphore)),
            node(ChainNodeKind::Tasks, "kworker/0:1-xfs-inodegc", None, None),
        ],
        edges: vec![edge(0, 1, 32.6), edge(1, 2, 31.0), edge(0, 2, 24.8), edge(2, 3, 14.4), edge(3, 2, 2.0)],
    });
    p.timeline = Some(timeline());
    p
}

/// The reported case on a small machine, as a finished run.
pub fn result() -> RunResult {
    let mut r = RunResult::new(MadeBy::Run, 7);
    r.complete = true;
    r.perfloss_version = "0.1.0".into();
    r.started = "2026-11-30T09:12:00Z".into();
    r.elapsed_s = 63.0;
    r.command = strings(&["perfloss", "run", "create_unlink", "-t", "1,2", "--on", "tmpfs,ext4,xfs"]);
    r.options = Options {
        tasks: vec![1, 2],
        rounds: 8,
        seconds: 1.0,
        pinned: true,
        capture: true,
        ..Default::default()
    };
    r.machine = Machine {
        host: "made-up".into(),
        kernel: "6.18.0".into(),
        arch: "x86_64".into(),
        os: "Debian GNU/Linux 12".into(),
        cpu_model: "Example CPU".into(),
        cpus_online: 2,
        allowed_cpus: vec![0, 1],
        cores: Some(2),
        smt: Some(false),
        memory_bytes: 8 << 30,
        steal_share: Some(0.002),
        root: true,
        ..Default::default()
    };
    r.workloads = vec![Workload {
        name: "create_unlink".into(),
        version: "1".into(),
        description: "create, close and unlink a file in one shared directory".into(),
        operation: "create + close + unlink".into(),
        ..Default::default()
    }];
    r.targets = ["tmpfs", "ext4", "xfs"]
        .map(|name| Target {
            name: name.into(),
            kind: name.into(),
            facts: [
                ("mkfs".to_owned(), format!("mkfs.{name} -q /dev/loop0")),
                ("mount options".to_owned(), "rw,noatime".to_owned()),
            ]
            .into(),
        })
        .to_vec();
    r.points = vec![
        // Not in order: rounds are interleaved and reports have to sort.
        storm(point("xfs", 2, 23_200.0, 0.31, 0.4, 31.9)),
        point("tmpfs", 1, 103_600.0, 0.01, 0.2, 0.0),
        point("tmpfs", 2, 208_300.0, 0.01, 0.2, 0.05),
        point("ext4", 1, 52_600.0, 0.01, 0.4, 0.0),
        captured(point("ext4", 2, 79_500.0, 0.02, 0.5, 0.1)),
        point("xfs", 1, 40_900.0, 0.01, 0.3, 0.0),
    ];
    for p in &mut r.points {
        p.warnings.push(Warning::TickSamples { points: 3.0 });
    }
    let a =
        PointRef { workload: "create_unlink".into(), target: "tmpfs".into(), tasks: 2, ..Default::default() };
    r.comparisons = vec![Comparison {
        b: PointRef { target: "xfs".into(), ..a.clone() },
        a,
        ratio: Some(0.111),
        low: Some(0.09),
        high: Some(0.13),
        p_value: Some(0.0002),
        verdict: Verdict::Slower,
        because: vec!["idle: semaphore xfs_buf.b_sema".into()],
        ..Default::default()
    }];
    r
}

/// A recording of a build.
pub fn recording() -> RunResult {
    let mut r = RunResult::new(MadeBy::Record, 1);
    r.complete = true;
    r.command = strings(&["perfloss", "record", "--", "make", "-j24"]);
    r.machine = Machine { kernel: "6.18.0".into(), allowed_cpus: (0..24).collect(), ..Default::default() };
    let root = |kind, class: &str, object: Option<&str>, share: f64, when: Option<&str>| Root {
        lock: Lock { kind, class: class.into(), object: object.map(str::to_owned) },
        share_of_idle: Some(share),
        idle_cpu_s: Some(287.0 * share),
        when: when.map(str::to_owned),
        ..Default::default()
    };
    let mut lock = root(RootKind::Semaphore, "xfs_buf.b_sema", Some("AGI of AG 2 on nvme0n1p3"), 0.31, None);
    lock.split =
        Some(Split { hand_off: 0.64, hand_off_cpu_idle: 0.64, holder_running: 0.36, ..Default::default() });
    r.points = vec![Point {
        workload: "make -j24".into(),
        target: "-".into(),
        mode: Mode::Recorded,
        tasks: 24,
        valid: true,
        recorded: Some(Recorded {
            wall_s: 41.3,
            capacity_s: 991.2,
            busy_s: Some(704.0),
            idle_s: Some(287.0),
            busy_share: Some(0.71),
            user_s: Some(600.0),
            system_s: Some(99.0),
            runnable_s: Some(20.0),
            unaccounted_s: Some(0.4),
            exit_status: Some(0),
            ..Default::default()
        }),
        capture: Some(Capture { events: 9_000_000, ..Default::default() }),
        roots: vec![
            root(
                RootKind::Serial,
                "ld -o vmlinux (1 process, 6.1 s alone)",
                None,
                0.48,
                Some("at 34.2–40.3 s"),
            ),
            lock,
            root(RootKind::Io, "reads on nvme0n1", None, 0.12, Some("first 3 s, cold cache")),
            root(RootKind::NothingToRun, "make reads Makefiles", None, 0.09, None),
        ],
        ..Default::default()
    }];
    r
}

/// A string that every format has to make harmless.
pub const HOSTILE: &str =
    "</script><script>alert(1)</script>\u{1b}[31m\u{7}\n|`*_[x](javascript:alert(1))\u{202e}\"'&;\\";

/// The same result with hostile names everywhere and absurd numbers.
pub fn hostile() -> RunResult {
    let mut r = result();
    let evil = || HOSTILE.to_owned();
    r.perfloss_version = evil();
    r.started = evil();
    r.command = vec![evil(), evil()];
    r.machine.host = evil();
    r.machine.kernel = evil();
    r.machine.cpu_model = evil();
    r.machine.governor = Some(evil());
    r.machine.facts.insert(evil(), evil());
    r.machine.versions.insert(evil(), evil());
    r.options.other.insert(evil(), evil());
    r.elapsed_s = f64::MAX;
    r.options.seconds = -1e300;
    r.options.rounds = u32::MAX;
    r.machine.cpus_online = u32::MAX;
    for w in &mut r.workloads {
        w.name = evil();
        w.description = evil();
        w.operation = evil();
        w.version = evil();
        w.facts.insert(evil(), evil());
    }
    for t in &mut r.targets {
        t.name = format!("{}{}", t.name, evil());
        t.kind = evil();
        t.facts.insert(evil(), evil());
    }
    r.warnings.push(Warning::Other { text: evil() });
    r.warnings.push(Warning::Steal { share: f64::MAX });
    for (i, p) in r.points.iter_mut().enumerate() {
        p.workload = evil();
        p.target = format!("{}{}", p.target, evil());
        p.warnings.push(Warning::NoCapture { because: evil() });
        if let Some(b) = &mut p.budget_us_per_op {
            let many = (0..2000).map(|i| NamedCost { name: format!("{i}{HOSTILE}"), us_per_op: f64::MAX });
            b.system_by = many.collect();
            b.system_by_group = vec![NamedCost { name: evil(), us_per_op: f64::MIN_POSITIVE }];
            b.spin_by = vec![NamedCost { name: evil(), us_per_op: -f64::MAX }];
        }
        for root in &mut p.roots {
            root.lock.class = evil();
            root.lock.object = Some(evil());
            root.when = Some(evil());
            root.idle_us_per_op = Some(f64::MAX);
            for path in &mut root.paths {
                path.entry = Some(evil());
                path.stack.insert(0, evil());
                path.share = -f64::MAX;
            }
            for h in &mut root.holders {
                h.comm = evil();
                h.share = f64::MAX;
            }
            for w in &mut root.waits_through {
                w.class = evil();
                w.object = Some(evil());
            }
        }
        for m in &mut p.remedies {
            m.what = evil();
            m.note = Some(evil());
        }
        if let Some(c) = &mut p.chains {
            for n in &mut c.nodes {
                n.label = evil();
                n.detail = Some(evil());
            }
            c.edges.push(ChainEdge {
                from: u32::MAX,
                to: 0,
                wait_s: f64::MAX,
                us_per_op: Some(-f64::MAX),
                waits: u64::MAX,
            });
        }
        if let Some(s) = &mut p.stacks {
            for f in &mut s.frames {
                f.push_str(HOSTILE);
            }
            for stack in s.off_cpu.iter_mut().chain(&mut s.on_cpu) {
                stack.comm = evil();
                stack.kernel.push(u32::MAX);
            }
            s.off_cpu[0].us = -1.0;
            s.off_cpu[2].us = 1e290;
            s.off_cpu[1].kernel = vec![0; 100_000];
        }
        if let Some(t) = &mut p.timeline {
            t.rows[0].comm = evil();
            t.locks = vec![evil()];
            t.rows[0].intervals[0].us = f64::MAX;
            t.rows[1].intervals[0].at_us = -f64::MAX;
            t.hand_offs[0].to = u32::MAX;
            t.hand_offs[1].from = Some(u32::MAX);
            t.length_us = 0.0;
        }
        match i {
            1 => {
                let e = p.ops_per_s.as_mut().unwrap();
                e.median = f64::MAX;
                e.low = -f64::MAX;
                e.high = f64::MAX;
            }
            2 => {
                p.valid = false;
                p.invalid_because = Some(evil());
            }
            3 => p.tasks = u32::MAX,
            4 => p.ops_per_s.as_mut().unwrap().median = 0.0,
            _ => {}
        }
    }
    for c in &mut r.comparisons {
        c.a.target = evil();
        c.b.workload = evil();
        c.ratio = Some(f64::MAX);
        c.because = vec![evil()];
    }
    r
}
