//! The sources that compiler workloads compile: one hello-world program a task.

use std::path::{Path, PathBuf};

use crate::Failure;

/// The source of task `task` in `dir`.
pub fn path(dir: &Path, task: u32) -> PathBuf {
    dir.join(format!("src{task}.c"))
}

/// Writes `src0.c` … for `tasks` tasks into `dir`, which must exist.
///
/// # Errors
/// If a file cannot be written.
pub fn write(dir: &Path, tasks: u32) -> Result<(), Failure> {
    for task in 0..tasks {
        let path = path(dir, task);
        let text = format!(
            "#include <stdio.h>\n\nint main(void)\n{{\n\tputs(\"hello, world, from {task}\");\n\treturn 0;\n}}\n"
        );
        std::fs::write(&path, text).map_err(|e| Failure::new("cannot write a source").on(&path).io(&e))?;
    }
    Ok(())
}
