//! What is at a path, in a form that differs when it changes.

use super::{
    meta::Meta,
    path::{Root, Target},
};
use crate::error::{Error, PathProblem, Result};

/// What is at a path. Equal facts mean: the same thing, unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts(Meta);

impl Facts {
    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.0.size
    }
}

/// What is at `path`, links followed; `None` where there is nothing.
pub(super) fn facts(root: &Root, path: &[u8]) -> Result<Option<Facts>> {
    let place = match root.resolve(path) {
        Err(Error::Path { problem: PathProblem::NotADirectory, .. }) => return Ok(None),
        place => place?,
    };
    Ok(match place.target {
        Target::Missing { .. } => None,
        Target::Entry { meta, .. } => Some(Facts(meta)),
        Target::Directory(ref directory) => {
            Some(Facts(Meta::of(directory).map_err(|errno| place.error("look at", errno))?))
        }
    })
}
