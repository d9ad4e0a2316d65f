//! Removing directory trees, whatever modes the files in them have, and counting their bytes. A tree first moves to the
//! trash, so that a crash never leaves half of it in its place.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::data_root::DataRoot;
use crate::error::{Error, Result};
use crate::id::WorkspaceId;

/// How long counting bytes may take.
const COUNT_LIMIT: Duration = Duration::from_secs(1);

/// Removes a tree and returns the bytes it had; a tree that does not exist has none.
pub(crate) async fn remove(trash: &Path, tree: &Path) -> Result<u64> {
    let (trash, tree) = (trash.to_owned(), tree.to_owned());
    blocking(move || {
        let name = tree.file_name().ok_or_else(|| io::Error::other("the path has no name"))?;
        let condemned = trash.join(name);
        match fs::rename(&tree, &condemned) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(error),
        }
        let (bytes, _partial) = count(&condemned, COUNT_LIMIT);
        remove_tree(&condemned)?;
        Ok(bytes)
    })
    .await
}

/// Empties the trash, and removes directories of workspaces that are not on record.
pub(super) async fn clear(root: &DataRoot, known: &[WorkspaceId]) -> Result<()> {
    let mut strays = Vec::new();
    let of_workspaces = list(&root.workspaces)?;
    let of_sandboxes = list(&root.sandboxes)?;
    // Beside the workspaces is the template of Python environments.
    strays.extend(of_sandboxes.iter().filter(|entry| id_of(entry).is_none()).cloned());
    for entry in of_workspaces.into_iter().chain(of_sandboxes) {
        if id_of(&entry).is_some_and(|id| !known.contains(&id)) {
            strays.push(entry);
        }
    }
    strays.extend(list(&root.trash)?);
    blocking(move || strays.iter().try_for_each(|tree| remove_tree(tree))).await
}

fn id_of(entry: &Path) -> Option<WorkspaceId> {
    entry.file_name().and_then(|name| name.to_str()).and_then(WorkspaceId::parse)
}

/// Bytes of a tree on disk, and whether counting stopped at its limit of time.
pub(super) async fn disk_bytes(tree: PathBuf) -> Result<(u64, bool)> {
    blocking(move || Ok(count(&tree, COUNT_LIMIT))).await
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Error::internal("removing files", error))?
        .map_err(|error| Error::internal("removing files", error))
}

fn list(directory: &Path) -> Result<Vec<PathBuf>> {
    fs::read_dir(directory)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
        .map_err(|error| Error::internal(format!("listing {}", directory.display()), error))
}

/// Removes a tree. The standard library never follows a link while it does; where a directory's own mode is in the
/// way, such as those of Go's module cache, the modes are opened first.
fn remove_tree(tree: &Path) -> io::Result<()> {
    match fs::remove_dir_all(tree) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_modes(tree)?;
            fs::remove_dir_all(tree)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => fs::remove_file(tree),
        other => other,
    }
}

fn open_modes(directory: &Path) -> io::Result<()> {
    fs::set_permissions(directory, Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_modes(&entry.path())?;
        }
    }
    Ok(())
}

fn count(tree: &Path, limit: Duration) -> (u64, bool) {
    let until = Instant::now() + limit;
    let mut pending = vec![tree.to_owned()];
    let mut bytes = 0;
    while let Some(directory) = pending.pop() {
        if Instant::now() > until {
            return (bytes, true);
        }
        let Ok(entries) = fs::read_dir(directory) else { continue };
        for entry in entries.flatten() {
            let Ok(data) = entry.metadata() else { continue };
            bytes += data.blocks() * 512;
            if data.is_dir() {
                pending.push(entry.path());
            }
        }
    }
    (bytes, false)
}
