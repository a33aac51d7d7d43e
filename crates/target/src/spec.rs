//! A target as the user names it. Nothing here touches the machine, except to accept an unlisted file system.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::fs::{self, FileSystem, Plan};
use crate::syntax::{self, Char, wrong};

/// A target as the user names it: a file system to be made, possibly with an overlay on it, or a directory.
///
/// Written and read as text (see [`SYNTAX_HELP`](crate::SYNTAX_HELP)); reading back what [`Display`](fmt::Display)
/// wrote gives an equal value. Serialised as that text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Spec {
    overlay: bool,
    base: Base,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Base {
    Made(Made),
    Directory(PathBuf),
}

/// A file system to be made, its options in the order in which they were written.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Made {
    fs: String,
    options: Vec<(String, String)>,
}

/// A variant of a target that may win back a loss.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remedy {
    /// The target to try.
    pub spec: Spec,
    /// Why it may help, for people.
    pub why: String,
}

impl Spec {
    /// The target that is this existing directory.
    ///
    /// # Errors
    /// [`Error::Directory`] if the path is empty or is not UTF-8 (it could not be written to a result).
    pub fn directory(path: &Path) -> Result<Self, Error> {
        let text = path.to_str().ok_or_else(|| Error::directory(path, "its name is not UTF-8: rename it"))?;
        if text.is_empty() || text.contains('\0') {
            return Err(Error::directory(path, "this is not the name of a directory"));
        }
        Ok(Self { overlay: false, base: Base::directory(text) })
    }

    /// Whether anything has to be mounted that is not a directory of the machine.
    pub fn is_directory(&self) -> bool {
        !self.overlay && matches!(self.base, Base::Directory(_))
    }

    /// Whether this is an overlay.
    pub fn is_overlay(&self) -> bool {
        self.overlay
    }

    /// The name of the file system below (`xfs`), or `None` for a directory.
    pub fn file_system(&self) -> Option<&str> {
        match &self.base {
            Base::Made(made) => Some(&made.fs),
            Base::Directory(_) => None,
        }
    }

    /// The block device that this target would format, if it names one.
    pub fn device(&self) -> Option<&Path> {
        match &self.base {
            Base::Made(made) => made.option("device").map(Path::new),
            Base::Directory(_) => None,
        }
    }

    /// The existing directory that this target uses, if it does.
    pub fn existing_directory(&self) -> Option<&Path> {
        match &self.base {
            Base::Made(_) => None,
            Base::Directory(path) => Some(path),
        }
    }

    /// Variants of this target that may win back a loss when `tasks` tasks run, best first, each with the reason:
    /// more allocation groups, no journal, no overlay, another file system.
    ///
    /// `size` is the image's size in bytes as in [`Facts::image_size`](crate::Facts), or the default size.
    pub fn remedies(&self, tasks: u32, size: u64) -> Vec<Remedy> {
        let mut out = Vec::new();
        if self.overlay {
            let spec = Self { overlay: false, base: self.base.clone() };
            out.push(Remedy { spec, why: "without the overlay: shows what it costs".to_owned() });
        }
        let Base::Made(made) = &self.base else { return out };
        if let Ok(fs) = fs::lookup(&made.fs) {
            for (options, why) in fs.remedies(made.size().unwrap_or(size), tasks) {
                if let Some(better) = made.with(&options) {
                    out.push(Remedy { spec: Self { overlay: self.overlay, base: Base::Made(better) }, why });
                }
            }
        }
        let others =
            ["ext4", "xfs", "btrfs"].iter().filter(|&&name| name != made.fs && made.fs != "tmpfs").take(2);
        for name in others {
            let mut other = Made { fs: (*name).to_owned(), options: Vec::new() };
            other.options.extend(made.options.iter().filter(|(key, _)| key == "size").cloned());
            let spec = Self { overlay: self.overlay, base: Base::Made(other) };
            out.push(Remedy { spec, why: format!("{name} instead of {}: other locks", made.fs) });
        }
        out
    }

    pub(crate) fn base(&self) -> &Base {
        &self.base
    }

    fn read(chars: &[Char], whole: &str) -> Result<Self, Error> {
        let chars = syntax::trim(chars);
        if chars.is_empty() {
            return Err(wrong(whole, "a target is empty"));
        }
        let (head, rest) = syntax::cut(chars, ':');
        let name = syntax::text(head);
        if name == "overlay" {
            let Some(rest) = rest.filter(|rest| !syntax::trim(rest).is_empty()) else {
                return Err(wrong(whole, "an overlay needs a target below it, as in overlay:xfs"));
            };
            let below = Self::read(rest, whole)?;
            if below.overlay {
                return Err(wrong(whole, "an overlay cannot lie on an overlay"));
            }
            return Ok(Self { overlay: true, base: below.base });
        }
        if names_directory(&name) {
            return Ok(Self { overlay: false, base: Base::directory(&syntax::text(chars)) });
        }
        let made = Made::read(&name, rest, whole)?;
        Ok(Self { overlay: false, base: Base::Made(made) })
    }
}

/// Reads the argument of `--on`: targets separated by commas that are not in quotes.
///
/// # Errors
/// As for reading one target; also if a target between two commas is empty.
pub fn parse_list(text: &str) -> Result<Vec<Spec>, Error> {
    syntax::split_list(text)?.into_iter().map(str::parse).collect()
}

fn names_directory(head: &str) -> bool {
    head.contains('/') || matches!(head, "." | "..")
}

impl Base {
    fn directory(path: &str) -> Self {
        let clear = path.starts_with(['/'])
            || path.starts_with("./")
            || path.starts_with("../")
            || matches!(path, "." | "..");
        Self::Directory(PathBuf::from(if clear { path.to_owned() } else { format!("./{path}") }))
    }
}

impl Made {
    fn read(name: &str, options: Option<&[Char]>, whole: &str) -> Result<Self, Error> {
        let fs = fs::lookup(name)?;
        let mut made = Self { fs: name.to_owned(), options: Vec::new() };
        let Some(mut rest) = options else { return Ok(made) };
        loop {
            let (option, more) = syntax::cut(rest, '+');
            let option = syntax::trim(option);
            let (key, value) = syntax::cut(option, '=');
            let key = syntax::text(syntax::trim(key));
            if key.is_empty() {
                return Err(wrong(whole, "an option is empty; write NAME=VALUE, several separated by +"));
            }
            let Some(value) = value else {
                fs::option_of(&*fs, &key)?;
                return Err(wrong(whole, format!("option {key} needs a value, as in {key}=VALUE")));
            };
            made.add(&*fs, key, syntax::text(value), whole)?;
            match more {
                Some(more) => rest = more,
                None => break,
            }
        }
        if made.option("device").is_some() && made.option("size").is_some() {
            return Err(wrong(whole, "the size of the device counts: leave size or device away"));
        }
        Ok(made)
    }

    fn add(&mut self, fs: &dyn FileSystem, key: String, value: String, whole: &str) -> Result<(), Error> {
        let option = fs::option_of(fs, &key)?;
        if option.value.normal(&value).is_none() {
            let wanted = option.value.wanted();
            return Err(Error::BadValue { fs: self.fs.clone(), option: key, value, wanted });
        }
        let repeats = matches!(option.name, "mkfs" | "mount");
        if !repeats && self.option(option.name).is_some() {
            return Err(wrong(whole, format!("option {key} is given twice")));
        }
        self.options.push((key, value));
        Ok(())
    }

    /// This one with some options set; `None` if it has them already.
    fn with(&self, options: &[(&'static str, String)]) -> Option<Self> {
        let mut out = self.clone();
        for (key, value) in options {
            // Two ways to say the same thing would contradict each other.
            out.options.retain(|(old, _)| old != key && !(*key == "agcount" && old == "agsize"));
            out.options.push(((*key).to_owned(), value.clone()));
        }
        let same = options.iter().all(|(key, value)| self.option(key) == Some(value));
        (!same).then_some(out)
    }

    pub(crate) fn fs_name(&self) -> &str {
        &self.fs
    }

    fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn size(&self) -> Option<u64> {
        self.option("size").and_then(crate::size::parse)
    }

    /// What the options come to: friendly ones first, so that raw ones can overrule them.
    pub(crate) fn plan(&self, fs: &dyn FileSystem) -> Result<Plan, Error> {
        let mut plan = Plan::default();
        let raw = |key: &str| matches!(key, "mkfs" | "mount");
        let (raws, friendly): (Vec<_>, Vec<_>) = self.options.iter().partition(|(key, _)| raw(key));
        for (key, value) in friendly.into_iter().chain(raws) {
            let option = fs::option_of(fs, key)?;
            let normal = option.value.normal(value).ok_or_else(|| Error::BadValue {
                fs: self.fs.clone(),
                option: key.clone(),
                value: value.clone(),
                wanted: option.value.wanted(),
            })?;
            (option.apply)(&normal, &mut plan);
        }
        fs.adjust(&mut plan.mkfs);
        Ok(plan)
    }
}

impl FromStr for Spec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let chars = syntax::scan(text)?;
        if chars.contains(&(',', false)) {
            return Err(wrong(
                text,
                "a comma separates targets: put it in double quotes, or use + between options",
            ));
        }
        Self::read(&chars, text)
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.overlay {
            f.write_str("overlay:")?;
        }
        match &self.base {
            Base::Directory(path) => f.write_str(&syntax::quote(&path.to_string_lossy(), &[])),
            Base::Made(made) => {
                f.write_str(&made.fs)?;
                for (number, (key, value)) in made.options.iter().enumerate() {
                    let before = if number == 0 { ':' } else { '+' };
                    write!(f, "{before}{key}={}", syntax::quote(value, &['+']))?;
                }
                Ok(())
            }
        }
    }
}

impl TryFrom<String> for Spec {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Spec> for String {
    fn from(spec: Spec) -> Self {
        spec.to_string()
    }
}
