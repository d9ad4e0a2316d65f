//! Reading a whole file for what is made of it here, such as a preview.

use std::path::PathBuf;

use super::{
    condition::sha256_hex,
    path::{Root, open_file},
    read::read_whole,
};
use crate::error::{Error, Result};

/// A whole file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedFile {
    /// The path as given, in a form that can be shown.
    pub shown: String,
    /// Absolute path, links resolved.
    pub path: PathBuf,
    /// Lower-case hex SHA-256.
    pub sha256: String,
    /// All its bytes.
    pub content: Vec<u8>,
}

/// Reads all of the file at `path`, unless it has more than `limit` bytes.
pub(super) fn load(root: &Root, path: &[u8], limit: u64) -> Result<LoadedFile> {
    let (place, file, meta) = open_file(root, path)?;
    if meta.size > limit {
        return Err(Error::FileTooLarge { path: place.shown, bytes: meta.size, limit });
    }
    let content = read_whole(&place, &file, meta.size)?;
    Ok(LoadedFile { shown: place.shown, path: place.path, sha256: sha256_hex(&content), content })
}
