//! Process 1 of a sandbox: a spawner like that of the machine.

use rustix::process::DumpableBehavior;

use super::socket;
use crate::error::{Error, Result};
use crate::process::identity::Identity;
use crate::process::spawner;

/// Serves the executor behind standard input until it closes that, then ends everything.
pub fn serve() -> Result<()> {
    // What runs inside is root too, and could look into this process otherwise.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|error| Error::internal("serving a sandbox", error))?;
    let root = Identity { uid: 0, gid: 0, groups: Vec::new(), name: "root".to_owned(), switch: false };
    let failed = |error| Error::internal("serving a sandbox", error);
    spawner::serve_inside(socket().map_err(failed)?, root).map_err(failed)
}
