//! The process that prepares the workload and holds the tasks.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, set_parent_process_death_signal, setpgid, setpriority_process, wait,
};
use workload::meter::State;
use workload::{Board, Failure, Meter, Mode, Place, Prepared, Stops};

use crate::cpus;
use crate::lines::Sender;
use crate::protocol::{Report, RoundSpec};
use crate::sys::{self, Fork};

/// What main threads usually get: test cases keep buffers of a MiB on it. Only what is touched takes memory.
const TASK_STACK: usize = 8 << 20;

/// What the host gets from the supervisor.
pub(super) struct Host<'a> {
    pub spec: &'a RoundSpec,
    pub place: Place,
    pub board: &'a Board,
    pub reports: Sender,
    /// A byte (or the end) here means: clean up now.
    pub commands: OwnedFd,
    /// Where the tasks' stderr goes.
    pub stderr: OwnedFd,
}

impl Host<'_> {
    /// Lives until all tasks have ended; gives the exit status.
    pub fn run(self) -> i32 {
        let told = match self.settle().and_then(|()| self.prepare()) {
            Ok((prepared, stops)) => match self.spec.mode {
                Mode::Processes => self.processes(&*prepared),
                Mode::Threads => self.threads(&*prepared, stops),
            },
            Err(failure) => self.reports.send(&Report::Failed { task: None, failure }),
        };
        i32::from(told.is_err())
    }

    /// Makes this process what a workload expects: its own group, default signals, no terminal.
    fn settle(&self) -> Result<(), Failure> {
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(named("PDEATHSIG"))?;
        setpgid(None, None).map_err(named("setpgid"))?;
        sys::default_signals();
        setpriority_process(None, self.spec.nice).map_err(named("setpriority"))?;
        // So that holders and waiters in a report bear the workload's name. The kernel keeps 15 bytes; a name with a NUL stays ours.
        if let Ok(name) = std::ffi::CString::new(self.spec.workload.name()) {
            let _ = rustix::thread::set_name(&name);
        }
        let null = File::options().read(true).write(true).open("/dev/null");
        let null = null.map_err(|e| Failure::new("cannot open /dev/null").io(&e))?;
        rustix::stdio::dup2_stdin(&null).map_err(named("dup2"))?;
        rustix::stdio::dup2_stdout(&null).map_err(named("dup2"))?;
        rustix::stdio::dup2_stderr(&self.stderr).map_err(named("dup2"))?;
        for name in ["TMP", "TEMP", "TMPDIR"] {
            set_env(name, None);
        }
        if !self.spec.isolated {
            set_env("TMPDIR", Some(self.place.dir.as_os_str()));
        }
        Ok(())
    }

    fn prepare(&self) -> Result<(Box<dyn Prepared>, Stops), Failure> {
        let workload = self.spec.workload.open().map_err(|e| Failure::new(e.to_string()))?;
        Ok((workload.prepare(&self.place)?, workload.stops()))
    }

    fn processes(&self, prepared: &dyn Prepared) -> std::io::Result<()> {
        let mut tasks = Vec::with_capacity(self.spec.tasks as usize);
        for task in 0..self.spec.tasks {
            match sys::fork() {
                Ok(Fork::Child) => {
                    let died = catch_unwind(AssertUnwindSafe(|| self.task_process(task, prepared)));
                    sys::exit_now(died.unwrap_or(101));
                }
                Ok(Fork::Parent(pid)) => tasks.push(pid),
                Err(e) => {
                    let failure = Failure::new(format!("cannot fork task {task}")).io(&e);
                    return self.reports.send(&Report::Failed { task: Some(task), failure });
                }
            }
        }
        self.reports.send(&Report::Tasks(tasks.iter().map(|p| p.as_raw_nonzero().get()).collect()))?;
        self.reap(&tasks)?;
        self.clean_up(prepared)
    }

    fn task_process(&self, task: u32, prepared: &dyn Prepared) -> i32 {
        // Its own group, so that all that it starts can be ended with it.
        let grouped = setpgid(None, None).and_then(|()| set_parent_process_death_signal(Some(Signal::KILL)));
        let done = match grouped {
            Ok(()) => self.task(task, prepared),
            Err(e) => Err(Failure::new("setpgid").errno(e)),
        };
        match done {
            Ok(()) => 0,
            Err(failure) => {
                self.tell_failure(task, failure);
                1
            }
        }
    }

    /// One task, from its CPU to its last stamp.
    fn task(&self, task: u32, prepared: &dyn Prepared) -> Result<(), Failure> {
        let (control, slot) = (self.board.control(), &self.board.slots()[task as usize]);
        if self.spec.bind {
            let cpu = self.spec.cpus[task as usize % self.spec.cpus.len()];
            cpus::bind(cpu).map_err(|e| Failure::new(format!("cannot bind to CPU {cpu}")).io(&e))?;
        }
        slot.set_state(State::Ready);
        control.wait_at_gate();
        slot.set_state(State::Running);
        let mut meter = Meter::new(control, slot);
        prepared.run(task, &mut meter)?;
        meter.finish();
        slot.set_state(State::Finished);
        Ok(())
    }

    fn tell_failure(&self, task: u32, failure: Failure) {
        // If nobody listens any more, the round is over anyway.
        let _ = self.reports.send(&Report::Failed { task: Some(task), failure });
        self.board.slots()[task as usize].set_state(State::Failed);
    }

    /// Waits for all tasks; tells of those that end although nobody told them to.
    fn reap(&self, tasks: &[Pid]) -> std::io::Result<()> {
        let mut left = tasks.len();
        while left > 0 {
            let (pid, status) = match wait(WaitOptions::empty()) {
                Ok(Some(ended)) => ended,
                Ok(None) | Err(rustix::io::Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
            };
            let Some(task) = tasks.iter().position(|&t| t == pid) else { continue };
            left -= 1;
            let expected = match self.board.slots()[task].state() {
                State::Finished => status.exit_status() == Some(0),
                State::Failed => true,
                _ => self.board.control().stopped() && status.terminating_signal().is_some(),
            };
            if !expected {
                self.reports.send(&Report::Died { task: task as u32, how: in_words(status) })?;
            }
        }
        Ok(())
    }

    fn threads(&self, prepared: &dyn Prepared, stops: Stops) -> std::io::Result<()> {
        let (tell_id, ids) = mpsc::channel();
        std::thread::scope(|scope| {
            let mut threads = Vec::with_capacity(self.spec.tasks as usize);
            for task in 0..self.spec.tasks {
                let tell_id = tell_id.clone();
                let body = move || {
                    // The main thread waits for it.
                    let _ = tell_id.send((task, sys::thread_id()));
                    if let Err(failure) = self.task(task, prepared) {
                        self.tell_failure(task, failure);
                    }
                };
                match std::thread::Builder::new()
                    .name(format!("task {task}"))
                    .stack_size(TASK_STACK)
                    .spawn_scoped(scope, body)
                {
                    Ok(thread) => threads.push(thread),
                    Err(e) => {
                        let failure = Failure::new(format!("cannot start thread {task}")).io(&e);
                        self.reports.send(&Report::Failed { task: Some(task), failure })?;
                        // The others wait at the gate and cannot be joined.
                        sys::exit_now(1);
                    }
                }
            }
            drop(tell_id);
            let mut all: Vec<(u32, i32)> = ids.iter().take(threads.len()).collect();
            all.sort_unstable();
            self.reports.send(&Report::Tasks(all.into_iter().map(|(_, id)| id).collect()))?;
            if stops == Stops::ByKill {
                self.wait_for_command()?;
                self.clean_up(prepared)?;
                sys::exit_now(0);
            }
            for (task, thread) in threads.into_iter().enumerate() {
                if thread.join().is_err() {
                    self.reports.send(&Report::Died { task: task as u32, how: "panicked".to_owned() })?;
                }
            }
            self.clean_up(prepared)
        })
    }

    fn wait_for_command(&self) -> std::io::Result<()> {
        let mut byte = [0];
        File::from(self.commands.as_fd().try_clone_to_owned()?).read(&mut byte).map(|_| ())
    }

    fn clean_up(&self, prepared: &dyn Prepared) -> std::io::Result<()> {
        let trouble = prepared.cleanup().err().map(|failure| failure.to_string());
        self.reports.send(&Report::CleanedUp { trouble })
    }
}

/// How a process ended.
pub(super) fn in_words(status: WaitStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("ended by itself with exit status {code}"),
        (_, Some(signal)) => format!("was killed by signal {signal}{}", signal_name(signal)),
        _ => "ended".to_owned(),
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGABRT => " (SIGABRT: an assertion failed?)",
        libc::SIGBUS => " (SIGBUS)",
        libc::SIGFPE => " (SIGFPE)",
        libc::SIGILL => " (SIGILL)",
        libc::SIGINT => " (SIGINT)",
        libc::SIGKILL => " (SIGKILL: out of memory?)",
        libc::SIGSEGV => " (SIGSEGV)",
        libc::SIGTERM => " (SIGTERM)",
        _ => "",
    }
}

fn named(what: &str) -> impl Fn(rustix::io::Errno) -> Failure {
    move |errno| Failure::new(what).errno(errno)
}

fn set_env(name: &str, value: Option<&OsStr>) {
    // SAFETY: the host has one thread until it starts those of the tasks, which is after this.
    unsafe {
        match value {
            Some(value) => std::env::set_var(name, value),
            None => std::env::remove_var(name),
        }
    }
}
