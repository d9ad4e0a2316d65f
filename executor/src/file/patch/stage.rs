//! The files of a patch in memory: what they were, and what they become section by section. Nothing is written here.

use std::{collections::HashMap, rc::Rc};

use super::{
    Change, Moved, PatchedFile,
    apply::{apply, left_over},
    hunk::Hunk,
    parse::{Action, Section},
};
use crate::{
    error::{Error, PathProblem, Result},
    file::{
        Limits,
        condition::sha256_hex,
        meta::{Kind, Meta},
        path::{ATTEMPTS, Place, Root, Target},
        queue::Key,
        read::read_whole,
        replace::executable,
    },
};

/// How many times the largest file all files of a patch may have together, before and after.
const TOGETHER: u64 = 8;

/// All files that a patch names.
pub(super) struct Stage<'a> {
    root: &'a Root,
    limits: &'a Limits,
    slots: Vec<Slot>,
    by_key: HashMap<Key, usize>,
    /// Bytes held so far.
    bytes: u64,
}

/// One file, whatever names the patch calls it.
pub(super) struct Slot {
    pub(super) place: Place,
    /// The file as it was found, if there was one.
    pub(super) old: Option<Old>,
    /// Its content by now; nothing where there is no file.
    pub(super) now: Option<Rc<Vec<u8>>>,
    /// Whether to set or clear the execute bits.
    pub(super) executable: Option<bool>,
    /// The slot it was renamed or copied from.
    pub(super) origin: Option<(Change, usize)>,
    added: u64,
    removed: u64,
    moved: Vec<Moved>,
    /// How many sections named it.
    uses: usize,
}

/// A file as it was found.
pub(super) struct Old {
    pub(super) meta: Meta,
    pub(super) content: Rc<Vec<u8>>,
}

impl Slot {
    /// Whether the file is to be written.
    pub(super) fn is_written(&self) -> bool {
        match (&self.old, &self.now) {
            (Some(old), Some(now)) => {
                let mode = executable(old.meta.mode, self.executable);
                mode != old.meta.mode || old.content != *now
            }
            (None, now) => now.is_some(),
            (Some(_), None) => false,
        }
    }

    /// Whether the file is to be removed.
    pub(super) fn is_removed(&self) -> bool {
        self.old.is_some() && self.now.is_none()
    }

    /// Whether it is a file with several names.
    fn has_names(&self) -> bool {
        self.old.as_ref().is_some_and(|old| old.meta.links > 1)
    }

    fn problem(&self, problem: PathProblem) -> Error {
        self.place.problem(problem)
    }
}

impl<'a> Stage<'a> {
    pub(super) fn new(root: &'a Root, limits: &'a Limits) -> Self {
        Self { root, limits, slots: Vec::new(), by_key: HashMap::new(), bytes: 0 }
    }

    pub(super) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Does what `section` says, after all before it.
    pub(super) fn run(&mut self, section: &Section<'_>) -> Result<()> {
        match &section.action {
            Action::Modify(name) => {
                let slot = self.slot(name, section)?;
                self.modify(slot, name, section)
            }
            Action::ModifyEither(old, new) => {
                let (old_slot, new_slot) = (self.slot(old, section)?, self.slot(new, section)?);
                let exists = |slot: usize| self.slots[slot].now.is_some();
                match (exists(old_slot), exists(new_slot)) {
                    (true, true) if old_slot != new_slot => {
                        let problem =
                            "names two files that both exist; expected the one to change in both lines";
                        Err(Error::PatchInvalid { line: section.line, problem: problem.to_owned() })
                    }
                    (true, _) => self.modify(old_slot, old, section),
                    (false, _) => self.modify(new_slot, new, section),
                }
            }
            Action::Create(name) => {
                let slot = self.slot(name, section)?;
                self.create(slot, name, section)
            }
            Action::Delete(name) => {
                let slot = self.slot(name, section)?;
                self.delete(slot, name, section)
            }
            Action::Rename(from, to) => self.rename(from, to, section),
            Action::Copy(from, to) => self.copy(from, to, section),
        }
    }

    /// The files that are other than before.
    pub(super) fn files(&self) -> Vec<PatchedFile> {
        let gone = |at| {
            self.slots.iter().any(|slot| slot.now.is_some() && slot.origin == Some((Change::Renamed, at)))
        };
        let mut files = Vec::new();
        for (at, slot) in self.slots.iter().enumerate() {
            let change = match (&slot.old, slot.origin) {
                _ if slot.is_removed() && gone(at) => continue,
                _ if slot.is_removed() => Change::Deleted,
                _ if !slot.is_written() => continue,
                (_, Some((change, _))) => change,
                (None, None) => Change::Created,
                (Some(_), None) => Change::Modified,
            };
            let content = slot.now.as_deref();
            files.push(PatchedFile {
                path: slot.place.path.clone(),
                change,
                from: slot.origin.map(|(_, from)| self.slots[from].place.path.clone()),
                added: slot.added,
                removed: slot.removed,
                sha256: content.map(|content| sha256_hex(content)),
                size_bytes: content.map_or(0, |content| size(content)),
                executable: slot.executable.filter(|_| change != Change::Deleted),
                moved: slot.moved.clone(),
            });
        }
        files
    }

    fn modify(&mut self, slot: usize, name: &[u8], section: &Section<'_>) -> Result<()> {
        if self.slots[slot].now.is_none() {
            return match section.hunks.as_slice() {
                [hunk] if hunk.starts_a_file() => self.create(slot, name, section),
                _ => Err(self.slots[slot].problem(PathProblem::NotFound)),
            };
        }
        self.edit(slot, section)
    }

    fn create(&mut self, slot: usize, name: &[u8], section: &Section<'_>) -> Result<()> {
        self.expect_free(slot, name)?;
        self.slots[slot].now = Some(Rc::default());
        self.edit(slot, section)
    }

    fn delete(&mut self, slot: usize, name: &[u8], section: &Section<'_>) -> Result<()> {
        self.expect_own_name(slot, name, section)?;
        self.edit(slot, section)?;
        let slot = &mut self.slots[slot];
        match slot.now.take() {
            Some(content) if !content.is_empty() => {
                Err(mismatch(slot, section.hunks.len().max(1), section, left_over(&content).into_owned()))
            }
            _ => {
                (slot.executable, slot.origin) = (None, None);
                Ok(())
            }
        }
    }

    fn rename(&mut self, from: &[u8], to: &[u8], section: &Section<'_>) -> Result<()> {
        let (source, target) = (self.slot(from, section)?, self.slot(to, section)?);
        self.expect_own_name(source, from, section)?;
        self.expect_free(target, to)?;
        let old = &mut self.slots[source];
        let origin = if old.old.is_some() { Some((Change::Renamed, source)) } else { old.origin };
        let (now, bits) = (old.now.take(), old.executable.take());
        let (added, removed) = (std::mem::take(&mut old.added), std::mem::take(&mut old.removed));
        let moved = std::mem::take(&mut old.moved);
        old.origin = None;
        let new = &mut self.slots[target];
        (new.now, new.executable, new.origin) = (now, bits, origin);
        (new.added, new.removed, new.moved) = (added, removed, moved);
        self.edit(target, section)
    }

    /// Copies a file as it was before the patch, as git means it; or one that the patch itself made.
    fn copy(&mut self, from: &[u8], to: &[u8], section: &Section<'_>) -> Result<()> {
        let (source, target) = (self.slot(from, section)?, self.slot(to, section)?);
        self.expect_free(target, to)?;
        let old = &self.slots[source];
        let content = old.old.as_ref().map(|old| &old.content).or(old.now.as_ref());
        let content = Rc::clone(content.ok_or_else(|| old.problem(PathProblem::NotFound))?);
        let set = old.old.as_ref().map_or(old.executable == Some(true), |old| old.meta.mode & 0o100 != 0);
        let new = &mut self.slots[target];
        (new.now, new.executable) = (Some(content), set.then_some(true));
        new.origin = Some((Change::Copied, source));
        self.edit(target, section)
    }

    /// Applies the hunks and the mode of a section.
    fn edit(&mut self, at: usize, section: &Section<'_>) -> Result<()> {
        let slot = &mut self.slots[at];
        let before = slot.now.as_ref().ok_or_else(|| slot.place.problem(PathProblem::NotFound))?;
        if !section.hunks.is_empty() {
            let applied = apply(before, &section.hunks)
                .map_err(|no| mismatch(slot, no.hunk, section, no.problem.into_owned()))?;
            let bytes = size(&applied.content);
            if bytes > self.limits.max_bytes {
                return Err(too_large(&slot.place, bytes, self.limits));
            }
            slot.now = Some(Rc::new(applied.content));
            slot.added += applied.added;
            slot.removed += applied.removed;
            slot.moved.extend(applied.moved);
            self.hold(bytes)?;
        }
        let slot = &mut self.slots[at];
        slot.executable = section.executable.or(slot.executable);
        Ok(())
    }

    /// Fails unless `name` is free for a new file. A link is in the way, wherever it leads.
    fn expect_free(&self, slot: usize, name: &[u8]) -> Result<()> {
        let slot = &self.slots[slot];
        if slot.now.is_some() || is_link(self.root, name)? {
            return Err(slot.problem(PathProblem::Exists));
        }
        Ok(())
    }

    /// Fails unless `name` can be taken from the file. A link is not the file that it leads to.
    fn expect_own_name(&self, slot: usize, name: &[u8], section: &Section<'_>) -> Result<()> {
        let slot = &self.slots[slot];
        if is_link(self.root, name)? {
            return Err(Error::path(super::show(name), PathProblem::NotARegularFile));
        }
        if slot.now.is_none() {
            return Err(slot.problem(PathProblem::NotFound));
        }
        if slot.has_names() && slot.uses > 1 { Err(other_name(slot, section)) } else { Ok(()) }
    }

    /// The slot of the file at `name`, which is read when it is met for the first time.
    fn slot(&mut self, name: &[u8], section: &Section<'_>) -> Result<usize> {
        for _ in 0..ATTEMPTS {
            let place = self.root.resolve(name)?;
            let key = place.key()?;
            if let Some(&at) = self.by_key.get(&key) {
                let slot = &mut self.slots[at];
                slot.uses += 1;
                if slot.has_names() && slot.now.is_none() {
                    return Err(other_name(slot, section));
                }
                return Ok(at);
            }
            let Some(old) = load(&place, self.limits)? else {
                continue;
            };
            self.hold(old.as_ref().map_or(0, |old| size(&old.content)))?;
            let now = old.as_ref().map(|old| Rc::clone(&old.content));
            let (added, removed, moved) = (0, 0, Vec::new());
            let (executable, origin, uses) = (None, None, 1);
            self.slots.push(Slot { place, old, now, executable, origin, added, removed, moved, uses });
            self.by_key.insert(key, self.slots.len() - 1);
            return Ok(self.slots.len() - 1);
        }
        Err(Error::path(super::show(name), PathProblem::NotARegularFile))
    }

    fn hold(&mut self, bytes: u64) -> Result<()> {
        self.bytes = self.bytes.saturating_add(bytes);
        let most = self.limits.max_bytes.saturating_mul(TOGETHER);
        if self.bytes > most {
            let problem = format!(
                "its files have more than {most} bytes together, before and after; apply it in parts"
            );
            return Err(Error::invalid("patch", problem));
        }
        Ok(())
    }
}

/// The file at `place`, if there is one. `None` when it was swapped for something else meanwhile.
fn load(place: &Place, limits: &Limits) -> Result<Option<Option<Old>>> {
    if let Target::Missing { as_directory, .. } = &place.target {
        return if *as_directory { Err(place.problem(PathProblem::IsADirectory)) } else { Ok(Some(None)) };
    }
    let Some((file, meta)) = place.open()? else {
        return Ok(None);
    };
    if meta.size > limits.max_bytes {
        return Err(too_large(place, meta.size, limits));
    }
    let content = Rc::new(read_whole(place, &file, meta.size)?);
    Ok(Some(Some(Old { meta, content })))
}

/// Whether the last name of `path` is that of a link.
fn is_link(root: &Root, path: &[u8]) -> Result<bool> {
    let start = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let (parent, name) = path.split_at(start);
    if name.is_empty() {
        return Ok(false);
    }
    let parent = root.resolve(if parent.is_empty() { b"." } else { parent })?;
    let Target::Directory(directory) = &parent.target else {
        return Ok(false);
    };
    match Meta::at(directory, name) {
        Ok(meta) => Ok(meta.kind == Kind::Symlink),
        Err(rustix::io::Errno::NOENT) => Ok(false),
        Err(e) => Err(parent.error("look into", e)),
    }
}

fn mismatch(slot: &Slot, hunk: usize, section: &Section<'_>, problem: String) -> Error {
    let line = section.hunks.get(hunk - 1).map_or(section.line, |hunk: &Hunk<'_>| hunk.line);
    Error::PatchMismatch { path: slot.place.shown.clone(), hunk, line, problem }
}

fn other_name(slot: &Slot, section: &Section<'_>) -> Error {
    let problem = format!(
        "{} has several names, and another part of the patch takes one away; expected two patches",
        slot.place.shown
    );
    Error::PatchInvalid { line: section.line, problem }
}

fn too_large(place: &Place, bytes: u64, limits: &Limits) -> Error {
    Error::FileTooLarge { path: place.shown.clone(), bytes, limit: limits.max_bytes }
}

fn size(content: &[u8]) -> u64 {
    u64::try_from(content.len()).unwrap_or(u64::MAX)
}
