//! How new content gets to the disk, so that at any moment the file is the old one or the new one, whole.
//!
//! - A new file is written without a name and gets its name when it is durable; a name that somebody else took in the
//!   meantime is left alone.
//! - An existing file is replaced by one that has its mode, owner and extended attributes, access lists included. As
//!   on any write, set-id bits and file capabilities are not kept.
//! - A file with several names, or one whose owner or attributes a replacement could not keep, is written in place,
//!   after its space was reserved. Only there can a crash in mid-write leave a part.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::Write as _,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    fs::{FallocateFlags, Mode, OFlags, fallocate, fchmod, fstatvfs, fsync, ftruncate, mkdirat},
    io::{self, Errno},
    process::{Resource, getrlimit},
};

use super::{
    Limits,
    attributes::copy_attributes,
    meta::Meta,
    path::{FILE_FLAGS, Place, Target, open_beneath},
    temp::Temp,
};
use crate::error::{Error, Result};

/// Content of a file to be.
pub(super) trait Content {
    /// Its size in bytes.
    fn size(&self) -> u64;

    /// Writes it to `file`, which is at its start.
    fn write_to(&self, file: &File) -> io::Result<()>;
}

impl<T: AsRef<[u8]> + ?Sized> Content for T {
    fn size(&self) -> u64 {
        u64::try_from(self.as_ref().len()).unwrap_or(u64::MAX)
    }

    fn write_to(&self, mut file: &File) -> io::Result<()> {
        file.write_all(self.as_ref()).map_err(errno)
    }
}

/// What to put in place.
pub(super) struct New<'a, C: Content + ?Sized = [u8]> {
    /// The content.
    pub(super) content: &'a C,
    /// Whether to set or clear the execute bits.
    pub(super) executable: Option<bool>,
    /// Whether the old file must be unchanged, not just the same file.
    pub(super) unchanged: bool,
    /// Permission bits instead of those of the old file.
    pub(super) mode: Option<u32>,
    /// For a new file: one, open and with these facts, whose owner, attributes and mode it gets as far as possible.
    pub(super) like: Option<(&'a File, &'a Meta)>,
}

impl<'a, C: Content + ?Sized> New<'a, C> {
    /// `content` in place of an unchanged file, with its mode.
    pub(super) fn of(content: &'a C) -> Self {
        Self { content, executable: None, unchanged: true, mode: None, like: None }
    }
}

/// Puts `new` at `place`, where `old` was seen. False when there is something else by now, and nothing was done.
pub(super) fn replace<C: Content + ?Sized>(
    place: &Place,
    old: Option<&Meta>,
    new: &New<'_, C>,
    limits: &Limits,
) -> Result<bool> {
    match prepare(place, old, new, limits)? {
        Some(prepared) => prepared.finish(),
        None => Ok(false),
    }
}

/// Content that is on the disk and durable, but not in place: when dropped it is as if it had never been.
pub(super) struct Prepared<'a, C: Content + ?Sized = [u8]> {
    place: &'a Place,
    new: &'a New<'a, C>,
    limits: &'a Limits,
    step: Step<'a>,
}

/// What is left to do.
enum Step<'a> {
    /// Give the new file its name, below `folders` that may have to be made.
    Name { parent: &'a OwnedFd, folders: &'a [OsString], name: &'a OsStr, temp: Temp<'a> },
    /// Give the new file the name of the old one.
    NameOver { parent: &'a OwnedFd, name: &'a OsStr, old: &'a Meta, temp: Temp<'a> },
    /// Write to the old file.
    Write { parent: &'a OwnedFd, file: File, old: &'a Meta },
}

/// Does as much of [`replace`] as nobody can see. `None` when there is something else than `old` by now.
pub(super) fn prepare<'a, C: Content + ?Sized>(
    place: &'a Place,
    old: Option<&'a Meta>,
    new: &'a New<'a, C>,
    limits: &'a Limits,
) -> Result<Option<Prepared<'a, C>>> {
    let (parent, step) = match (&place.target, old) {
        (Target::Missing { parent, folders, name, .. }, None) => {
            keep_reserve(place, parent, new, limits)?;
            let temp = make(parent, new);
            (parent, temp.map(|temp| Some(Step::Name { parent, folders, name, temp })))
        }
        (Target::Entry { parent, name, .. }, Some(old)) => {
            keep_reserve(place, parent, new, limits)?;
            (parent, make_over(parent, name, old, new))
        }
        _ => return Ok(None),
    };
    let step = told(place, parent, limits, step)?;
    Ok(step.map(|step| Prepared { place, new, limits, step }))
}

impl<C: Content + ?Sized> Prepared<'_, C> {
    /// Puts it in place. False when there is something else than before by now, and nothing was done.
    pub(super) fn finish(self) -> Result<bool> {
        let Self { place, new, limits, step } = self;
        let (parent, result) = match step {
            Step::Name { parent, folders, name, temp } => (parent, name_new(parent, folders, name, temp)),
            Step::NameOver { parent, name, old, temp } => (parent, name_over(parent, name, old, new, temp)),
            Step::Write { parent, file, old } => (parent, write_in_place(&file, old, new)),
        };
        told(place, parent, limits, result)
    }

    /// Facts of the file that will have the name.
    pub(super) fn meta(&self) -> Result<Meta> {
        let meta = match &self.step {
            Step::Name { temp, .. } | Step::NameOver { temp, .. } => Meta::of(temp.file()),
            Step::Write { file, .. } => Meta::of(file),
        };
        meta.map_err(|e| self.place.error("look at", e))
    }

    /// Whether the old file itself is written to.
    pub(super) fn is_in_place(&self) -> bool {
        matches!(self.step, Step::Write { .. })
    }
}

fn told<T>(place: &Place, parent: &OwnedFd, limits: &Limits, result: io::Result<T>) -> Result<T> {
    match result {
        Err(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => Err(no_space(free_bytes(place, parent)?, limits)),
        other => other.map_err(|e| place.error("write", e)),
    }
}

fn keep_reserve<C: Content + ?Sized>(
    place: &Place,
    parent: &OwnedFd,
    new: &New<'_, C>,
    limits: &Limits,
) -> Result<()> {
    let free = free_bytes(place, parent)?;
    let needed = new.content.size().saturating_add(limits.reserve_bytes);
    if free < needed { Err(no_space(free, limits)) } else { Ok(()) }
}

fn free_bytes(place: &Place, parent: &OwnedFd) -> Result<u64> {
    let facts = fstatvfs(parent).map_err(|e| place.error("ask for the free space of", e))?;
    Ok(facts.f_bavail.saturating_mul(facts.f_frsize))
}

fn no_space(free_bytes: u64, limits: &Limits) -> Error {
    Error::NoSpace { free_bytes, reserve_bytes: limits.reserve_bytes }
}

/// A new file with its content, made where the path so far exists.
fn make<'a, C: Content + ?Sized>(parent: &'a OwnedFd, new: &New<'_, C>) -> io::Result<Temp<'a>> {
    let mode = if new.like.is_some() { 0o600 } else { 0o644 };
    let mut temp = Temp::create(parent.as_fd(), Mode::from_raw_mode(mode))?;
    if let Some((file, meta)) = new.like {
        // Where the owner can't be kept, the file is the maker's, as any new one.
        copy_attributes(file.as_fd(), temp.file(), meta)?;
    }
    fill(&mut temp, new, new.like.map(|(_, meta)| meta.mode & 0o1777))?;
    Ok(temp)
}

fn name_new(parent: &OwnedFd, folders: &[OsString], name: &OsStr, temp: Temp<'_>) -> io::Result<bool> {
    let mut made = Vec::with_capacity(folders.len());
    for folder in folders {
        let within = made.last().unwrap_or(parent);
        match mkdirat(within, folder, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(e),
        }
        match open_beneath(
            within,
            &**folder,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW,
            Mode::empty(),
        ) {
            Ok(folder) => made.push(folder),
            // Somebody made something else of this name.
            Err(Errno::NOTDIR | Errno::LOOP) => return Ok(false),
            Err(e) => return Err(e),
        }
    }
    let folder = made.last().unwrap_or(parent);
    if !temp.name_new(folder.as_fd(), name)? {
        return Ok(false);
    }
    for directory in made.iter().rev().chain(std::iter::once(parent)) {
        sync_directory(directory)?;
    }
    Ok(true)
}

/// What replaces the file `name`; nothing where that is not `old` any more.
fn make_over<'a, C: Content + ?Sized>(
    parent: &'a OwnedFd,
    name: &'a OsStr,
    old: &'a Meta,
    new: &New<'_, C>,
) -> io::Result<Option<Step<'a>>> {
    // The kernel says whether the file may be written: replacing it would only ask for the right to its directory.
    let file = match open_beneath(parent, name, OFlags::WRONLY | FILE_FLAGS, Mode::empty()) {
        Ok(file) => Ok(file),
        // A program that is running can be replaced, but not written to.
        Err(Errno::TXTBSY) => Err(open_beneath(parent, name, OFlags::RDONLY | FILE_FLAGS, Mode::empty())?),
        Err(Errno::LOOP | Errno::NOENT | Errno::NXIO | Errno::ISDIR) => return Ok(None),
        Err(e) => return Err(e),
    };
    let (Ok(seen) | Err(seen)) = &file;
    if !is_as_seen(&Meta::of(seen)?, old, new) {
        return Ok(None);
    }
    if old.links == 1 {
        let mut temp = Temp::create(parent.as_fd(), Mode::from_raw_mode(0o600))?;
        if copy_attributes(seen.as_fd(), temp.file(), old)? {
            fill(&mut temp, new, Some(new.mode.unwrap_or(old.mode) & 0o1777))?;
            return Ok(Some(Step::NameOver { parent, name, old, temp }));
        }
    }
    let file = File::from(file.map_err(|_| Errno::TXTBSY)?);
    Ok(Some(Step::Write { parent, file, old }))
}

fn name_over<C: Content + ?Sized>(
    parent: &OwnedFd,
    name: &OsStr,
    old: &Meta,
    new: &New<'_, C>,
    temp: Temp<'_>,
) -> io::Result<bool> {
    match Meta::at(parent, name) {
        Ok(now) if is_as_seen(&now, old, new) => {}
        Ok(_) | Err(Errno::NOENT) => return Ok(false),
        Err(e) => return Err(e),
    }
    temp.name_over(name)?;
    sync_directory(parent)?;
    Ok(true)
}

fn is_as_seen<C: Content + ?Sized>(now: &Meta, old: &Meta, new: &New<'_, C>) -> bool {
    if new.unchanged { now == old } else { now.same_file(old) }
}

/// Writes the content to `temp`, gives it `mode` (that which it has, where `None`), and makes it durable.
fn fill<C: Content + ?Sized>(temp: &mut Temp<'_>, new: &New<'_, C>, mode: Option<u32>) -> io::Result<()> {
    new.content.write_to(temp.file())?;
    let now = Meta::of(temp.file())?.mode;
    let wanted = executable(mode.unwrap_or(now), new.executable);
    if wanted != now {
        fchmod(temp.file(), Mode::from_raw_mode(wanted))?;
    }
    // After an error the kernel takes the lost pages for clean, so a second try would lie.
    fsync(temp.file())
}

fn write_in_place<C: Content + ?Sized>(file: &File, old: &Meta, new: &New<'_, C>) -> io::Result<bool> {
    if !is_as_seen(&Meta::of(file)?, old, new) {
        return Ok(false);
    }
    let size = new.content.size();
    // What could end the write in its middle must show before it starts: the limit of file sizes, the free space.
    if getrlimit(Resource::Fsize).current.is_some_and(|most| size > most) {
        return Err(Errno::FBIG);
    }
    if size > 0 {
        match fallocate(file, FallocateFlags::KEEP_SIZE, 0, size) {
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(e) => {
                // Gives back what was reserved past the end before the space ran out.
                ftruncate(file, old.size)?;
                return Err(e);
            }
        }
    }
    new.content.write_to(file)?;
    ftruncate(file, size)?;
    let wanted = executable(new.mode.unwrap_or(old.mode) & 0o1777, new.executable);
    if wanted != old.mode {
        fchmod(file, Mode::from_raw_mode(wanted))?;
    }
    fsync(file)?;
    Ok(true)
}

pub(super) fn executable(mode: u32, executable: Option<bool>) -> u32 {
    match executable {
        None => mode,
        Some(true) => mode | ((mode & 0o444) >> 2),
        Some(false) => mode & !0o111,
    }
}

/// Makes the names in a directory durable. One that may be written but not read can't be synced.
pub(super) fn sync_directory(directory: &OwnedFd) -> io::Result<()> {
    match open_beneath(directory, ".", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()) {
        Ok(directory) => fsync(directory),
        Err(Errno::ACCESS) => Ok(()),
        Err(e) => Err(e),
    }
}

pub(super) fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
