//! What a download is of: the file as it was when the link was made, or an archive of files. It is read with the jobs'
//! rights, and lies where only the executor may go.

use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::ioctl_ficlone;

use super::archive::{Format, archive};
use super::sink::{Filled, Sink};
use crate::error::{Error, Result};
use crate::file::{Meta, Place, Root, Target, open_file, show};

/// Bytes read at once.
const PIECE_BYTES: usize = 256 << 10;

/// How often a file that was changed while it was copied is copied again, as long as it is not larger than this.
const ATTEMPTS: usize = 4;
const AGAIN_BYTES: u64 = 64 << 20;

/// What to make a snapshot of.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) paths: Vec<Vec<u8>>,
    pub(super) format: Option<Format>,
    /// Name of an archive of several paths, without its ending.
    pub(super) name: String,
}

/// A snapshot.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) filled: Filled,
    /// Absolute path of the first file, links resolved.
    pub(super) path: Vec<u8>,
    /// Name for whoever fetches it.
    pub(super) name: String,
    /// Entries of an archive.
    pub(super) entries: u64,
    pub(super) notes: Vec<String>,
}

/// Makes the snapshot in `sink`.
pub(super) fn make(root: &Root, wanted: &Wanted, sink: Sink) -> Result<Snapshot> {
    let places = wanted.paths.iter().map(|path| existing(root, path)).collect::<Result<Vec<_>>>()?;
    let first = places.first().ok_or_else(|| Error::invalid("path", "expected one path at least"))?;
    let path = first.path.as_os_str().as_bytes().to_vec();
    let single = places.len() == 1;
    if single && wanted.format.is_none() && !matches!(first.target, Target::Directory(_)) {
        let name = last_name(&first.path);
        let (filled, changed) = copy(root, &wanted.paths[0], sink)?;
        let note = "the file was written to while it was copied; this is what was there";
        let notes = changed.then(|| note.to_owned()).into_iter().collect();
        return Ok(Snapshot { filled, path, name, entries: 0, notes });
    }
    let format = wanted.format.unwrap_or(Format::TarGz);
    let stem = if single { last_name(&first.path) } else { wanted.name.clone() };
    let name = format!("{stem}.{}", format.ending());
    let packed = archive(root, places, format, sink)?;
    let notes = packed.notes();
    Ok(Snapshot { filled: packed.filled, path, name, entries: packed.entries, notes })
}

fn existing(root: &Root, path: &[u8]) -> Result<Place> {
    let place = root.resolve(path)?;
    match &place.target {
        Target::Missing { .. } => Err(place.problem(crate::error::PathProblem::NotFound)),
        _ => Ok(place),
    }
}

fn last_name(path: &Path) -> String {
    show(path.file_name().unwrap_or(path.as_os_str()).as_bytes())
}

/// Copies the file at `path`. Says whether it was changed meanwhile, so that the copy may be a mixture.
fn copy(root: &Root, path: &[u8], mut sink: Sink) -> Result<(Filled, bool)> {
    let mut attempt = 1;
    loop {
        let (place, file, before) = open_file(root, path)?;
        let failed = |error: std::io::Error| {
            place.error("read", rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO))
        };
        let cloned = ioctl_ficlone(sink.file(), &file).is_ok();
        if cloned {
            let copy = sink.file().try_clone().map_err(failed)?;
            pass(&copy, u64::MAX, |piece| sink.note(piece))?.map_err(failed)?;
            return Ok((sink.finish()?, false));
        }
        pass(&file, before.size, |piece| sink.push(piece))?.map_err(failed)?;
        let after = Meta::of(&file).map_err(|e| place.error("look at", e))?;
        let changed = after.size != before.size || after.modified != before.modified;
        if !changed || attempt == ATTEMPTS || sink.written() > AGAIN_BYTES {
            return Ok((sink.finish()?, changed));
        }
        sink = sink.restart()?;
        attempt += 1;
    }
}

/// Hands the first `most` bytes of a file to `take`, piece by piece.
fn pass(
    mut file: &File,
    most: u64,
    mut take: impl FnMut(&[u8]) -> Result<()>,
) -> Result<std::io::Result<()>> {
    let mut buffer = vec![0; PIECE_BYTES];
    let mut left = most;
    while left > 0 {
        let room = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES);
        match file.read(&mut buffer[..room]) {
            Ok(0) => break,
            Ok(read) => {
                take(&buffer[..read])?;
                left -= u64::try_from(read).unwrap_or(0);
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Ok(Err(error)),
        }
    }
    Ok(Ok(()))
}
