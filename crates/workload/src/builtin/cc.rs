//! The reported case: each task compiles its own hello-world source, over and over.

use super::BuiltIn;
use super::place::{make_own_dirs, own_dir, remove_file, remove_own_dirs};
use crate::process::{Launch, Runner, find_program};
use crate::{Failure, Meter, Needs, Place, Prepared, sources};

const NEEDS: Needs = Needs { tmp: false, sources: true, src_at_root: false };

pub(super) const ALL: &[BuiltIn] = &[
    BuiltIn::new(
        "cc",
        "cc -c of the task's own hello-world source; object files and the compiler's temporary files in one directory",
        |place| prepare(place, false),
    )
    .needs(NEEDS),
    BuiltIn::new(
        "cc:own-dir",
        "cc -c of the task's own hello-world source; object and temporary files in a directory of the task's own",
        |place| prepare(place, true),
    )
    .needs(NEEDS),
];

struct Cc {
    place: Place,
    own: bool,
    launches: Vec<Launch>,
}

impl Cc {
    fn object(place: &Place, own: bool, task: u32) -> std::path::PathBuf {
        match own {
            true => own_dir(place, task).join("out.o"),
            false => place.dir.join(format!("out.{task}.o")),
        }
    }
}

fn prepare(place: &Place, own: bool) -> Result<Box<dyn Prepared>, Failure> {
    let compiler = find_program("cc".as_ref())?;
    if own {
        make_own_dirs(place)?;
    }
    let launch = |task| {
        let source = sources::path(&place.src, task);
        std::fs::metadata(&source).map_err(|e| Failure::new("no source").on(&source).io(&e))?;
        let temporary = match own {
            true => own_dir(place, task),
            false => place.dir.clone(),
        };
        let object = Cc::object(place, own, task);
        let arguments = ["cc".as_ref(), "-c".as_ref(), "-o".as_ref(), object.as_os_str(), source.as_os_str()];
        Launch::new(&compiler, &arguments, &[("TMPDIR".as_ref(), temporary.as_os_str())])
    };
    Ok(Box::new(Cc {
        place: place.clone(),
        own,
        launches: (0..place.tasks).map(launch).collect::<Result<_, _>>()?,
    }))
}

impl Prepared for Cc {
    fn run(&self, task: u32, meter: &mut Meter<'_>) -> Result<(), Failure> {
        let object = Cc::object(&self.place, self.own, task);
        // An object left by an earlier round must not pass for the result of this one.
        remove_file(&object)?;
        let path = super::place::c_path(&object)?;
        let launch = self
            .launches
            .get(task as usize)
            .ok_or_else(|| Failure::new(format!("there is no task {task}")))?;
        let mut runner = Runner::new()?;
        while meter.running() {
            runner.run(launch)?;
            let stat = rustix::fs::stat(&*path);
            if !stat.is_ok_and(|stat| stat.st_size > 0) {
                return Err(runner.failure(launch, "cc said success but wrote no object file"));
            }
            meter.done();
        }
        Ok(())
    }

    fn cleanup(&self) -> Result<(), Failure> {
        if self.own {
            return remove_own_dirs(&self.place);
        }
        (0..self.place.tasks).try_for_each(|task| remove_file(&Cc::object(&self.place, self.own, task)))
    }
}
