//! Unified diffs of several files, applied all or none. First everything is worked out in memory, then every new
//! content is written beside its place and synced, and only then are the files changed, one after the other. Where that
//! fails, those that were changed are put back.
//!
//! A crash can only fall between two files: then some are new and others old, each whole. Only a file with several
//! names is written in place, as by `replace`. New contents have no name until they are in place, so that nothing is
//! left behind, but for the file systems and the moment named in `temp`.

mod apply;
mod commit;
mod hunk;
mod names;
mod parse;
mod reader;
mod stage;
mod text;

#[cfg(test)]
mod apply_tests;
#[cfg(test)]
mod parse_tests;
#[cfg(test)]
mod patch_tests;
#[cfg(test)]
mod whole_tests;

use std::{borrow::Cow, path::PathBuf};

pub use self::apply::Moved;
use self::stage::Stage;
use super::{Limits, condition::changed, path::ATTEMPTS, path::Root, show::show};
use crate::error::{Error, Result};

/// What is wrong with a line or a hunk, and what was expected.
type Problem = Cow<'static, str>;

/// Most bytes of a patch.
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// A file as patched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchedFile {
    /// Absolute path, links resolved.
    pub path: PathBuf,
    /// What became of it.
    pub change: Change,
    /// Absolute path of the file it was renamed or copied from.
    pub from: Option<PathBuf>,
    /// Lines added.
    pub added: u64,
    /// Lines removed.
    pub removed: u64,
    /// Lower-case hex SHA-256 of the content; nothing for a deleted file.
    pub sha256: Option<String>,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Whether the execute bits were set or cleared.
    pub executable: Option<bool>,
    /// Hunks that were found elsewhere than they said.
    pub moved: Vec<Moved>,
}

/// What becomes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It is new.
    Created,
    /// Its content or mode is another.
    Modified,
    /// It is gone.
    Deleted,
    /// It has another path, and perhaps another content.
    Renamed,
    /// It is new, and made from another file.
    Copied,
}

/// The paths of all files in `patch`.
pub(super) fn names(patch: &[u8]) -> Result<Vec<Vec<u8>>> {
    if patch.len() > MAX_BYTES {
        let problem = format!("has {} bytes, more than the {MAX_BYTES} that are taken at once", patch.len());
        return Err(Error::invalid("patch", problem));
    }
    let sections = parse::parse(patch)?;
    Ok(sections.iter().flat_map(|section| section.action.names()).map(<[u8]>::to_vec).collect())
}

/// Applies `patch`: see [`super::Files::patch`].
pub(super) fn patch(root: &Root, patch: &[u8], limits: &Limits) -> Result<Vec<PatchedFile>> {
    let sections = parse::parse(patch)?;
    for _ in 0..ATTEMPTS {
        let mut stage = Stage::new(root, limits);
        for section in &sections {
            stage.run(section)?;
        }
        let files = stage.files();
        if files.is_empty() {
            let line = sections.first().map_or(1, |section| section.line);
            let problem =
                "the patch changes nothing; expected removed and added lines that differ".to_owned();
            return Err(Error::PatchInvalid { line, problem });
        }
        if commit::commit(stage.slots(), limits)? {
            return Ok(files);
        }
    }
    let path = sections.first().and_then(|section| section.action.names().first().map(|name| name.to_vec()));
    Err(changed(&root.resolve(&path.unwrap_or_default())?, "changing all the time"))
}
