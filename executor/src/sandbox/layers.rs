//! What sandboxes left for others to begin with: directories that never change. One goes when no snapshot, blueprint or
//! living sandbox is made of it any more, so that deleting one of those harms no other.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::data_root::DataRoot;
use crate::error::{Error, Result};
use crate::workspace::removal;

/// All layers of a data root.
#[derive(Debug)]
pub(super) struct Layers {
    root: Arc<DataRoot>,
    held: Mutex<HashMap<String, usize>>,
}

/// Layers that stay as long as this lives.
#[derive(Debug)]
pub struct Held {
    ids: Vec<String>,
    layers: Arc<Layers>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = self.layers.lock();
        for id in &self.ids {
            if let Some(count) = held.get_mut(id) {
                *count -= 1;
                if *count == 0 {
                    held.remove(id);
                }
            }
        }
    }
}

impl Layers {
    pub(super) fn new(root: Arc<DataRoot>) -> Self {
        Self { root, held: Mutex::default() }
    }

    /// Where a layer is, or is to be made.
    pub(super) fn path(&self, id: &str) -> PathBuf {
        self.root.snapshots.join(id)
    }

    pub(super) fn hold(self: &Arc<Self>, ids: &[String]) -> Held {
        let mut held = self.lock();
        for id in ids {
            *held.entry(id.clone()).or_default() += 1;
        }
        drop(held);
        Held { ids: ids.to_vec(), layers: Arc::clone(self) }
    }

    /// Removes layers that are neither held nor on record.
    pub(super) async fn sweep(&self, recorded: &HashSet<String>) -> Result<()> {
        let entries = std::fs::read_dir(&self.root.snapshots);
        for entry in entries.map_err(|error| Error::internal("listing snapshots", error))?.flatten() {
            let id = entry.file_name().to_string_lossy().into_owned();
            if !recorded.contains(&id) && !self.lock().contains_key(&id) {
                removal::remove(&self.root.trash, &entry.path()).await?;
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
