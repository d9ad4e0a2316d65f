//! SHA-256 of contents, and the condition that a change may set on the file as it is.

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use super::path::Place;
use crate::error::{Error, Result};

/// What a file must be for a change to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IfMatch {
    /// Anything, or nothing.
    Any,
    /// Nothing.
    Absent,
    /// A file whose content has this lower-case hex SHA-256.
    Sha256(String),
}

impl IfMatch {
    /// The condition as callers write it: 64 hex digits, `absent`, or nothing for [`IfMatch::Any`].
    pub fn parse(text: &str) -> Result<Self> {
        match text {
            "" => Ok(Self::Any),
            "absent" => Ok(Self::Absent),
            _ if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                Ok(Self::Sha256(text.to_ascii_lowercase()))
            }
            _ => Err(Error::invalid("if_match", "expected a SHA-256 as 64 hex digits, or 'absent'")),
        }
    }

    /// Fails with [`Error::FileChanged`] unless the file at `place` may have the SHA-256 `found`, or be "absent".
    pub(super) fn check(&self, place: &Place, found: &str) -> Result<()> {
        let holds = match self {
            Self::Any => true,
            Self::Absent => found == ABSENT,
            Self::Sha256(wanted) => wanted == found,
        };
        if holds { Ok(()) } else { Err(changed(place, found)) }
    }
}

/// Stands for the SHA-256 of a file that isn't there.
pub(super) const ABSENT: &str = "absent";

/// The error that the file at `place` is not what was expected, but has the SHA-256 `found`.
pub(super) fn changed(place: &Place, found: &str) -> Error {
    Error::FileChanged { path: place.shown.clone(), sha256: found.to_owned() }
}

/// Lower-case hex SHA-256 of `content`.
pub(super) fn sha256_hex(content: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(content))
}
