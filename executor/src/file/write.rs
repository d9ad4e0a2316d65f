//! Writing a whole file. How the bytes get to the disk is decided in `replace`.

use std::path::PathBuf;

use super::{
    Limits,
    condition::{ABSENT, IfMatch, changed, sha256_hex},
    meta::{Kind, Meta},
    path::{ATTEMPTS, Place, Root, Target},
    read::read_whole,
    replace::{New, replace},
};
use crate::error::{Error, PathProblem, Result};

/// What to heed on writing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteOptions {
    /// What the file must be.
    pub if_match: IfMatch,
    /// `Some(true)` lets everybody execute the file who may read it, `Some(false)` nobody; `None` leaves that as it is.
    pub executable: Option<bool>,
}

/// A file as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenFile {
    /// Absolute path, links resolved.
    pub path: PathBuf,
    /// Lower-case hex SHA-256 of the content.
    pub sha256: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Whether the file is new.
    pub created: bool,
}

/// Makes `content` the content of the file at `path`, creating it and its directories where they don't exist. After a
/// link the file it leads to is written. The file is written whole or not at all.
pub(super) fn write(
    root: &Root,
    path: &[u8],
    content: &[u8],
    options: &WriteOptions,
    limits: &Limits,
) -> Result<WrittenFile> {
    let size_bytes = u64::try_from(content.len()).unwrap_or(u64::MAX);
    if size_bytes > limits.max_bytes {
        let path = super::show::show(path);
        return Err(Error::FileTooLarge { path, bytes: size_bytes, limit: limits.max_bytes });
    }
    // Without a condition only the file's identity counts, so that a file that never rests can be written all the same.
    let unchanged = options.if_match != IfMatch::Any;
    for _ in 0..ATTEMPTS {
        let place = root.resolve(path)?;
        let old = present(&place)?;
        let Some(found) = hash_if_needed(&place, old.as_ref(), &options.if_match, limits)? else {
            continue;
        };
        options.if_match.check(&place, &found)?;
        let new = New { executable: options.executable, unchanged, ..New::of(content) };
        if replace(&place, old.as_ref(), &new, limits)? {
            let sha256 = sha256_hex(content);
            return Ok(WrittenFile { path: place.path, sha256, size_bytes, created: old.is_none() });
        }
    }
    Err(changed(&root.resolve(path)?, "changing all the time"))
}

/// Facts of the regular file at `place`, or nothing where it can be created.
pub(super) fn present(place: &Place) -> Result<Option<Meta>> {
    match &place.target {
        Target::Directory(_) | Target::Missing { as_directory: true, .. } => {
            Err(place.problem(PathProblem::IsADirectory))
        }
        Target::Missing { .. } => Ok(None),
        Target::Entry { meta, .. } if meta.kind == Kind::File => Ok(Some(meta.clone())),
        Target::Entry { .. } => Err(place.problem(PathProblem::NotARegularFile)),
    }
}

/// SHA-256 of the file at `place` where the condition asks for it. `None` when the file was swapped meanwhile.
fn hash_if_needed(
    place: &Place,
    old: Option<&Meta>,
    if_match: &IfMatch,
    limits: &Limits,
) -> Result<Option<String>> {
    let Some(old) = old else {
        return Ok(Some(ABSENT.to_owned()));
    };
    if *if_match == IfMatch::Any {
        return Ok(Some(String::new()));
    }
    if old.size > limits.max_bytes {
        return Ok(Some(format!("unknown, for the file has more than {} bytes", limits.max_bytes)));
    }
    let Some((file, meta)) = place.open()? else {
        return Ok(None);
    };
    if meta != *old {
        return Ok(None);
    }
    Ok(Some(sha256_hex(&read_whole(place, &file, meta.size)?)))
}
