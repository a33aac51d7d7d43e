//! Block devices of the machine: what must be known before one is formatted.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::error::Error;
use crate::sys::loopdev::is_block_device;
use crate::{ALLOW_FORMAT_FLAG, FORCE_FORMAT_FLAG, tool};

/// Checks that a device may be formatted and opens it; gives its size in bytes too.
pub(crate) fn claim(path: &Path, allowed: bool, forced: bool) -> Result<(File, u64), Error> {
    if !path.exists() {
        return Err(Error::device(path, "it does not exist"));
    }
    if !is_block_device(path) {
        return Err(Error::device(path, "it is not a block device"));
    }
    if !allowed {
        return Err(Error::device(
            path,
            format!("all its contents would be lost: say {ALLOW_FORMAT_FLAG} if you mean it"),
        ));
    }
    // The kernel grants exclusive access only to what nobody has mounted, swaps to, or built a volume on, in any
    // namespace. A mounted device is refused even when forced.
    let exclusive = OpenOptions::new().read(true).write(true).custom_flags(libc::O_EXCL).open(path);
    let mut file = exclusive.map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) => {
            Error::device(path, "it is in use (mounted, swap, or part of a volume): refused")
        }
        _ => Error::device(path, format!("cannot be opened: {error}")),
    })?;
    if !forced && let Some(found) = signature(path)? {
        return Err(Error::device(
            path,
            format!("it holds {found}: say {FORCE_FORMAT_FLAG} to destroy that"),
        ));
    }
    let size =
        file.seek(SeekFrom::End(0)).map_err(|error| Error::device(path, format!("has no size: {error}")))?;
    if size == 0 {
        return Err(Error::device(
            path,
            format!("it is empty: {}", io::Error::from_raw_os_error(libc::ENOSPC)),
        ));
    }
    Ok((file, size))
}

/// The name of what a device holds, if it holds anything that can be recognised.
fn signature(path: &Path) -> Result<Option<String>, Error> {
    let Some(program) = tool::find("wipefs") else {
        return Err(Error::device(
            path,
            format!(
                "cannot tell whether it holds data, wipefs is missing: apt install util-linux, or say {FORCE_FORMAT_FLAG}"
            ),
        ));
    };
    let output = tool::run(&program, &["--no-act".as_ref(), "--parsable".as_ref(), path.as_os_str()])?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // "# offset,uuid,label,type", then one line for each signature.
    let found: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.rsplit(',').next())
        .collect();
    Ok((!found.is_empty()).then(|| found.join(" and ")))
}
