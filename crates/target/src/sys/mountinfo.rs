//! `/proc/self/mountinfo`: what is mounted, in the kernel's own words.

use std::fs;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use crate::error::{Context, Error};

/// One line of mountinfo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    pub id: u64,
    /// `major:minor`.
    pub device_number: String,
    pub fs_type: String,
    pub source: String,
    /// Options of the mount, then those of the file system.
    pub options: String,
}

/// The mount that a path lies on.
pub(crate) fn of(path: &Path) -> Result<Mount, Error> {
    let id = mount_id(path)?;
    let text = fs::read_to_string("/proc/self/mountinfo").context(|| "read /proc/self/mountinfo")?;
    text.lines().filter_map(parse).find(|mount| mount.id == id).ok_or_else(|| {
        let missing = std::io::Error::from_raw_os_error(libc::ENOENT);
        Error::system(format!("find the mount of {} in /proc/self/mountinfo", path.display()), missing)
    })
}

/// The kernel's number of the mount that a path lies on.
pub(crate) fn mount_id(path: &Path) -> Result<u64, Error> {
    let stat = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID)
        .context(|| format!("look at {}", crate::error::shown(path)))?;
    Ok(stat.stx_mnt_id)
}

fn parse(line: &str) -> Option<Mount> {
    // id parent major:minor root mountpoint options [tags…] - type source super-options
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ');
    let id = left.next()?.parse().ok()?;
    let device_number = left.nth(1)?.to_owned();
    let own = left.nth(2)?;
    let mut right = right.split(' ');
    let fs_type = right.next()?.to_owned();
    let source = unescape(right.next()?);
    let options = unescape(&format!("{own},{}", right.next().unwrap_or_default()));
    Some(Mount { id, device_number, fs_type, source, options })
}

/// The kernel writes blanks, tabs, line ends and backslashes as three octal digits.
fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.as_bytes();
    while let [first, rest @ ..] = bytes {
        let code =
            rest.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(byte) = code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            out.push(byte);
            bytes = &rest[3..];
        } else {
            out.push(*first);
            bytes = rest;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_tags_and_blanks_is_read() {
        let line = r"36 35 98:0 /mnt1 /mnt\0402 rw,noatime master:1 shared:2 - ext3 /dev/my\040root rw,errors=continue";
        let mount = parse(line).unwrap();
        assert_eq!(
            mount,
            Mount {
                id: 36,
                device_number: "98:0".into(),
                fs_type: "ext3".into(),
                source: "/dev/my root".into(),
                options: "rw,noatime,rw,errors=continue".into(),
            }
        );
        assert_eq!(parse("nonsense"), None);
    }

    #[test]
    fn proc_is_found_as_proc() {
        assert_eq!(of(Path::new("/proc")).unwrap().fs_type, "proc");
    }
}
