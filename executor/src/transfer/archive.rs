//! Trees as archives, entry by entry as they are met, so that no memory grows with them. Links are stored as links and
//! never followed; pipes, sockets and devices are left out and counted. How an entry is written is decided in `pack`.

use std::collections::BTreeSet;
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{Dir, Mode, OFlags, readlinkat};
use rustix::io;

use super::pack::Packer;
use super::sink::{Filled, Sink, Watch};
use crate::error::{Error, Result};
use crate::file::{FILE_FLAGS, Kind, Meta, Place, Root, Target, open_beneath};

/// Deepest level that is entered, so that few directories are open at a time.
const MAX_DEPTH: usize = 128;

/// Form of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// tar, compressed by gzip.
    TarGz,
    /// zip.
    Zip,
}

impl Format {
    pub(super) const fn ending(self) -> &'static str {
        match self {
            Self::TarGz => "tar.gz",
            Self::Zip => "zip",
        }
    }
}

/// An archive.
#[derive(Debug)]
pub(super) struct Packed {
    pub(super) filled: Filled,
    pub(super) entries: u64,
    counts: Counts,
}

/// What did not go as a reader of the archive might think.
#[derive(Debug, Default)]
pub(super) struct Counts {
    special: u64,
    unreadable: u64,
    deep: u64,
    /// Files that were written to while they were read.
    changed: u64,
}

impl Packed {
    pub(super) fn notes(&self) -> Vec<String> {
        let Counts { special, unreadable, deep, changed } = self.counts;
        [
            (special, "pipes, sockets or devices were left out"),
            (unreadable, "entries could not be read and were left out"),
            (deep, "folders lie too deep and are empty in the archive"),
            (changed, "files were written to while they were read"),
        ]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect()
    }
}

/// Packs what is at `places` into `sink`.
pub(super) fn archive(root: &Root, places: Vec<Place>, format: Format, sink: Sink) -> Result<Packed> {
    let watch = sink.watch().clone();
    let mut tour =
        Tour { packer: Packer::new(format, sink), watch, counts: Counts::default(), name: Vec::new() };
    let alone = places.len() == 1;
    // What lies in another place that was named comes with that one.
    let all: BTreeSet<_> = places.iter().map(|place| place.path.clone()).collect();
    let within_another = |place: &Place| place.path.ancestors().skip(1).any(|above| all.contains(above));
    let mut seen = BTreeSet::new();
    for place in places.iter().filter(|place| !within_another(place)) {
        if seen.insert(place.path.clone()) {
            tour.name = top_name(root, place, alone);
            tour.pack(place)?;
        }
    }
    let Tour { packer, counts, .. } = tour;
    let entries = packer.entries();
    Ok(Packed { filled: packer.finish()?, entries, counts })
}

/// How a place is called in the archive: by its last name, or by its path from the work directory on where there are
/// several.
fn top_name(root: &Root, place: &Place, alone: bool) -> Vec<u8> {
    let last = || place.path.file_name().unwrap_or_default().as_bytes().to_vec();
    if alone {
        return last();
    }
    let path = root.name_of(&place.path);
    let path = path.strip_prefix(root.path()).unwrap_or(&path);
    if path.as_os_str().is_empty() { last() } else { path.as_os_str().as_bytes().to_vec() }
}

struct Tour {
    packer: Packer,
    watch: Watch,
    counts: Counts,
    /// Of the present entry, in the archive.
    name: Vec<u8>,
}

/// A directory on the way.
struct Frame {
    directory: OwnedFd,
    names: Dir,
    /// Length of its own name in the archive.
    prefix: usize,
}

impl Tour {
    fn pack(&mut self, place: &Place) -> Result<()> {
        let failed = |action: &str, error| place.error(action, error);
        match &place.target {
            Target::Missing { .. } => Err(place.problem(crate::error::PathProblem::NotFound)),
            Target::Directory(directory) => {
                let meta = Meta::of(directory).map_err(|e| failed("look at", e))?;
                let top = self.enter(directory.as_fd(), OsStr::new(".")).map_err(|e| failed("open", e))?;
                self.packer.directory(&self.name, &meta)?;
                self.walk(top)
            }
            Target::Entry { parent, name, meta } => {
                // What is named must be there; what is met on the way may be left out.
                if meta.kind != Kind::File {
                    return Err(place.problem(crate::error::PathProblem::NotARegularFile));
                }
                let file = open_beneath(parent, &**name, OFlags::RDONLY | FILE_FLAGS, Mode::empty());
                let file = file.map_err(|e| failed("open", e))?;
                let meta = Meta::of(&file).map_err(|e| failed("look at", e))?;
                if meta.kind != Kind::File {
                    return Err(place.problem(crate::error::PathProblem::NotARegularFile));
                }
                self.file(File::from(file), &meta)
            }
        }
    }

    fn enter(&self, within: impl AsFd, name: &OsStr) -> io::Result<Frame> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let directory = open_beneath(within, name, flags, Mode::empty())?;
        let names = Dir::read_from(&directory)?;
        Ok(Frame { directory, names, prefix: self.name.len() })
    }

    fn walk(&mut self, top: Frame) -> Result<()> {
        let mut frames = vec![top];
        loop {
            let depth = frames.len();
            let Some(frame) = frames.last_mut() else { return Ok(()) };
            self.watch.check(self.packer.written())?;
            let entry = match frame.names.read() {
                Some(Ok(entry)) => entry,
                Some(Err(_)) => {
                    self.counts.unreadable += 1;
                    frames.pop();
                    continue;
                }
                None => {
                    frames.pop();
                    continue;
                }
            };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            self.name.truncate(frame.prefix);
            self.name.push(b'/');
            self.name.extend_from_slice(name.to_bytes());
            let below = self.entry(&frame.directory, name, depth)?;
            frames.extend(below);
        }
    }

    /// Packs one entry; returns a directory that is to be walked.
    fn entry(&mut self, directory: &OwnedFd, name: &CStr, depth: usize) -> Result<Option<Frame>> {
        let found = Meta::at(directory, name);
        let meta = match found {
            Ok(meta) => meta,
            Err(error) => return self.passed_over(error),
        };
        match meta.kind {
            Kind::Directory => {
                self.packer.directory(&self.name, &meta)?;
                if depth >= MAX_DEPTH {
                    self.counts.deep += 1;
                    return Ok(None);
                }
                match self.enter(directory, OsStr::from_bytes(name.to_bytes())) {
                    Ok(frame) => Ok(Some(frame)),
                    Err(error) => self.passed_over(error),
                }
            }
            Kind::Symlink => match readlinkat(directory, name, Vec::new()) {
                Ok(target) => {
                    self.packer.link(&self.name, target.to_bytes(), &meta)?;
                    Ok(None)
                }
                Err(error) => self.passed_over(error),
            },
            Kind::File => {
                let file = open_beneath(directory, name, OFlags::RDONLY | FILE_FLAGS, Mode::empty());
                match file.and_then(|file| Meta::of(&file).map(|meta| (file, meta))) {
                    Ok((file, meta)) if meta.kind == Kind::File => {
                        self.file(File::from(file), &meta)?;
                        Ok(None)
                    }
                    Ok(_) => {
                        self.counts.special += 1;
                        Ok(None)
                    }
                    Err(error) => self.passed_over(error),
                }
            }
            Kind::Other => {
                self.counts.special += 1;
                Ok(None)
            }
        }
    }

    /// An entry that can't be read is left out; one that is gone by now is no matter.
    fn passed_over(&mut self, error: io::Errno) -> Result<Option<Frame>> {
        match error {
            io::Errno::NOENT => {}
            io::Errno::MFILE | io::Errno::NFILE | io::Errno::NOMEM => {
                return Err(Error::internal("reading a tree for an archive", error));
            }
            _ => self.counts.unreadable += 1,
        }
        Ok(None)
    }

    fn file(&mut self, file: File, meta: &Meta) -> Result<()> {
        let whole = self.packer.file(&self.name, &file, meta)?;
        let unchanged =
            Meta::of(&file).is_ok_and(|now| (now.size, now.modified) == (meta.size, meta.modified));
        if !(whole && unchanged) {
            self.counts.changed += 1;
        }
        Ok(())
    }
}
