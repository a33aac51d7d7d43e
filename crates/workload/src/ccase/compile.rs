//! Compiling a test case into a shared object.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::Failure;
use crate::failure::{first_line, one_line};
use crate::process::find_program;

const SHIM: &str = include_str!("shim.c");

/// For cases that today's compilers refuse. The first set that a compiler takes is used; each goes with what some compiler knows.
const DIALECTS: &[&[&str]] = &[
    &[],
    // gcc from 14 on; older ones ignore it for C and accept the same cases without.
    &["-fpermissive", "-std=gnu11"],
    &["-std=gnu11", "-Wno-error=implicit-function-declaration", "-Wno-error=int-conversion"],
    &[
        "-std=gnu11",
        "-Wno-error=implicit-function-declaration",
        "-Wno-error=implicit-int",
        "-Wno-error=int-conversion",
        "-Wno-error=incompatible-pointer-types",
    ],
    &[
        "-std=gnu11",
        "-Wno-error=implicit-function-declaration",
        "-Wno-error=implicit-int",
        "-Wno-error=int-conversion",
        "-Wno-error=incompatible-function-pointer-types",
    ],
];

/// The description is asked of the case's own code, which may hang.
const DESCRIBE_LIMIT: Duration = Duration::from_secs(5);

/// A compiled test case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// What the user calls it: the file's name without `.c`.
    pub name: String,
    /// The source, as an absolute path.
    pub source: PathBuf,
    /// The shared object's bytes.
    pub object: Vec<u8>,
    /// The case's `testcase_description`, if it has one.
    pub description: Option<String>,
    /// What the compiler said although it compiled.
    pub warnings: String,
    /// Changes with the source: figures of different versions must not be compared.
    pub version: u32,
}

impl Compiled {
    /// The object as an anonymous file, so that no mount can hide it: open it as `/proc/self/fd/N`. Closed on exec.
    ///
    /// # Errors
    /// If there is no memory or file descriptor left.
    pub fn to_memfd(&self) -> Result<OwnedFd, Failure> {
        let failed =
            |e: rustix::io::Errno| Failure::new("cannot keep the compiled test case in memory").errno(e);
        let fd = rustix::fs::memfd_create("testcase.so", rustix::fs::MemfdFlags::CLOEXEC).map_err(failed)?;
        let mut file = fs::File::from(fd);
        file.write_all(&self.object)
            .map_err(|e| Failure::new("cannot keep the compiled test case in memory").io(&e))?;
        Ok(file.into())
    }
}

/// A file that does not become a test case. Shown as one line; the compiler's whole output is kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CompileError {
    /// The first error, with file and line where the compiler gives them.
    pub message: String,
    /// All that the compiler said.
    pub output: String,
}

impl CompileError {
    fn new(message: impl AsRef<str>) -> Self {
        CompileError { message: one_line(message.as_ref()), output: String::new() }
    }

    fn from_output(source: &Path, output: String) -> Self {
        let undefined = |symbol: &str| {
            ["`", "'", ": "].iter().any(|quote| {
                output.lines().any(|l| {
                    l.contains("undefined reference to") || l.contains("undefined symbol")
                } && l.contains(&format!("{quote}{symbol}")) && l.trim_end().trim_end_matches('\'').ends_with(symbol))
            })
        };
        let shown = source.display();
        let message = if undefined("testcase") {
            format!("{shown}: no testcase(): is this a will-it-scale test case?")
        } else {
            let errors = ["error:", "undefined reference", "undefined symbol", "multiple definition"];
            let first = output
                .lines()
                .find(|line| errors.iter().any(|e| line.contains(e)))
                .or_else(|| first_line(&output))
                .unwrap_or("the compiler failed and said nothing");
            match first.contains(&*source.to_string_lossy()) {
                true => format!("does not compile: {first}"),
                false => format!("{shown} does not compile: {first}"),
            }
        };
        CompileError { message: one_line(&message), output }
    }
}

/// Compiles `source`, a C file against will-it-scale's interface, together with what a harness has to supply.
///
/// `scratch` is an existing directory of the caller's, for all intermediate and the compiler's temporary files.
///
/// # Errors
/// If there is no `cc`, the file cannot be read, does not compile, or has no `testcase()`.
pub fn compile(source: &Path, scratch: &Path) -> Result<Compiled, CompileError> {
    let cc = find_program("cc".as_ref())
        .map_err(|_| CompileError::new("no C compiler: cc is not in PATH (Debian: apt-get install gcc)"))?;
    let unreadable = |e: std::io::Error| CompileError::new(format!("cannot read {}: {e}", source.display()));
    let text = fs::read(source).map_err(unreadable)?;
    let source = std::path::absolute(source).map_err(unreadable)?;
    let directory = source.parent().unwrap_or(Path::new("/"));
    let name = match source.file_stem() {
        Some(stem) => stem.to_string_lossy().into_owned(),
        None => return Err(CompileError::new(format!("{} is no file", source.display()))),
    };
    let scratch = std::path::absolute(scratch)
        .map_err(|e| CompileError::new(format!("cannot use {}: {e}", scratch.display())))?;
    let in_scratch = |name: &str| scratch.join(name);
    let unwritable =
        |e: std::io::Error| CompileError::new(format!("cannot write to {}: {e}", scratch.display()));
    let (shim, case, object, describe) =
        (in_scratch("shim.c"), in_scratch("case.o"), in_scratch("case.so"), in_scratch("describe"));
    fs::write(&shim, SHIM).map_err(unwritable)?;

    let run = |set_up: &dyn Fn(&mut Command)| -> Result<String, CompileError> {
        let mut command = Command::new(&cc);
        command.env("TMPDIR", &scratch).env("LC_ALL", "C").stdin(Stdio::null());
        set_up(&mut command);
        let output =
            command.output().map_err(|e| CompileError::new(format!("cannot run {}: {e}", cc.display())))?;
        let said = [output.stderr, output.stdout].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        match output.status.success() {
            true => Ok(said),
            false => Err(CompileError::from_output(&source, said)),
        }
    };
    let compile_as = |dialect: &&[&str]| {
        run(&|command| {
            command
                .args(["-O2", "-g", "-fPIC", "-pthread", "-c"])
                .args(*dialect)
                .arg("-iquote")
                .arg(directory)
                .arg("-I")
                .arg(directory)
                .arg("-o")
                .arg(&case)
                .args(["-x", "c"])
                .arg(&source);
        })
    };
    let mut attempts = DIALECTS.iter().map(compile_as);
    let first = attempts.next().unwrap_or_else(|| Ok(String::new()));
    // The first error is the one to show: the others come from flags that the user never gave.
    let warnings = first.or_else(|error| attempts.find_map(Result::ok).ok_or(error))?;

    let libraries = ["-lm", "-lrt", "-ldl"];
    run(&|command| {
        command
            .args(["-O2", "-g", "-fPIC", "-pthread", "-shared", "-Wl,--no-undefined", "-Wl,-z,now", "-o"])
            .arg(&object)
            .arg(&case)
            .arg(&shim)
            .args(libraries);
    })?;
    let described = run(&|command| {
        command
            .args(["-O1", "-fPIC", "-pthread", "-DPERFLOSS_DESCRIBE", "-o"])
            .arg(&describe)
            .arg(&case)
            .arg(&shim)
            .args(libraries);
    });
    let description = described.ok().and_then(|_| ask(&describe));
    Ok(Compiled {
        name,
        object: fs::read(&object).map_err(unwritable)?,
        description,
        warnings,
        version: fnv1a(&text),
        source,
    })
}

/// Runs the program that prints the case's description; a case that misbehaves has none.
fn ask(program: &Path) -> Option<String> {
    let mut child = Command::new(program)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    let deadline = Instant::now() + DESCRIBE_LIMIT;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
            _ => break None,
        }
    };
    if status.is_none() {
        // It may have ended just now; then there is nothing to kill.
        let _ = child.kill();
        let _ = child.wait();
    }
    let mut bytes = Vec::new();
    child.stdout.take()?.take(1000).read_to_end(&mut bytes).ok()?;
    let text = one_line(String::from_utf8_lossy(&bytes).trim());
    (status.is_some_and(|s| s.success()) && !text.is_empty()).then_some(text)
}

fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
