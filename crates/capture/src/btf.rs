//! The kernel's own description of its types, of the kernel proper and of its modules (`/sys/kernel/btf/*`).
//!
//! Read here and not by libbpf because modules come and go while a capture runs, and because what is wanted is small: does a
//! tracepoint exist, where is a member, which lock is at that offset of that structure.

use std::fs;
use std::io;
use std::sync::Arc;

const KIND_INT: u32 = 1;
const KIND_ARRAY: u32 = 3;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_TYPEDEF: u32 = 8;
const KIND_VOLATILE: u32 = 9;
const KIND_CONST: u32 = 10;
const KIND_RESTRICT: u32 = 11;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;
const KIND_VAR: u32 = 14;
const KIND_DATASEC: u32 = 15;
const KIND_DECL_TAG: u32 = 17;
const KIND_TYPE_TAG: u32 = 18;
const KIND_ENUM64: u32 = 19;
const KIND_PTR: u32 = 2;

/// Structures that are locks of themselves: a member of such a type is what a class is named by.
const LOCK_TYPES: [&str; 9] = [
    "semaphore",
    "mutex",
    "rw_semaphore",
    "percpu_rw_semaphore",
    "spinlock",
    "raw_spinlock",
    "qspinlock",
    "qrwlock",
    "rt_mutex_base",
];

/// The types of the kernel, or of one module on top of the kernel's.
pub struct Btf {
    data: Vec<u8>,
    types: usize,
    strings: usize,
    strings_len: usize,
    /// Where each type begins in `data`.
    index: Vec<u32>,
    base: Option<Arc<Btf>>,
}

#[derive(Clone, Copy)]
struct Type {
    at: usize,
    name: u32,
    info: u32,
    size_or_type: u32,
}

impl Type {
    fn kind(self) -> u32 {
        self.info >> 24 & 0x1f
    }
    fn vlen(self) -> usize {
        (self.info & 0xffff) as usize
    }
    fn is_composite(self) -> bool {
        matches!(self.kind(), KIND_STRUCT | KIND_UNION)
    }
}

struct Member {
    name: u32,
    type_id: u32,
    /// Offset in bytes; bit-fields are rounded down.
    offset: u32,
}

impl Btf {
    /// The types of the running kernel.
    ///
    /// # Errors
    /// What reading `/sys/kernel/btf/vmlinux` fails with, or InvalidData.
    pub fn kernel() -> io::Result<Btf> {
        Btf::parse(fs::read("/sys/kernel/btf/vmlinux")?, None)
    }

    /// The types of a module that is loaded.
    ///
    /// # Errors
    /// NotFound if it is not loaded (or built in), InvalidData.
    pub fn module(name: &str, base: Arc<Btf>) -> io::Result<Btf> {
        Btf::parse(fs::read(format!("/sys/kernel/btf/{name}"))?, Some(base))
    }

    /// Reads the types from their raw form.
    ///
    /// # Errors
    /// InvalidData if it is none.
    pub fn parse(data: Vec<u8>, base: Option<Arc<Btf>>) -> io::Result<Btf> {
        let bad = || io::Error::new(io::ErrorKind::InvalidData, "not a BTF description");
        let word = |at: usize| -> io::Result<usize> {
            let bytes = data.get(at..at + 4).ok_or_else(bad)?;
            Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize)
        };
        if data.get(..2) != Some(&[0x9f, 0xeb]) {
            return Err(bad());
        }
        let header = word(4)?;
        let types = header.checked_add(word(8)?).ok_or_else(bad)?;
        let types_end = types.checked_add(word(12)?).ok_or_else(bad)?;
        let strings = header.checked_add(word(16)?).ok_or_else(bad)?;
        let strings_len = word(20)?;
        if types_end > data.len() || strings.checked_add(strings_len).is_none_or(|e| e > data.len()) {
            return Err(bad());
        }
        let mut index = Vec::new();
        let mut at = types;
        while at + 12 <= types_end {
            index.push(at as u32);
            let info = word(at + 4)?;
            let vlen = info & 0xffff;
            at += 12
                + match (info >> 24 & 0x1f) as u32 {
                    KIND_INT | KIND_VAR | KIND_DECL_TAG => 4,
                    KIND_ARRAY => 12,
                    KIND_STRUCT | KIND_UNION | KIND_DATASEC | KIND_ENUM64 => vlen * 12,
                    KIND_ENUM | KIND_FUNC_PROTO => vlen * 8,
                    _ => 0,
                };
        }
        Ok(Btf { data, types, strings, strings_len, index, base })
    }

    fn word(&self, at: usize) -> u32 {
        match self.data.get(at..at + 4) {
            Some(b) => u32::from_le_bytes([b[0], b[1], b[2], b[3]]),
            None => 0,
        }
    }

    fn base_types(&self) -> u32 {
        self.base.as_ref().map_or(0, |b| b.index.len() as u32)
    }

    fn base_strings(&self) -> u32 {
        self.base.as_ref().map_or(0, |b| b.strings_len as u32)
    }

    /// Type 0 is void.
    fn get(&self, id: u32) -> Option<(&Btf, Type)> {
        if id == 0 {
            return None;
        }
        let own = self.base_types();
        if id <= own {
            return self.base.as_ref()?.get(id);
        }
        let at = *self.index.get((id - own - 1) as usize)? as usize;
        debug_assert!(at >= self.types);
        Some((
            self,
            Type { at, name: self.word(at), info: self.word(at + 4), size_or_type: self.word(at + 8) },
        ))
    }

    fn str(&self, offset: u32) -> &[u8] {
        let own = self.base_strings();
        if offset < own {
            return self.base.as_ref().map_or(&[], |b| b.str(offset));
        }
        let start = self.strings + (offset - own) as usize;
        let all = self.data.get(start..self.strings + self.strings_len).unwrap_or(&[]);
        &all[..all.iter().position(|b| *b == 0).unwrap_or(all.len())]
    }

    fn find(&self, name: &str, kinds: &[u32]) -> Option<u32> {
        let own = self.base_types();
        for (i, at) in self.index.iter().enumerate() {
            let at = *at as usize;
            let kind = self.word(at + 4) >> 24 & 0x1f;
            if kinds.contains(&kind) && self.str(self.word(at)) == name.as_bytes() {
                return Some(own + i as u32 + 1);
            }
        }
        self.base.as_ref()?.find(name, kinds)
    }

    /// Whether there is a tracepoint of that name to attach to.
    pub fn has_tracepoint(&self, name: &str) -> bool {
        self.find(&format!("btf_trace_{name}"), &[KIND_TYPEDEF]).is_some()
    }

    /// Whether there is a function of that name that programs may call or be attached to.
    pub fn has_function(&self, name: &str) -> bool {
        self.find(name, &[KIND_FUNC]).is_some()
    }

    /// Which of these tracepoints exist, in one pass.
    pub fn tracepoints(&self, names: &[&str]) -> Vec<bool> {
        let mut found = vec![false; names.len()];
        for at in &self.index {
            let at = *at as usize;
            if self.word(at + 4) >> 24 & 0x1f != KIND_TYPEDEF {
                continue;
            }
            if let Some(name) = self.str(self.word(at)).strip_prefix(b"btf_trace_")
                && let Some(i) = names.iter().position(|n| n.as_bytes() == name)
            {
                found[i] = true;
            }
        }
        found
    }

    /// How many arguments a tracepoint hands over, without the first that its function has for itself.
    pub fn tracepoint_arguments(&self, name: &str) -> Option<usize> {
        let id = self.find(&format!("btf_trace_{name}"), &[KIND_TYPEDEF])?;
        let (btf, typedef) = self.get(id)?;
        let (btf, pointer) = btf.get(typedef.size_or_type)?;
        let (_, proto) = btf.get(pointer.size_or_type)?;
        (proto.kind() == KIND_FUNC_PROTO).then(|| proto.vlen().saturating_sub(1))
    }

    /// The size of a structure in bytes.
    #[cfg(test)]
    pub fn struct_size(&self, name: &str) -> Option<u32> {
        let id = self.find(name, &[KIND_STRUCT])?;
        self.get(id).map(|(_, t)| t.size_or_type)
    }

    fn strip(&self, mut id: u32) -> u32 {
        for _ in 0..32 {
            match self.get(id) {
                Some((_, t))
                    if matches!(
                        t.kind(),
                        KIND_TYPEDEF | KIND_VOLATILE | KIND_CONST | KIND_RESTRICT | KIND_TYPE_TAG
                    ) =>
                {
                    id = t.size_or_type;
                }
                _ => return id,
            }
        }
        id
    }

    fn members(&self, id: u32) -> Vec<Member> {
        let Some((btf, t)) = self.get(id) else { return Vec::new() };
        if !t.is_composite() {
            return Vec::new();
        }
        let bits = t.info >> 31 != 0;
        (0..t.vlen())
            .map(|i| {
                let at = t.at + 12 + i * 12;
                let offset = btf.word(at + 8);
                let offset = if bits { offset & 0xff_ffff } else { offset };
                Member { name: btf.word(at), type_id: btf.word(at + 4), offset: offset / 8 }
            })
            .collect()
    }

    fn size(&self, id: u32) -> u32 {
        match self.get(self.strip(id)) {
            Some((btf, t)) => match t.kind() {
                KIND_PTR => 8,
                KIND_ARRAY => {
                    let element = btf.word(t.at + 12);
                    self.size(element).saturating_mul(btf.word(t.at + 20))
                }
                _ => t.size_or_type,
            },
            None => 0,
        }
    }

    /// The offset in bytes of a member (`i_vnode.i_rwsem`), through anonymous structures and unions.
    pub fn offset_of(&self, structure: &str, path: &str) -> Option<u32> {
        let mut id = self.find(structure, &[KIND_STRUCT])?;
        let mut offset = 0;
        for part in path.split('.') {
            let (at, type_id) = self.member(id, part, 0)?;
            offset += at;
            id = self.strip(type_id);
        }
        Some(offset)
    }

    fn member(&self, id: u32, name: &str, depth: u32) -> Option<(u32, u32)> {
        if depth > 8 {
            return None;
        }
        for m in self.members(id) {
            if self.member_name(id, m.name) == name.as_bytes() {
                return Some((m.offset, m.type_id));
            }
            if m.name == 0
                && let Some((at, t)) = self.member(self.strip(m.type_id), name, depth + 1)
            {
                return Some((m.offset + at, t));
            }
        }
        None
    }

    /// Names of members are numbered by the description that defines the structure.
    fn member_name(&self, owner: u32, name: u32) -> &[u8] {
        self.get(owner).map_or(&[], |(btf, _)| btf.str(name))
    }

    fn type_name(&self, id: u32) -> String {
        self.get(id).map_or(String::new(), |(btf, t)| String::from_utf8_lossy(btf.str(t.name)).into_owned())
    }

    /// The lock at an offset of a structure, as `struct.member`: the innermost structure with a name that is no lock itself, and
    /// the member from there on (`xfs_inode` at the offset of `i_vnode.i_rwsem` gives `inode.i_rwsem`). A spinlock may be the first
    /// member of another lock, and is named apart from it.
    pub fn lock_at(&self, structure: &str, offset: u32, spins: bool) -> Option<String> {
        let id = self.find(structure, &[KIND_STRUCT])?;
        self.lock_in(id, structure, String::new(), offset, spins, 0)
    }

    fn lock_in(
        &self,
        id: u32,
        owner: &str,
        path: String,
        offset: u32,
        spins: bool,
        depth: u32,
    ) -> Option<String> {
        if depth > 12 {
            return None;
        }
        for m in self.members(id) {
            let type_id = self.strip(m.type_id);
            let Some((btf, t)) = self.get(type_id) else { continue };
            let size = self.size(type_id);
            if offset < m.offset || offset - m.offset >= size.max(1) {
                continue;
            }
            let rest = offset - m.offset;
            let name = String::from_utf8_lossy(self.member_name(id, m.name)).into_owned();
            let join = |path: &str| match (path.is_empty(), name.is_empty()) {
                (true, _) => name.clone(),
                (_, true) => path.to_owned(),
                _ => format!("{path}.{name}"),
            };
            match t.kind() {
                KIND_STRUCT | KIND_UNION => {
                    let type_name = self.type_name(type_id);
                    if LOCK_TYPES.contains(&type_name.as_str()) {
                        let here = join(&path);
                        let sleeps = matches!(type_name.as_str(), "semaphore" | "mutex" | "rw_semaphore");
                        if rest == 0 && !(spins && sleeps) {
                            return Some(format!("{owner}.{here}"));
                        }
                        return self.lock_in(type_id, owner, here, rest, spins, depth + 1);
                    }
                    let found = if type_name.is_empty() {
                        self.lock_in(type_id, owner, join(&path), rest, spins, depth + 1)
                    } else {
                        self.lock_in(type_id, &type_name, String::new(), rest, spins, depth + 1)
                    };
                    if found.is_some() {
                        return found;
                    }
                }
                KIND_ARRAY => {
                    let element = self.strip(btf.word(t.at + 12));
                    let each = self.size(element);
                    let type_name = self.type_name(element);
                    if each == 0 {
                        continue;
                    }
                    if LOCK_TYPES.contains(&type_name.as_str()) && rest.is_multiple_of(each) {
                        return Some(format!("{owner}.{}", join(&path)));
                    }
                    let inner = if type_name.is_empty() { owner } else { &type_name };
                    if let Some(found) =
                        self.lock_in(element, inner, String::new(), rest % each, spins, depth + 1)
                    {
                        return Some(found);
                    }
                }
                _ => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_kernels_types_give_offsets_and_lock_names() {
        let btf = Btf::kernel().expect("this kernel has BTF");
        assert!(btf.has_tracepoint("sched_switch"));
        assert!(!btf.has_tracepoint("no_such_tracepoint"));
        assert!(btf.has_function("schedule"));
        assert!(!btf.has_function("no_such_function"));
        assert_eq!(btf.tracepoints(&["sched_waking", "nothing"]), [true, false]);
        assert_eq!(btf.tracepoint_arguments("sched_waking"), Some(1));
        let offset = btf.offset_of("inode", "i_rwsem").expect("inodes have i_rwsem");
        assert_eq!(btf.lock_at("inode", offset, false).as_deref(), Some("inode.i_rwsem"));
        let offset = btf.offset_of("mm_struct", "mmap_lock").expect("mm_struct has mmap_lock");
        assert_eq!(btf.lock_at("mm_struct", offset, false).as_deref(), Some("mm_struct.mmap_lock"));
        assert_eq!(btf.lock_at("mm_struct", 3, false), None);
    }

    #[test]
    fn a_lock_in_an_embedded_inode_is_named_by_the_inode() {
        let btf = Btf::kernel().expect("this kernel has BTF");
        let Some(outer) = btf.offset_of("shmem_inode_info", "vfs_inode.i_rwsem") else { return };
        assert_eq!(btf.lock_at("shmem_inode_info", outer, false).as_deref(), Some("inode.i_rwsem"));
    }

    #[test]
    fn garbage_is_refused_and_does_not_panic() {
        for bytes in [vec![], vec![0x9f, 0xeb], vec![0x9f, 0xeb, 1, 0, 255, 255, 255, 255, 1, 2, 3, 4]] {
            assert!(Btf::parse(bytes, None).is_err());
        }
    }
}
