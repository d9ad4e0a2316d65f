//! Replacing exact texts in a file: all edits or none, and nothing outside of them changes.

use std::path::PathBuf;

use super::{
    Limits,
    condition::{IfMatch, changed, sha256_hex},
    diff::unified_diff,
    hint::nearest_lines,
    matching::{Outcome, replace as replace_text},
    path::{ATTEMPTS, Place, Root, open_file},
    read::read_whole,
    replace::{New, replace},
};
use crate::error::{Error, Result};

/// One replacement. A LF in the texts also stands for the CR LF of a file that uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// Bytes to find: exactly, and once unless `replace_all`.
    pub old_text: Vec<u8>,
    /// Bytes to put there.
    pub new_text: Vec<u8>,
    /// Replace every occurrence, from left to right.
    pub replace_all: bool,
}

/// A file as edited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditedFile {
    /// Absolute path, links resolved.
    pub path: PathBuf,
    /// Lower-case hex SHA-256 of the content.
    pub sha256: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Number of replacements.
    pub replacements: u64,
    /// Unified diff with three lines of context.
    pub diff: String,
    /// Whether the diff was cut at its limit.
    pub diff_truncated: bool,
}

/// Does `edits` one after the other on the file at `path`. Fails with [`Error::EditNotFound`],
/// [`Error::EditNotUnique`] or [`Error::EditWithoutEffect`], and then the file was not touched.
pub(super) fn edit(
    root: &Root,
    path: &[u8],
    edits: &[Edit],
    if_match: &IfMatch,
    limits: &Limits,
) -> Result<EditedFile> {
    check(edits)?;
    for _ in 0..ATTEMPTS {
        let (place, file, meta) = open_file(root, path)?;
        if meta.size > limits.max_bytes {
            return Err(too_large(&place, meta.size, limits));
        }
        let before = read_whole(&place, &file, meta.size)?;
        if *if_match != IfMatch::Any {
            if_match.check(&place, &sha256_hex(&before))?;
        }
        let (after, replacements) = apply(&place, &before, edits, limits)?;
        if replace(&place, Some(&meta), &New::of(&after), limits)? {
            let (diff, diff_truncated) = unified_diff(&root.name_of(&place.path), &before, &after);
            let size_bytes = u64::try_from(after.len()).unwrap_or(u64::MAX);
            let sha256 = sha256_hex(&after);
            return Ok(EditedFile {
                path: place.path,
                sha256,
                size_bytes,
                replacements,
                diff,
                diff_truncated,
            });
        }
    }
    Err(changed(&root.resolve(path)?, "changing all the time"))
}

fn check(edits: &[Edit]) -> Result<()> {
    if edits.is_empty() {
        return Err(Error::invalid("edits", "is empty; expected at least one edit"));
    }
    match edits.iter().position(|edit| edit.old_text.is_empty()) {
        Some(at) => Err(Error::invalid(
            "old_text",
            format!("is empty in edit {}; expected the text to replace", at + 1),
        )),
        None => Ok(()),
    }
}

/// The content after `edits`, and the number of replacements.
fn apply(place: &Place, before: &[u8], edits: &[Edit], limits: &Limits) -> Result<(Vec<u8>, u64)> {
    let path = &place.shown;
    let limit = usize::try_from(limits.max_bytes).unwrap_or(usize::MAX);
    let (mut content, mut replacements) = (before.to_vec(), 0);
    for (at, edit) in edits.iter().enumerate() {
        let Edit { old_text, new_text, replace_all } = edit;
        match replace_text(&content, old_text, new_text, *replace_all, limit) {
            Outcome::Replaced(after, count) => {
                content = after;
                replacements += count;
            }
            Outcome::NotFound => {
                let hint = nearest_lines(&content, old_text);
                return Err(Error::EditNotFound { path: path.clone(), edit: at + 1, hint });
            }
            Outcome::NotUnique(matches, lines) => {
                let more = if matches > lines.len() { ", …" } else { "" };
                let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
                let lines = lines.join(", ") + more;
                return Err(Error::EditNotUnique { path: path.clone(), edit: at + 1, matches, lines });
            }
            Outcome::TooLarge => return Err(too_large(place, limits.max_bytes.saturating_add(1), limits)),
        }
    }
    if content == before {
        return Err(Error::EditWithoutEffect { path: path.clone() });
    }
    Ok((content, replacements))
}

fn too_large(place: &Place, bytes: u64, limits: &Limits) -> Error {
    Error::FileTooLarge { path: place.shown.clone(), bytes, limit: limits.max_bytes }
}
