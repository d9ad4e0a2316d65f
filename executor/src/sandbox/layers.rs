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

    /// Ids of layers that are not held. One that is there and is to stay is held until it is on record; so what is on record is
    /// to be looked for after this.
    pub(super) fn unheld(&self) -> Result<Vec<String>> {
        let entries = std::fs::read_dir(&self.root.snapshots);
        let entries = entries.map_err(|error| Error::internal("listing snapshots", error))?;
        let ids = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let ids: Vec<String> = ids.collect();
        let held = self.lock();
        Ok(ids.into_iter().filter(|id| !held.contains_key(id)).collect())
    }

    /// Removes those of `unheld` that are not on record, nor held by now.
    pub(super) async fn remove(&self, unheld: Vec<String>, recorded: &HashSet<String>) -> Result<()> {
        for id in unheld {
            if !recorded.contains(&id) && !self.lock().contains_key(&id) {
                removal::remove(&self.root.trash, &self.path(&id)).await?;
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
