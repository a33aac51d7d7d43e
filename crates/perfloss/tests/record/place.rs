//! A folder for programs and results, and what is asked of results.

use assert_cmd::cargo::cargo_bin;
use result::{Point, Root, RootKind, RunResult};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder for programs and results.
pub struct Place(tempfile::TempDir);

impl Place {
    pub fn new() -> Place {
        assert!(rustix::process::geteuid().is_root(), "capturing needs root");
        Place(tempfile::tempdir().unwrap())
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Compiles a program of `tests/record/`.
    pub fn program(&self, name: &str) -> String {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/record").join(format!("{name}.c"));
        let program = self.file(name);
        let status =
            Command::new("cc").args(["-O2", "-pthread", "-o"]).arg(&program).arg(source).status().unwrap();
        assert!(status.success());
        program.display().to_string()
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(cargo_bin("perfloss"));
        command
            .args(["record", "--output"])
            .arg(self.file("result"))
            .args(arguments)
            .current_dir(self.0.path());
        command
    }

    /// Records, and gives the output and the result.
    pub fn record(&self, arguments: &[&str]) -> (Output, RunResult) {
        let output = self.command(arguments).output().unwrap();
        let folder = self.file("result");
        let result = result::read(&folder).unwrap_or_else(|e| panic!("{e}\n{}", text(&output.stderr)));
        std::fs::remove_dir_all(folder).unwrap();
        (output, result)
    }

    pub fn point(&self, arguments: &[&str]) -> (Output, Point) {
        let (output, mut result) = self.record(arguments);
        assert!(result.complete);
        (output, result.points.remove(0))
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Idle CPU-seconds charged to roots of that kind.
pub fn idle_s(point: &Point, kind: RootKind) -> f64 {
    point.roots.iter().filter(|r| r.lock.kind == kind).filter_map(|r| r.idle_cpu_s).sum()
}

/// Idle CPU-seconds charged to locks.
pub fn idle_in_locks_s(point: &Point) -> f64 {
    point.roots.iter().filter(|r| r.lock.kind.is_lock()).filter_map(|r| r.idle_cpu_s).sum()
}

pub fn shares_add_up(point: &Point) {
    let shares: f64 = point.roots.iter().filter_map(|r| r.share_of_idle).sum();
    assert!(shares <= 1.0 + 1e-6, "{shares}");
    let idle = point.recorded.as_ref().unwrap().idle_s.unwrap();
    // what is below the threshold of the list is not in it
    assert!(idle < 0.001 || shares > 0.9, "{shares} of {idle} s: {:?}", point.roots);
}

pub fn lock<'a>(point: &'a Point, class: &str) -> &'a Root {
    let found = point.roots.iter().find(|r| r.lock.class == class);
    found.unwrap_or_else(|| panic!("no {class} in {:#?}", point.roots))
}
