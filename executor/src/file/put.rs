//! Putting a file that was gathered elsewhere into a workspace. How the bytes get to the disk is decided in `replace`.

use std::{fs::File, io::Seek as _, path::PathBuf};

use rustix::{
    fs::{copy_file_range, ftruncate, ioctl_ficlone},
    io::{self, Errno},
};

use super::{
    Limits,
    path::{ATTEMPTS, Place, Root, Target},
    replace::{Content, New, errno, replace},
    write::{WrittenFile, present},
};
use crate::error::{Error, PathProblem, Result};

/// Most bytes copied by one call.
const PIECE_BYTES: u64 = 64 << 20;

/// A whole file, open for reading.
#[derive(Debug)]
pub struct Gathered {
    /// The file.
    pub file: File,
    /// Its size.
    pub size_bytes: u64,
    /// Lower-case hex SHA-256 of its content.
    pub sha256: String,
}

impl Content for Gathered {
    fn size(&self) -> u64 {
        self.size_bytes
    }

    fn write_to(&self, mut file: &File) -> io::Result<()> {
        if ioctl_ficlone(file, &self.file).is_ok() {
            return Ok(());
        }
        let (mut from, mut to) = (0, 0);
        while from < self.size_bytes {
            let piece = usize::try_from((self.size_bytes - from).min(PIECE_BYTES)).unwrap_or(usize::MAX);
            match copy_file_range(&self.file, Some(&mut from), file, Some(&mut to), piece) {
                // Shorter than it was: somebody else has written to a file of the executor's own.
                Ok(0) => return Err(Errno::IO),
                Ok(_) => {}
                Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) if to == 0 => {
                    let mut source = &self.file;
                    source.rewind().map_err(errno)?;
                    file.rewind().map_err(errno)?;
                    std::io::copy(&mut source, &mut file).map_err(errno)?;
                    break;
                }
                Err(e) => return Err(e),
            }
        }
        ftruncate(file, self.size_bytes)
    }
}

/// Where a file can be put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spot {
    /// Absolute path, links resolved.
    pub path: PathBuf,
    /// Size of the file that is there.
    pub taken_bytes: Option<u64>,
}

/// Looks whether a file can be put at `path`.
pub(super) fn look(root: &Root, path: &[u8]) -> Result<Spot> {
    let place = root.resolve(path)?;
    let old = present(&place)?;
    if let Target::Missing { parent, .. } = &place.target {
        let rights = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
        let may = rustix::fs::accessat(parent, ".", rights, rustix::fs::AtFlags::EACCESS);
        may.map_err(|e| place.error("write to", e))?;
    }
    Ok(Spot { path: place.path, taken_bytes: old.map(|old| old.size) })
}

/// Puts `new` at `path`, creating its directories where they don't exist. A file that is there is replaced if `replaces`.
pub(super) fn put(
    root: &Root,
    path: &[u8],
    new: &Gathered,
    replaces: bool,
    limits: &Limits,
) -> Result<WrittenFile> {
    for _ in 0..ATTEMPTS {
        let place = root.resolve(path)?;
        let old = present(&place)?;
        if old.is_some() && !replaces {
            return Err(place.problem(PathProblem::Exists));
        }
        let content = New { unchanged: false, ..New::of(new) };
        if replace(&place, old.as_ref(), &content, limits)? {
            return Ok(written(place, new, old.is_none()));
        }
    }
    Err(Error::internal("put a file: its place keeps changing", Errno::AGAIN))
}

fn written(place: Place, new: &Gathered, created: bool) -> WrittenFile {
    let Gathered { file: _, size_bytes, sha256 } = new;
    WrittenFile { path: place.path, sha256: sha256.clone(), size_bytes: *size_bytes, created }
}
