//! How the files of a patch get to the disk: first all contents beside their places, then one file after the other,
//! those that are removed last. Where something fails, what was done is undone, from the last to the first.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    os::fd::OwnedFd,
    path::PathBuf,
};

use rustix::{
    fs::{AtFlags, Mode, OFlags, unlinkat},
    io::{self, Errno},
};

use super::{Change, stage::Slot};
use crate::{
    error::{Error, Result},
    file::{
        Limits,
        condition::changed,
        meta::Meta,
        path::{Place, Target, open_beneath},
        replace::{New, Prepared, prepare, replace, sync_directory},
    },
};

/// Writes and removes what `slots` say. False when a file is not what it was any more; then, as after an error, all
/// are as before.
pub(super) fn commit(slots: &[Slot], limits: &Limits) -> Result<bool> {
    let mut done = Vec::new();
    let result = carry_out(slots, limits, &mut done);
    if matches!(result, Ok(true)) {
        return result;
    }
    let mut left = Vec::new();
    for step in done.iter().rev() {
        if !undo(step, limits).unwrap_or(false) {
            left.push(step.slot.place.shown.as_str());
        }
    }
    slots.iter().for_each(remove_folders);
    let state = match (done.is_empty(), left.is_empty()) {
        (true, _) => "nothing was changed".to_owned(),
        (_, true) => "nothing is changed: what was written before was put back".to_owned(),
        _ => format!("these files were changed and could not be put back: {}", left.join(", ")),
    };
    match result {
        Ok(_) if left.is_empty() => Ok(false),
        Ok(_) => {
            let place = &done[0].slot.place;
            Err(Error::PatchStopped { source: Box::new(changed(place, "changing all the time")), state })
        }
        Err(source) => Err(Error::PatchStopped { source: Box::new(source), state }),
    }
}

/// A file that was changed.
struct Done<'a> {
    slot: &'a Slot,
    /// What is there now: facts of the file that was put there, or nothing and the removed one, still open.
    now: std::result::Result<Meta, File>,
}

fn carry_out<'a>(slots: &'a [Slot], limits: &Limits, done: &mut Vec<Done<'a>>) -> Result<bool> {
    let written: Vec<&Slot> = slots.iter().filter(|slot| slot.is_written()).collect();
    let Some(sources) = open_sources(slots, &written)? else {
        return Ok(false);
    };
    let contents: Vec<New<'_>> =
        written.iter().zip(&sources).map(|(slot, source)| new_of(slot, source.as_ref())).collect();
    let mut prepared: Vec<(&Slot, Prepared<'_>)> = Vec::with_capacity(written.len());
    for (slot, new) in written.iter().zip(&contents) {
        match prepare(&slot.place, slot.old.as_ref().map(|old| &old.meta), new, limits)? {
            Some(step) => prepared.push((slot, step)),
            None => return Ok(false),
        }
    }
    for slot in slots {
        if !is_as_found(slot)? {
            return Ok(false);
        }
    }
    // What is written in place can still run out of space; then nothing else has been done.
    prepared.sort_by_key(|(_, step)| !step.is_in_place());
    for (slot, step) in prepared {
        if !put(slot, step, done)? {
            return Ok(false);
        }
    }
    for slot in slots.iter().filter(|slot| slot.is_removed()) {
        if !remove(slot, done)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The open file, with its facts, that a renamed one was.
type Source<'a> = Option<(File, &'a Meta)>;

/// The source of each of `written`. `None` when one has changed.
fn open_sources<'a>(slots: &'a [Slot], written: &[&Slot]) -> Result<Option<Vec<Source<'a>>>> {
    let mut sources = Vec::with_capacity(written.len());
    for slot in written {
        let source = match (&slot.old, slot.origin) {
            (None, Some((Change::Renamed, from))) => slots.get(from),
            _ => None,
        };
        let Some((source, old)) = source.and_then(|source| Some((source, source.old.as_ref()?))) else {
            sources.push(None);
            continue;
        };
        match source.place.open()? {
            Some((file, meta)) if meta == old.meta => sources.push(Some((file, &old.meta))),
            _ => return Ok(None),
        }
    }
    Ok(Some(sources))
}

fn new_of<'a>(slot: &'a Slot, source: Option<&'a (File, &'a Meta)>) -> New<'a> {
    let content = slot.now.as_ref().map_or(&[][..], |content| content.as_slice());
    New { executable: slot.executable, like: source.map(|(file, meta)| (file, *meta)), ..New::of(content) }
}

fn is_as_found(slot: &Slot) -> Result<bool> {
    let (Target::Entry { parent, name, .. }, Some(old)) = (&slot.place.target, &slot.old) else {
        return Ok(true);
    };
    match Meta::at(parent, name) {
        Ok(meta) => Ok(meta == old.meta),
        Err(Errno::NOENT) => Ok(false),
        Err(e) => Err(slot.place.error("look at", e)),
    }
}

/// Puts a file in place, and notes it also where it failed after that.
fn put<'a>(slot: &'a Slot, step: Prepared<'_>, done: &mut Vec<Done<'a>>) -> Result<bool> {
    let ours = step.meta()?;
    let result = step.finish();
    if !matches!(result, Ok(false))
        && let Ok((folder, name)) = holder(&slot.place)
        && let Ok(meta) = Meta::at(&folder, name)
        && meta.same_file(&ours)
    {
        done.push(Done { slot, now: Ok(meta) });
    }
    result
}

fn remove<'a>(slot: &'a Slot, done: &mut Vec<Done<'a>>) -> Result<bool> {
    let (Target::Entry { parent, name, .. }, Some(old)) = (&slot.place.target, &slot.old) else {
        return Ok(false);
    };
    // Held open, so that it can be made again as it was.
    let Some((file, meta)) = slot.place.open()? else {
        return Ok(false);
    };
    if meta != old.meta {
        return Ok(false);
    }
    match unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) => done.push(Done { slot, now: Err(file) }),
        Err(Errno::NOENT | Errno::ISDIR) => return Ok(false),
        Err(e) => return Err(slot.place.error("delete", e)),
    }
    sync_directory(parent).map_err(|e| slot.place.error("delete", e))?;
    Ok(true)
}

/// Puts back what was there before. False when somebody else has changed it since.
fn undo(step: &Done<'_>, limits: &Limits) -> Result<bool> {
    let Done { slot, now } = step;
    let place = &slot.place;
    let failed = |e| place.error("put back", e);
    // The reserve is for such moments.
    let limits = Limits { reserve_bytes: 0, ..limits.clone() };
    match (now, &slot.old) {
        (Ok(now), Some(old)) => {
            let new = New { mode: Some(old.meta.mode), ..New::of(old.content.as_slice()) };
            replace(place, Some(now), &new, &limits)
        }
        (Ok(now), None) => {
            let (folder, name) = holder(place).map_err(failed)?;
            if Meta::at(&folder, name).map_err(failed)? != *now {
                return Ok(false);
            }
            unlinkat(&folder, name, AtFlags::empty()).map_err(failed)?;
            sync_directory(&folder).map_err(failed)?;
            Ok(true)
        }
        (Err(file), Some(old)) => {
            let (parent, name) = holder(place).map_err(failed)?;
            let name = name.to_owned();
            let target = Target::Missing { parent, folders: Vec::new(), name, as_directory: false };
            let again = Place { shown: place.shown.clone(), path: place.path.clone(), target };
            let new = New { like: Some((file, &old.meta)), ..New::of(old.content.as_slice()) };
            replace(&again, None, &new, &limits)
        }
        (Err(_), None) => Ok(true),
    }
}

/// The directory that holds what is at `place`, or is to hold it, and the name there.
fn holder(place: &Place) -> io::Result<(OwnedFd, &OsStr)> {
    match &place.target {
        Target::Entry { parent, name, .. } => Ok((below(parent, &[])?, name)),
        Target::Missing { parent, folders, name, .. } => Ok((below(parent, folders)?, name)),
        Target::Directory(_) => Err(Errno::ISDIR),
    }
}

fn below(parent: &OwnedFd, folders: &[OsString]) -> io::Result<OwnedFd> {
    let path: PathBuf =
        std::iter::once(OsStr::new(".")).chain(folders.iter().map(OsString::as_os_str)).collect();
    open_beneath(parent, &*path, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW, Mode::empty())
}

/// Removes the directories that were made for a new file, as far as they are empty.
fn remove_folders(slot: &Slot) {
    let Target::Missing { parent, folders, .. } = &slot.place.target else {
        return;
    };
    let mut folders = folders.as_slice();
    while let [above @ .., last] = folders {
        let removed = below(parent, above).and_then(|folder| unlinkat(folder, last, AtFlags::REMOVEDIR));
        if !matches!(removed, Ok(()) | Err(Errno::NOENT)) {
            return;
        }
        folders = above;
    }
}
