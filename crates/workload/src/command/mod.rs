//! A command template as a workload: one operation is one run of the command, checked by its exit status.

mod template;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use template::TemplateError;

use crate::builtin::place::{make_own_dirs, own_dir, remove_own_dirs};
use crate::process::{Launch, Runner, find_program, raise_file_limit};
use crate::{Failure, Meter, Needs, Place, Prepared, SpecError, Workload};
use template::{Hole, Word};

/// A command that every task runs over and over, and one that is run once before.
///
/// In both, `{dir}` is the shared directory, `{src}` the directory of sources, `{tasks}` the number of tasks; in `each` also `{task}`, the
/// task's number, and `{own}`, a directory of its own. The commands find the same in their environment as
/// `PERFLOSS_DIR` and so on, and `TMPDIR` is the shared directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// The template of the operation.
    pub each: String,
    /// The template of the command that is run once, in [`Workload::prepare`].
    #[serde(default)]
    pub setup: Option<String>,
    /// Whether `sh -c` runs them. Without a shell, a template is split into arguments by a shell's rules of quoting, and values are
    /// never split again.
    #[serde(default)]
    pub shell: bool,
}

impl Command {
    /// Absolute paths of existing files and directories that the templates name, so that the harness can keep them visible: whole
    /// arguments, what follows a `=`, and what follows an option's letter (`-I/usr/include`).
    pub fn paths_named(&self) -> Vec<PathBuf> {
        let mut found = BTreeSet::new();
        for template in [Some(&self.each), self.setup.as_ref()].into_iter().flatten() {
            for word in loose_words(template) {
                let after_equals = word.split_once('=').map(|(_, value)| value);
                let after_letter = word.strip_prefix('-').and_then(|w| w.find('/').map(|at| &w[at..]));
                for name in [Some(word.as_str()), after_equals, after_letter].into_iter().flatten() {
                    let exists = |path: &PathBuf| !name.is_empty() && path.symlink_metadata().is_ok();
                    found.extend(std::path::absolute(name).ok().filter(exists));
                }
            }
        }
        found.into_iter().collect()
    }

    /// Reads the templates, and looks up the programs that they name.
    pub(crate) fn open(&self) -> Result<CommandWorkload, SpecError> {
        let each = Line::read(&self.each, self.shell, false)?;
        let setup = match &self.setup {
            Some(setup) => Some(Line::read(setup, self.shell, true)?),
            None => None,
        };
        for line in [Some(&each), setup.as_ref()].into_iter().flatten() {
            line.check_program().map_err(SpecError::Program)?;
        }
        Ok(CommandWorkload {
            name: self.each.clone(),
            uses_src: [Some(&self.each), self.setup.as_ref()]
                .into_iter()
                .flatten()
                .any(|t| t.contains("{src}") || t.contains("PERFLOSS_SRC")),
            each,
            setup,
        })
    }
}

/// Whatever could be a word in a template, quoted or not.
fn loose_words(template: &str) -> Vec<String> {
    match template::words(template, false) {
        Ok(words) => words.iter().filter_map(|w| w.literal().map(str::to_owned)).collect(),
        // For a shell: between blanks, quotes and operators.
        Err(_) => template
            .split(|c: char| c.is_whitespace() || "'\"`|&;<>()".contains(c))
            .map(str::to_owned)
            .collect(),
    }
}

/// A template that was read.
enum Line {
    Words(Vec<Word>),
    Script(String),
}

impl Line {
    fn read(template: &str, shell: bool, in_setup: bool) -> Result<Line, TemplateError> {
        Ok(match shell {
            true => Line::Script(template::script(template, in_setup)?),
            false => Line::Words(template::words(template, in_setup)?),
        })
    }

    fn check_program(&self) -> Result<(), Failure> {
        let program = match self {
            Line::Script(_) => Some("sh"),
            Line::Words(words) => words.first().and_then(Word::literal),
        };
        program.map_or(Ok(()), |name| find_program(name.as_ref()).map(drop))
    }

    /// The command for one task; `None` for the set-up.
    fn launch(&self, place: &Place, task: Option<u32>) -> Result<Launch, Failure> {
        let values = Values::new(place, task);
        let arguments = match self {
            Line::Script(script) => vec!["sh".into(), "-c".into(), script.into()],
            Line::Words(words) => words.iter().map(|w| w.fill(|hole| values.of(hole))).collect(),
        };
        let program = find_program(arguments.first().map_or(OsStr::new(""), OsString::as_os_str))?;
        let mut variables: Vec<(&OsStr, &OsStr)> = Hole::ALL
            .into_iter()
            .filter(|hole| task.is_some() || !matches!(hole, Hole::Task | Hole::Own))
            .map(|hole| (hole.variable().as_ref(), values.of(hole)))
            .collect();
        variables.push(("TMPDIR".as_ref(), place.dir.as_os_str()));
        let arguments: Vec<&OsStr> = arguments.iter().map(OsString::as_os_str).collect();
        Launch::new(&program, &arguments, &variables)
    }
}

/// What the placeholders stand for.
struct Values {
    task: OsString,
    tasks: OsString,
    own: OsString,
    dir: OsString,
    src: OsString,
}

impl Values {
    fn new(place: &Place, task: Option<u32>) -> Self {
        let path = |path: &Path| path.as_os_str().to_owned();
        Values {
            task: task.map(|t| t.to_string()).unwrap_or_default().into(),
            tasks: place.tasks.to_string().into(),
            own: task.map(|t| path(&own_dir(place, t))).unwrap_or_default(),
            dir: path(&place.dir),
            src: path(&place.src),
        }
    }

    fn of(&self, hole: Hole) -> &OsStr {
        match hole {
            Hole::Task => &self.task,
            Hole::Tasks => &self.tasks,
            Hole::Own => &self.own,
            Hole::Dir => &self.dir,
            Hole::Src => &self.src,
        }
    }
}

/// A [`Command`] whose templates were read.
pub(crate) struct CommandWorkload {
    name: String,
    uses_src: bool,
    each: Line,
    setup: Option<Line>,
}

impl Workload for CommandWorkload {
    fn name(&self) -> &str {
        &self.name
    }

    fn about(&self) -> &str {
        "one run of the command, which must end with exit status 0"
    }

    fn version(&self) -> u32 {
        1
    }

    fn needs(&self) -> Needs {
        Needs { sources: self.uses_src, ..Needs::default() }
    }

    fn prepare(&self, place: &Place) -> Result<Box<dyn Prepared>, Failure> {
        raise_file_limit();
        let launches =
            (0..place.tasks).map(|task| self.each.launch(place, Some(task))).collect::<Result<_, _>>()?;
        make_own_dirs(place)?;
        if let Some(setup) = &self.setup {
            let launch = setup.launch(place, None)?;
            Runner::new()?.run(&launch).map_err(|mut failure| {
                failure.what = format!("the set-up failed: {}", failure.what);
                failure
            })?;
        }
        Ok(Box::new(Running { place: place.clone(), launches }))
    }
}

struct Running {
    place: Place,
    launches: Vec<Launch>,
}

impl Prepared for Running {
    fn run(&self, task: u32, meter: &mut Meter<'_>) -> Result<(), Failure> {
        let launch = self
            .launches
            .get(task as usize)
            .ok_or_else(|| Failure::new(format!("there is no task {task}")))?;
        let mut runner = Runner::new()?;
        while meter.running() {
            runner.run(launch)?;
            meter.done();
        }
        Ok(())
    }

    /// Removes the tasks' own directories; what else the command left is the caller's to remove with the place.
    fn cleanup(&self) -> Result<(), Failure> {
        remove_own_dirs(&self.place)
    }
}
