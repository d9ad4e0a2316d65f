//! What lists have in common: the pattern that paths must match, and the token that tells where a page ended.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _, path::Path};

use data_encoding::BASE64URL_NOPAD;
use globset::{GlobBuilder, GlobMatcher};

use crate::error::{Error, Result};

/// A pattern for paths; without one all match.
#[derive(Debug)]
pub(super) struct Filter {
    glob: Option<GlobMatcher>,
}

impl Filter {
    /// `glob`, where not empty. Without a slash it stands for the last part of a path, at any depth.
    pub(super) fn new(glob: &str) -> Result<Self> {
        if glob.is_empty() {
            return Ok(Self { glob: None });
        }
        let pattern = match glob.strip_prefix("./").or_else(|| glob.strip_prefix('/')) {
            Some(rest) => rest.to_owned(),
            None if glob.contains('/') => glob.to_owned(),
            None => format!("**/{glob}"),
        };
        let built = GlobBuilder::new(&pattern).literal_separator(true).build();
        let matcher =
            built.map_err(|e| Error::invalid("glob", format!("'{glob}' is no pattern: {}", e.kind())))?;
        Ok(Self { glob: Some(matcher.compile_matcher()) })
    }

    /// Whether `path`, which starts where the list starts, matches.
    pub(super) fn matches(&self, path: &[u8]) -> bool {
        self.glob.as_ref().is_none_or(|glob| glob.is_match(Path::new(OsStr::from_bytes(path))))
    }
}

/// The place in a list where a page ended: a path, and a line where the list is one of lines.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    /// The path.
    pub(super) path: Vec<u8>,
    /// The line.
    pub(super) line: u64,
}

impl Position {
    /// The token of this position.
    pub(super) fn token(&self) -> String {
        BASE64URL_NOPAD.encode(&[&self.line.to_be_bytes()[..], &self.path].concat())
    }

    /// The position of a token; nothing for the empty one.
    pub(super) fn parse(token: &str) -> Result<Option<Self>> {
        if token.is_empty() {
            return Ok(None);
        }
        let bytes = BASE64URL_NOPAD.decode(token.as_bytes()).unwrap_or_default();
        match bytes.split_first_chunk() {
            Some((line, path)) => Ok(Some(Self { path: path.to_vec(), line: u64::from_be_bytes(*line) })),
            None => Err(Error::invalid("page_token", "is none that a page ended with")),
        }
    }
}

/// Checks that `value` is between 1 and `most`.
pub(super) fn check_page_size(value: usize, most: usize) -> Result<()> {
    if (1..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::invalid("page_size", format!("is {value}; expected 1 to {most}")))
}
