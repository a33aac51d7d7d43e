//! Runs targets for real: each in a process that is alone in its own mount and PID namespace.

#![allow(clippy::unwrap_used, reason = "a test helper fails by panicking")]
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use target::{Cleanup, Facts, Namespace, Settings, Spec};

/// The environment variable by which processes of a test are found.
const MARK: &str = "TARGET_TEST_MARK";

/// One target to be made and a script to run in it.
pub struct Job {
    pub spec: Spec,
    pub settings: Settings,
    pub keep_visible: Vec<PathBuf>,
    pub script: String,
    pub leave: bool,
    pub cwd: PathBuf,
    pub cleanup: Cleanup,
    pub pid_namespace: bool,
    mark: String,
}

/// What became of a job.
pub struct Outcome {
    pub facts: Option<Facts>,
    /// What the script printed.
    pub said: String,
    pub stderr: String,
    pub success: bool,
}

impl Job {
    pub fn new(spec: &str, script: &str) -> Self {
        Self::with(spec, script, Settings::default())
    }

    pub fn with(spec: &str, script: &str, settings: Settings) -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "this test mounts file systems: run the tests as root (`sudo make test`)"
        );
        let spec: Spec = spec.parse().unwrap();
        let cleanup = Cleanup::plan(&spec, &settings).unwrap();
        let mark = format!("{}-{:?}-{:?}", std::process::id(), std::thread::current().id(), Instant::now());
        let mark = mark.replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "");
        let keep_visible = Vec::new();
        let cwd = PathBuf::from("/");
        Self {
            spec,
            settings,
            keep_visible,
            script: script.to_owned(),
            leave: true,
            cwd,
            cleanup,
            pid_namespace: true,
            mark,
        }
    }

    pub fn start(&self) -> Child {
        self.start_in(&[])
    }

    /// Starts it behind the words of another command.
    pub fn start_in(&self, before: &[&str]) -> Child {
        let job = serde_json::json!({
            "spec": self.spec,
            "settings": self.settings,
            "outside": Namespace::current().unwrap(),
            "cleanup": self.cleanup,
            "keep_visible": self.keep_visible,
            "script": self.script,
            "leave": self.leave,
            "fresh_proc": self.pid_namespace,
        });
        let mut words: Vec<OsString> = before.iter().map(OsString::from).collect();
        words.extend(["unshare", "--mount", "--propagation", "unchanged"].map(OsString::from));
        if self.pid_namespace {
            words.extend(["--pid", "--fork", "--kill-child"].map(OsString::from));
        }
        words.extend([probe().into(), job.to_string().into()]);
        Command::new(&words[0])
            .args(&words[1..])
            .env(MARK, &self.mark)
            .env("PROBE", probe())
            .current_dir(&self.cwd)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Runs it to its end.
    pub fn outcome(&self) -> Outcome {
        let output = self.start().wait_with_output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let (first, rest) = stdout.split_once('\n').unwrap_or_default();
        Outcome {
            facts: serde_json::from_str(first).ok(),
            said: rest.to_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            success: output.status.success(),
        }
    }

    /// Runs it to its end, which has to be a good one.
    pub fn succeed(&self) -> (Facts, String) {
        let outcome = self.outcome();
        assert!(outcome.success, "{}: {}{}", self.spec, outcome.said, outcome.stderr);
        (outcome.facts.unwrap(), outcome.said)
    }

    /// Runs it to its end, which has to be an error of one line.
    pub fn fail(&self) -> String {
        let outcome = self.outcome();
        assert!(!outcome.success, "{} should have failed: {}", self.spec, outcome.said);
        assert_eq!(outcome.stderr.trim_end().lines().count(), 1, "{}", outcome.stderr);
        outcome.stderr.trim_end().to_owned()
    }

    /// Waits until no process of this job is left.
    pub fn wait_until_gone(&self) {
        let wanted = format!("{MARK}={}", self.mark);
        until(&format!("processes of {} end", self.spec), || {
            let Ok(processes) = fs::read_dir("/proc") else { return false };
            !processes.flatten().any(|process| {
                let environment = fs::read(process.path().join("environ")).unwrap_or_default();
                environment.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes())
            })
        });
    }
}

/// SIGKILL for a started job and everything that it started, at one moment. (unshare's own `--kill-child` leaves a
/// gap: a child whose parent dies before it asked for the signal lives on.)
pub fn kill(mut child: Child) {
    let group = Pid::from_child(&child);
    kill_process_group(group, Signal::KILL).unwrap();
    child.wait().unwrap();
}

/// Waits for something that has to come true soon.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(20), "still waiting: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Loop devices whose image has this many bytes.
pub fn loops_of_size(bytes: u64) -> Vec<String> {
    let mut out = Vec::new();
    for entry in fs::read_dir("/sys/block").unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let sectors = fs::read_to_string(entry.path().join("size")).unwrap_or_default();
        if name.starts_with("loop") && sectors.trim().parse() == Ok(bytes / 512) {
            out.push(name);
        }
    }
    out
}

/// The program that makes targets, an example of this crate.
pub fn probe() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let built = own.parent().and_then(|deps| deps.parent()).unwrap().join("examples/target-probe");
    assert!(
        built.exists(),
        "{} is not built: run `cargo test -p target` or build the example first",
        built.display()
    );
    built
}
