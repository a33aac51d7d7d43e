//! A place of a test's own to run perfloss in, and the search for what a run left behind.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The environment variable by which all processes of a test are found.
const MARK: &str = "PERFLOSS_TEST_MARK";

/// No run of a test takes this long, even beside a build.
const LONGEST: Duration = Duration::from_secs(120);

/// What is left has to be gone this soon after a run or a kill.
const GONE_WITHIN: Duration = Duration::from_secs(5);

static NUMBER: AtomicU64 = AtomicU64::new(0);

/// One short round of the fastest workload, uncaptured, with the output that a person gets.
pub const QUICK: [&str; 11] =
    ["run", "getppid", "-t", "1", "--on", "tmpfs", "-s", "0.1", "--rounds", "1", "--no-capture"];

/// A directory with a `TMPDIR`, a working directory and a directory target, and a mark on all processes.
pub struct Home {
    dir: tempfile::TempDir,
    mark: String,
    /// Size of every image that is made here: nobody else has such loop devices.
    image: u64,
    mounts: BTreeSet<String>,
}

/// How a run ended and what it printed.
#[derive(Debug)]
pub struct Ran {
    /// Exit status; 128 + the signal if one killed it.
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

/// A run that has been started.
pub struct Running {
    pub child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Home {
    pub fn new() -> Home {
        assert!(
            rustix::process::geteuid().is_root(),
            "this test mounts file systems: run the tests as root (`sudo make test`)"
        );
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = tempfile::Builder::new().prefix("perfloss-test-").tempdir().unwrap();
        for name in ["tmp", "place", "work"] {
            fs::create_dir(dir.path().join(name)).unwrap();
            open_to_all(&dir.path().join(name));
        }
        open_to_all(dir.path());
        let process = u64::from(std::process::id());
        Home {
            dir,
            mark: format!("{process}-{number}"),
            // Whole MiB: images are rounded up to that. Large enough for fallocate, whose blocks ext4 frees with its journal only.
            image: (1300 + (process * 131 + number * 17) % 2700) << 20,
            mounts: mounts(),
        }
    }

    /// The working directory of runs.
    pub fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    /// An empty directory, for a directory target.
    pub fn place(&self) -> PathBuf {
        self.dir.path().join("place")
    }

    /// Writes a file into the working directory.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.work().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// Image size of every file system that is made by `run` here.
    pub fn image_size(&self) -> String {
        self.image.to_string()
    }

    /// `perfloss` with arguments, unless `program` is another one that starts it in the end.
    pub fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(self.work())
            .env(MARK, &self.mark)
            .env("TMPDIR", self.dir.path().join("tmp"))
            .env_remove("NO_COLOR")
            .env_remove("COLUMNS")
            .stdin(Stdio::null());
        command
    }

    /// Starts a command with its output in files.
    pub fn start(&self, mut command: Command) -> Running {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let out = self.dir.path().join(format!("out.{number}"));
        let err = self.dir.path().join(format!("err.{number}"));
        command.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
        Running { child: command.spawn().unwrap(), out, err }
    }

    /// Runs `perfloss` with these arguments and looks for what it left.
    pub fn perfloss(&self, arguments: &[&str]) -> Ran {
        let ran = self.start(self.command(perfloss(), arguments)).end();
        self.nothing_is_left();
        ran
    }

    /// Runs `perfloss run` with short windows of one round, no capture, JSON on stdout, and these arguments.
    pub fn measure(&self, arguments: &[&str]) -> Ran {
        let size = self.image_size();
        let usual =
            ["run", "-s", "0.1", "--rounds", "1", "--retries", "0", "--no-capture", "--image-size", &size];
        let mut all = usual.to_vec();
        // What the caller says comes last; clap refuses an option twice, so ours is dropped then.
        for pair in [["-s", "0.1"], ["--rounds", "1"], ["--retries", "0"]] {
            if arguments.contains(&pair[0]) {
                let at = all.iter().position(|a| *a == pair[0]).unwrap();
                all.drain(at..at + 2);
            }
        }
        all.extend(["--json", "--quiet"]);
        all.extend(arguments);
        self.perfloss(&all)
    }

    /// Fails if anything of what was started here is still there after five seconds.
    pub fn nothing_is_left(&self) {
        self.until("processes end", || self.processes().is_empty(), || format!("{:?}", self.processes()));
        self.until("loop devices go", || self.loops().is_empty(), || format!("{:?}", self.loops()));
        let new = || mounts().difference(&self.mounts).cloned().collect::<Vec<_>>();
        self.until("mounts go", || new().is_empty(), || format!("{:?}", new()));
        let files = || {
            let mut left = below(&self.dir.path().join("tmp"));
            left.extend(below(&self.place()));
            left.extend(
                below(&self.work())
                    .into_iter()
                    .filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(".perfloss"))),
            );
            left
        };
        self.until("temporary files go", || files().is_empty(), || format!("{:?}", files()));
    }

    fn until(&self, what: &str, condition: impl Fn() -> bool, left: impl Fn() -> String) {
        let begun = Instant::now();
        while !condition() {
            assert!(begun.elapsed() < GONE_WITHIN, "5 s later, still waiting until {what}: {}", left());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// All processes (with their command lines) that were started here, in whatever namespace.
    pub fn processes(&self) -> Vec<(i32, String)> {
        let wanted = format!("{MARK}={}", self.mark);
        let mut found = Vec::new();
        for process in fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = process.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
            let environment = fs::read(process.path().join("environ")).unwrap_or_default();
            if environment.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes()) {
                let command = fs::read(process.path().join("cmdline")).unwrap_or_default();
                found.push((pid, String::from_utf8_lossy(&command).replace('\0', " ")));
            }
        }
        found
    }

    /// Loop devices whose image was made here.
    pub fn loops(&self) -> Vec<String> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/sys/block").unwrap().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let sectors = fs::read_to_string(entry.path().join("size")).unwrap_or_default();
            if name.starts_with("loop") && sectors.trim().parse() == Ok(self.image / 512) {
                found.push(name);
            }
        }
        found
    }
}

impl Running {
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn signal(&self, signal: Signal) {
        // Fails only if it has ended meanwhile.
        let _ = kill_process(self.pid(), signal);
    }

    /// The process between perfloss and a round, if there is one at this moment.
    pub fn guard(&self) -> Option<Pid> {
        children(self.child.id()).into_iter().find(|&pid| {
            fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero()))
                .is_ok_and(|c| c.trim() == "loss-guard")
        })
    }

    /// What it printed so far.
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.out).unwrap()).into_owned()
    }

    /// What it wrote to standard error so far.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.err).unwrap()).into_owned()
    }

    /// Waits for the end.
    pub fn end(mut self) -> Ran {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if begun.elapsed() > LONGEST {
                self.child.kill().unwrap();
                panic!("it does not end: {}{}", self.stdout(), self.stderr());
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let status = status.code().or(status.signal().map(|s| 128 + s)).unwrap();
        Ran { status, stdout: self.stdout(), stderr: self.stderr() }
    }
}

impl Ran {
    /// The result that was printed; the status has to be this.
    pub fn json(&self, status: i32) -> Value {
        let json: Result<Value, _> = serde_json::from_str(&self.stdout);
        if self.status != status {
            // A whole result is too long a line to be read in a log: what makes it void comes alone.
            let points = json.iter().flat_map(|r| r["points"].as_array()).flatten();
            let why: Vec<String> = points
                .filter(|p| p["valid"] != true)
                .map(|p| {
                    format!(
                        "{} on {} -t {}: {}",
                        p["workload"], p["target"], p["tasks"], p["invalid_because"]
                    )
                })
                .collect();
            panic!("status {} instead of {status}; void: {why:?}; {}", self.status, self.stderr);
        }
        json.unwrap_or_else(|e| panic!("not JSON: {e}: {self:?}"))
    }

    /// One line on standard error, nothing on standard output, with that status and words.
    pub fn one_line(&self, status: i32, words: &[&str]) {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        let line = self.stderr.trim_end();
        assert!(line.starts_with("perfloss: ") && line.lines().count() == 1, "{self:?}");
        assert!(!line.chars().any(char::is_control), "{self:?}");
        for word in words {
            assert!(line.to_lowercase().contains(&word.to_lowercase()), "no {word:?} in {line:?}");
        }
    }
}

/// The binary.
pub fn perfloss() -> &'static str {
    env!("CARGO_BIN_EXE_perfloss")
}

/// The children of a process.
pub fn children(parent: u32) -> Vec<Pid> {
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
        let stat = fs::read_to_string(process.path().join("stat")).unwrap_or_default();
        let of =
            stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(1)?.parse().ok());
        if of == Some(parent) {
            found.extend(Pid::from_raw(pid));
        }
    }
    found
}

/// The point of a result with this target and so many tasks.
pub fn point<'a>(result: &'a Value, target: &str, tasks: u64) -> &'a Value {
    let points = result["points"].as_array().unwrap();
    points.iter().find(|p| p["target"] == target && p["tasks"] == tasks).unwrap()
}

/// Whether a list of warnings has one of this kind.
pub fn warns(warnings: &Value, code: &str) -> bool {
    warnings.as_array().unwrap().iter().any(|w| w["code"] == code)
}

/// The unmodified test cases of the `workload` crate.
pub fn case(name: &str) -> String {
    format!("{}/../workload/tests/cases/{name}", env!("CARGO_MANIFEST_DIR"))
}

pub fn open_to_all(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
}

fn mounts() -> BTreeSet<String> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap();
    text.lines().map(str::to_owned).collect()
}

fn below(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).unwrap().flatten().map(|entry| entry.path()).collect()
}
