//! Removing what a crash has left: files that were about to be put in place have a hidden name for a moment, and keep it
//! when the executor is killed in that moment.

use std::{ffi::OsStr, ops::ControlFlow, time::Instant};

use rustix::fs::{AtFlags, unlinkat};

use super::{
    meta::{Kind, Meta, Stamp},
    path::Root,
    temp::is_hidden_name,
    walk::Walk,
};

/// Directories of a workspace in which file tools write.
const SWEPT: [&str; 3] = ["work", "home", "tmp"];

/// Levels gone down, and names looked at in each of them.
const DEPTH: usize = 64;
const MOST_NAMES: usize = 200_000;

/// Removes files with a hidden name that were last changed before `started`; returns how many.
pub(super) fn sweep(root: &Root, started: Stamp, deadline: Instant) -> usize {
    let mut removed = 0;
    for part in SWEPT {
        let Ok(directory) = root.directory(std::iter::once(OsStr::new(part))) else { continue };
        let walk = Walk {
            depth: DEPTH,
            include_ignored: true,
            enter_git: true,
            from: Vec::new(),
            max_names: MOST_NAMES,
            deadline,
        };
        // What can't be looked at is left as it is.
        let _end = walk.run(root, &directory, &[], &mut |item| {
            let left = item.kind == Kind::File
                && is_hidden_name(item.name)
                && Meta::at(item.directory, item.name).is_ok_and(|meta| meta.changed < started);
            if left && unlinkat(item.directory, item.name, AtFlags::empty()).is_ok() {
                removed += 1;
            }
            ControlFlow::Continue(())
        });
    }
    removed
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use super::*;

    #[test]
    fn only_hidden_files_from_before_the_start_go() {
        let directory = tempfile::tempdir().unwrap();
        let work = directory.path().join("work/below");
        fs::create_dir_all(&work).unwrap();
        let left = work.join(".runlet-abcdefghijklmnop.tmp");
        let other = work.join(".runlet-notes.tmp");
        for file in [&left, &other] {
            fs::write(file, "x").unwrap();
        }
        let root = Root::open(directory.path()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        assert_eq!(sweep(&root, (0, 0), deadline), 0);
        assert!(left.exists());
        assert_eq!(sweep(&root, (i64::MAX, 0), deadline), 1);
        assert!(!left.exists() && other.exists());
    }
}
