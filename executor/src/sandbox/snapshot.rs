//! Snapshots: what a sandbox has on its disk at one time, for others to begin with.

use std::collections::HashSet;
use std::sync::Arc;

use time::OffsetDateTime;

use super::blueprint::MAX_LAYERS;
use super::{Sandbox, Sandboxes};
use crate::error::{Error, Result};
use crate::id::{SnapshotId, WorkspaceId};
use crate::store::columns::{signed, time, unsigned};
use crate::store::{SnapshotRow, is_conflict};
use crate::timestamp;

/// A snapshot.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Id.
    pub id: SnapshotId,
    /// Order of creation.
    pub seq: i64,
    /// Name, if any.
    pub name: Option<String>,
    /// Who made it.
    pub principal: String,
    /// The sandbox that it is of.
    pub sandbox_id: WorkspaceId,
    /// Name of the blueprint of that.
    pub blueprint: Option<String>,
    /// Ids of what it is made of, its own last.
    pub layers: Vec<String>,
    /// Form of the sandbox's disk: what is made of it must have the same.
    pub form: String,
    /// Bytes that it takes of the disk.
    pub bytes: u64,
    /// When it was made.
    pub created: OffsetDateTime,
}

impl Sandboxes {
    /// Makes a snapshot of a sandbox, which stands still meanwhile.
    pub async fn create_snapshot(
        self: &Arc<Self>,
        principal: String,
        id_or_name: &str,
        name: Option<String>,
    ) -> Result<Snapshot> {
        crate::workspace::check_name(name.as_deref())?;
        if let Some(name) = &name
            && SnapshotId::parse(name).is_some()
        {
            return Err(Error::invalid("name", "a name can't have the form of an id"));
        }
        let sandbox = self.expect_living(id_or_name).await?;
        let this = Arc::clone(self);
        // Dropping the caller must not leave it frozen.
        let making = tokio::spawn(async move { this.make_snapshot(principal, &sandbox, name).await });
        making.await.map_err(|error| Error::internal("making a snapshot", error))?
    }

    async fn make_snapshot(
        self: &Arc<Self>,
        principal: String,
        sandbox: &Sandbox,
        name: Option<String>,
    ) -> Result<Snapshot> {
        let id = SnapshotId::generate()?;
        let mut layers = sandbox.layers.clone();
        layers.push(id.to_string());
        let held = self.layers.hold(&layers);
        if layers.len() > MAX_LAYERS {
            let problem =
                format!("begins with {} others already; make one from a fresh sandbox", layers.len() - 1);
            return Err(Error::invalid("sandbox_id", problem));
        }
        let (form, bytes) = match self.workspaces.save(&sandbox.id, &self.layers.path(id.as_str())).await {
            Ok(saved) => saved,
            Err(error) => {
                drop(held);
                self.sweep_layers().await?;
                return Err(error);
            }
        };
        if form.is_whole() {
            layers = vec![id.to_string()];
        }
        let mut snapshot = Snapshot {
            id,
            seq: 0,
            name,
            principal,
            sandbox_id: sandbox.id.clone(),
            blueprint: sandbox.blueprint.clone(),
            layers,
            form: form.name().to_owned(),
            bytes,
            created: OffsetDateTime::now_utc(),
        };
        match self.store.insert_snapshot(to_row(&snapshot)).await {
            Ok(seq) => snapshot.seq = seq,
            Err(error) => {
                drop(held);
                self.sweep_layers().await?;
                let name = snapshot.name.unwrap_or_default();
                return Err(if is_conflict(&error) {
                    Error::invalid("name", format!("another snapshot has the name '{name}'; choose another"))
                } else {
                    error
                });
            }
        }
        Ok(snapshot)
    }

    /// All snapshots, newest first.
    pub async fn snapshots(&self) -> Result<Vec<Snapshot>> {
        Ok(self.store.snapshots().await?.into_iter().filter_map(from_row).collect())
    }

    /// The snapshot with this id or name.
    pub async fn snapshot(&self, id_or_name: &str) -> Result<Snapshot> {
        let is_it = |snapshot: &Snapshot| {
            snapshot.id.as_str() == id_or_name || snapshot.name.as_deref() == Some(id_or_name)
        };
        let found = self.snapshots().await?.into_iter().find(is_it);
        found.ok_or_else(|| Error::SnapshotNotFound { snapshot_id: id_or_name.chars().take(80).collect() })
    }

    /// Deletes a snapshot. What was made from it goes on; those sandboxes are returned.
    pub async fn delete_snapshot(&self, id_or_name: &str) -> Result<(Snapshot, Vec<WorkspaceId>)> {
        let snapshot = self.snapshot(id_or_name).await?;
        self.store.remove_snapshot(snapshot.id.to_string()).await?;
        self.sweep_layers().await?;
        let users = self.users_of(snapshot.id.as_str());
        Ok((snapshot, users))
    }

    /// Living sandboxes that are made of a layer.
    pub(super) fn users_of(&self, layer: &str) -> Vec<WorkspaceId> {
        let known = self.lock();
        let of_it = known.living.values().filter(|sandbox| sandbox.layers.iter().any(|id| id == layer));
        let mut users: Vec<WorkspaceId> = of_it.map(|sandbox| sandbox.id.clone()).collect();
        users.sort();
        users
    }

    /// Removes layers of which nothing is made any more.
    pub(super) async fn sweep_layers(&self) -> Result<()> {
        let unheld = self.layers.unheld()?;
        let snapshots = self.snapshots().await?.into_iter().flat_map(|snapshot| snapshot.layers);
        let blueprints = self.blueprints().await?.into_iter().flat_map(|blueprint| blueprint.layers);
        let recorded: HashSet<String> = snapshots.chain(blueprints).collect();
        self.layers.remove(unheld, &recorded).await
    }
}

fn to_row(snapshot: &Snapshot) -> SnapshotRow {
    SnapshotRow {
        seq: snapshot.seq,
        snapshot_id: snapshot.id.to_string(),
        name: snapshot.name.clone(),
        principal: snapshot.principal.clone(),
        sandbox_id: snapshot.sandbox_id.to_string(),
        blueprint: snapshot.blueprint.clone(),
        layers: serde_json::to_string(&snapshot.layers).unwrap_or_default(),
        form: snapshot.form.clone(),
        size_bytes: signed(snapshot.bytes),
        created_ms: timestamp::to_millis(snapshot.created),
    }
}

/// `None` for a row that no version of this program wrote.
fn from_row(row: SnapshotRow) -> Option<Snapshot> {
    Some(Snapshot {
        id: SnapshotId::parse(&row.snapshot_id)?,
        seq: row.seq,
        name: row.name,
        principal: row.principal,
        sandbox_id: WorkspaceId::parse(&row.sandbox_id)?,
        blueprint: row.blueprint,
        layers: serde_json::from_str(&row.layers).ok()?,
        form: row.form,
        bytes: unsigned(row.size_bytes),
        created: time(row.created_ms),
    })
}
