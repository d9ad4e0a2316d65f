//! Archives as they are packed from a tree.

use std::fs;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::archive::Format;
use super::sink::{Budget, Sink, Watch};
use super::snapshot::{Snapshot, Wanted, make};
use crate::error::{Error, Result};
use crate::file::Root;
use crate::id::WorkspaceId;

struct Fixture {
    directory: tempfile::TempDir,
    budget: Arc<Budget>,
    closing: CancellationToken,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("ws/work")).unwrap();
        Self { directory, budget: Budget::new(64 << 20), closing: CancellationToken::new() }
    }

    fn snapshot(&self, path: &str, format: Option<Format>) -> Result<Snapshot> {
        let root = Root::open(&self.directory.path().join("ws")).unwrap();
        let watch = Watch {
            deadline: None,
            workspace_id: WorkspaceId::generate().unwrap(),
            closing: self.closing.clone(),
            stopping: CancellationToken::new(),
            reserve_bytes: 0,
        };
        let sink = Sink::new(tempfile::tempfile().unwrap(), self.budget.hold(0), watch);
        let wanted = Wanted { paths: vec![path.into()], format, name: "n".to_owned() };
        make(&root, &wanted, sink)
    }
}

#[test]
fn every_form_is_made_of_a_tree_with_all_kinds_of_entries() {
    let fixture = Fixture::new();
    let work = fixture.directory.path().join("ws/work");
    fs::create_dir_all(work.join("t/empty")).unwrap();
    fs::write(work.join("t/file"), "x".repeat(100_000)).unwrap();
    fs::write(work.join("t/none"), "").unwrap();
    std::os::unix::fs::symlink("file", work.join("t/link")).unwrap();
    for format in [Format::TarGz, Format::Zip] {
        let made = fixture.snapshot("t", Some(format)).unwrap();
        assert_eq!((made.entries, made.notes.len()), (5, 0), "{format:?}");
        assert_eq!(made.name, format!("t.{}", format.ending()));
        assert!(made.filled.size_bytes < 10_000, "{format:?}: {}", made.filled.size_bytes);
    }
}

#[test]
fn deletion_of_the_workspace_ends_it() {
    let fixture = Fixture::new();
    fixture.closing.cancel();
    for format in [None, Some(Format::TarGz), Some(Format::Zip)] {
        let error = fixture.snapshot(".", format).unwrap_err();
        assert!(matches!(error, Error::WorkspaceNotFound { .. }), "{error:?}");
    }
}
