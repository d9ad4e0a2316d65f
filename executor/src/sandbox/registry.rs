//! The sandboxes that live: found, claimed for a run, ended at their time.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use time::OffsetDateTime;

use super::layers::{Held, Layers};
use super::{EndReason, ISOLATED, NOT_ISOLATED, NewSandbox, PURPOSE, Sandbox, Status, record};
use crate::data_root::DataRoot;
use crate::error::{Error, Result};
use crate::id::WorkspaceId;
use crate::store::Store;
use crate::timestamp;
use crate::workspace::{Network, NewWorkspace, SandboxStart, State, Workspace, Workspaces};

/// How long a caller waits for a sandbox to be made.
const PATIENCE: Duration = Duration::from_secs(45);

/// What is noted of a sandbox whose processes ended while it was suspended.
const STARTED_ANEW: &str =
    "its executor ended while it was suspended: its files are as they were, its processes are gone";

/// Ended sandboxes that are listed at most.
const MOST_LISTED: usize = 1000;

/// The sandboxes of a machine.
#[derive(Debug)]
pub struct Sandboxes {
    pub(super) store: Store,
    pub(super) workspaces: Arc<Workspaces>,
    pub(super) layers: Arc<Layers>,
    /// Held while it is decided whether a blueprint is there already.
    pub(super) blueprint_order: tokio::sync::Mutex<()>,
    /// Held while one is suspended or resumed.
    pausing: tokio::sync::Mutex<()>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) living: HashMap<WorkspaceId, Arc<Sandbox>>,
    claimed: HashSet<WorkspaceId>,
    /// What they are made of.
    held: HashMap<WorkspaceId, Held>,
    /// When those that run are to end, whatever becomes of the machine's clock.
    deadlines: HashMap<WorkspaceId, Instant>,
}

/// What a sandbox begins with.
#[derive(Debug)]
struct Origin {
    layers: Vec<String>,
    blueprint: Option<String>,
    snapshot_id: Option<String>,
    held: Held,
}

/// A sandbox in which nobody else begins a run while this is held.
#[derive(Debug)]
pub struct Claim {
    /// The sandbox.
    pub id: WorkspaceId,
    /// Whether an earlier run left it.
    pub reused: bool,
    sandboxes: Arc<Sandboxes>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.sandboxes.lock().claimed.remove(&self.id);
    }
}

impl Sandboxes {
    /// Takes up the records. Of the sandboxes of an executor that ended, the suspended ones are there with their files;
    /// those that ran are lost.
    pub async fn load(store: Store, root: Arc<DataRoot>, workspaces: Arc<Workspaces>) -> Result<Arc<Self>> {
        let layers = Arc::new(Layers::new(root));
        let now = timestamp::to_millis(OffsetDateTime::now_utc());
        store.lose_sandboxes(now).await?;
        let mut known = Known::default();
        for id in store.suspended_sandboxes().await? {
            let sandbox = store.sandbox(id.clone()).await?.and_then(record::from_row);
            match sandbox.filter(|_| workspaces.get(&id).is_ok()) {
                Some(sandbox) => {
                    known.held.insert(sandbox.id.clone(), layers.hold(&sandbox.layers));
                    known.living.insert(sandbox.id.clone(), Arc::new(sandbox));
                }
                None => store.end_sandbox(id, now, EndReason::Lost.name().to_owned()).await?,
            }
        }
        let (blueprint_order, pausing) = (tokio::sync::Mutex::default(), tokio::sync::Mutex::default());
        let known = Mutex::new(known);
        let this = Arc::new(Self { store, workspaces, layers, blueprint_order, pausing, known });
        this.lose_builds().await?;
        this.sweep_layers().await?;
        Ok(this)
    }

    /// Makes a sandbox.
    pub async fn create(self: &Arc<Self>, new: NewSandbox) -> Result<Arc<Sandbox>> {
        new.check()?;
        // Dropping the caller must not leave a sandbox that nobody will end.
        let this = Arc::clone(self);
        let making = tokio::spawn(async move {
            let origin = this.origin(&new).await?;
            this.make(new, origin, false).await
        });
        making.await.map_err(|error| Error::internal("making a sandbox", error))?
    }

    /// Makes a sandbox, and claims it before anybody else can see it.
    async fn create_claimed(self: &Arc<Self>, new: NewSandbox, origin: Origin) -> Result<Claim> {
        let this = Arc::clone(self);
        let making = tokio::spawn(async move {
            let id = this.make(new, origin, true).await?.id.clone();
            Ok(Claim { id, reused: false, sandboxes: this })
        });
        making.await.map_err(|error| Error::internal("making a sandbox", error))?
    }

    /// Removes what was made of a sandbox that is none. A rest on the disk goes at the next start.
    async fn discard(&self, made: &Workspace) {
        if let Ok(closed) = self.workspaces.close(made.id.as_str()).await {
            let _removed = self.workspaces.remove(&closed).await;
        }
    }

    /// What a new sandbox is to begin with. It stays there as long as the answer.
    async fn origin(&self, new: &NewSandbox) -> Result<Origin> {
        let (layers, form, field, blueprint, snapshot_id) = match (&new.blueprint, &new.snapshot_id) {
            (Some(blueprint), _) => {
                let found = self.ready_blueprint("blueprint", blueprint).await?;
                (found.layers, found.form, "blueprint", Some(found.name), None)
            }
            (None, Some(snapshot)) => {
                let found = self.snapshot(snapshot).await?;
                (found.layers, found.form, "snapshot_id", found.blueprint, Some(found.id.to_string()))
            }
            (None, None) => {
                let (layers, held) = (Vec::new(), self.layers.hold(&[]));
                return Ok(Origin { layers, blueprint: None, snapshot_id: None, held });
            }
        };
        let held = self.layers.hold(&layers);
        let here = self.workspaces.enclosure().form().await.name();
        if form != here {
            let problem = format!(
                "its disk has the form '{form}', those of sandboxes now have '{here}'; make it again"
            );
            return Err(Error::invalid(field, problem));
        }
        if let Some(gone) = layers.iter().find(|id| !self.layers.path(id).is_dir()) {
            return Err(Error::invalid(field, format!("its part {gone} is gone; make it again")));
        }
        Ok(Origin { layers, blueprint, snapshot_id, held })
    }

    async fn make(&self, new: NewSandbox, origin: Origin, claimed: bool) -> Result<Arc<Sandbox>> {
        let start = self.start_of(new.loopback_only, &origin.layers);
        let workspace = NewWorkspace {
            principal: new.principal.clone(),
            name: new.name.clone(),
            env: new.env,
            sandbox: Some(start),
            ..NewWorkspace::default()
        };
        let made = self.workspaces.create(workspace, PATIENCE).await?;
        if made.state != State::Ready {
            self.discard(&made).await;
            let why = "it took too long; the machine is busy".to_owned();
            return Err(Error::internal("making a sandbox", why));
        }
        let mut sandbox = Sandbox {
            id: made.id.clone(),
            seq: 0,
            name: new.name,
            principal: new.principal,
            metadata: new.metadata,
            created: made.created,
            expires: made.created + new.lifetime,
            isolation: Self::isolation_of(&made),
            notes: made.notes.clone(),
            loopback_only: new.loopback_only,
            remaining: None,
            layers: origin.layers,
            blueprint: origin.blueprint,
            snapshot_id: origin.snapshot_id,
            end: None,
        };
        match self.store.insert_sandbox(record::to_row(&sandbox)).await {
            Ok(seq) => sandbox.seq = seq,
            Err(error) => {
                self.discard(&made).await;
                return Err(error);
            }
        }
        let sandbox = Arc::new(sandbox);
        let mut known = self.lock();
        known.living.insert(sandbox.id.clone(), Arc::clone(&sandbox));
        known.held.insert(sandbox.id.clone(), origin.held);
        known.deadlines.insert(sandbox.id.clone(), Instant::now() + new.lifetime);
        if claimed {
            known.claimed.insert(sandbox.id.clone());
        }
        Ok(sandbox)
    }

    fn start_of(&self, loopback_only: bool, layers: &[String]) -> SandboxStart {
        let network = if loopback_only { Network::Loopback } else { Network::Machine };
        SandboxStart { network, layers: layers.iter().map(|id| self.layers.path(id)).collect() }
    }

    /// Has a sandbox stand still, with its time: its processes, memory and files stay as they are. One that does so already
    /// stays as it is.
    pub async fn suspend(&self, id_or_name: &str) -> Result<Arc<Sandbox>> {
        let _alone = self.pausing.lock().await;
        let sandbox = self.expect_living(id_or_name).await?;
        if sandbox.remaining.is_some() {
            return Ok(sandbox);
        }
        let deadline = self.lock().deadlines.get(&sandbox.id).copied();
        let remaining = deadline.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
        let suspended = Sandbox { remaining: Some(remaining), ..(*sandbox).clone() };
        let recorded = self.store.pause_sandbox(record::to_row(&suspended));
        if let Err(error) = self.workspaces.suspend(&sandbox.id, recorded).await {
            self.store.pause_sandbox(record::to_row(&sandbox)).await?;
            return Err(error);
        }
        self.lock().deadlines.remove(&sandbox.id);
        Ok(self.replace(suspended))
    }

    /// Lets a suspended sandbox go on, with the time that it had left. One that runs stays as it is.
    pub async fn resume(&self, id_or_name: &str) -> Result<Arc<Sandbox>> {
        let _alone = self.pausing.lock().await;
        let sandbox = self.expect_living(id_or_name).await?;
        let Some(remaining) = sandbox.remaining else { return Ok(sandbox) };
        let start = self.start_of(sandbox.loopback_only, &sandbox.layers);
        let anew = self.workspaces.resume(&sandbox.id, start).await?;
        let expires = OffsetDateTime::now_utc() + remaining;
        let mut resumed = Sandbox { remaining: None, expires, ..(*sandbox).clone() };
        if anew && !resumed.notes.iter().any(|note| note == STARTED_ANEW) {
            resumed.notes.push(STARTED_ANEW.to_owned());
        }
        self.lock().deadlines.insert(sandbox.id.clone(), Instant::now() + remaining);
        self.store.pause_sandbox(record::to_row(&resumed)).await?;
        Ok(self.replace(resumed))
    }

    fn replace(&self, sandbox: Sandbox) -> Arc<Sandbox> {
        let sandbox = Arc::new(sandbox);
        self.lock().living.insert(sandbox.id.clone(), Arc::clone(&sandbox));
        sandbox
    }

    /// The sandbox with this id or name, if it lives.
    pub async fn expect_living(&self, id_or_name: &str) -> Result<Arc<Sandbox>> {
        let sandbox = self.get(id_or_name).await?;
        match sandbox.end {
            None => Ok(sandbox),
            Some((_, reason)) => Err(Error::invalid(
                "sandbox_id",
                format!("{} has ended ({}); create_sandbox makes another", sandbox.id, reason.name()),
            )),
        }
    }

    fn isolation_of(workspace: &Workspace) -> String {
        if workspace.enclosed { ISOLATED } else { NOT_ISOLATED }.to_owned()
    }

    /// A sandbox for a run: an idle one that an earlier run left and that has these variables, or a new one. `is_busy`
    /// says whether something runs in a sandbox.
    pub async fn claim(
        self: &Arc<Self>,
        new: NewSandbox,
        is_busy: impl Fn(&WorkspaceId) -> bool,
    ) -> Result<Claim> {
        let origin = self.origin(&new).await?;
        let env = &new.env;
        let fits = |sandbox: &Sandbox| {
            sandbox.remaining.is_none()
                && !sandbox.loopback_only
                && sandbox.layers == origin.layers
                && sandbox.snapshot_id.is_none()
                && sandbox.metadata.get(PURPOSE.0).is_some_and(|value| value == PURPOSE.1)
                && self.workspaces.get(sandbox.id.as_str()).is_ok_and(|workspace| workspace.env == *env)
        };
        let left = {
            let mut known = self.lock();
            let Known { living, claimed, .. } = &mut *known;
            let mut free: Vec<&Arc<Sandbox>> = living
                .values()
                .filter(|sandbox| !claimed.contains(&sandbox.id) && fits(sandbox) && !is_busy(&sandbox.id))
                .collect();
            // The one that lives longest.
            free.sort_by_key(|sandbox| sandbox.expires);
            let found = free.last().map(|sandbox| sandbox.id.clone());
            claimed.extend(found.clone());
            found
        };
        if let Some(id) = left {
            return Ok(Claim { id, reused: true, sandboxes: Arc::clone(self) });
        }
        self.create_claimed(new, origin).await
    }

    /// The sandbox with this id or name, also one that has ended.
    pub async fn get(&self, id_or_name: &str) -> Result<Arc<Sandbox>> {
        if let Some(living) = self.living(id_or_name) {
            return Ok(living);
        }
        let row = self.store.sandbox(id_or_name.to_owned()).await?;
        let found = row.and_then(record::from_row).map(Arc::new);
        found.ok_or_else(|| Error::WorkspaceNotFound { workspace_id: id_or_name.chars().take(80).collect() })
    }

    fn living(&self, id_or_name: &str) -> Option<Arc<Sandbox>> {
        let known = self.lock();
        let mut all = known.living.values();
        let named = |sandbox: &&Arc<Sandbox>| {
            sandbox.id.as_str() == id_or_name || sandbox.name.as_deref() == Some(id_or_name)
        };
        all.find(named).cloned()
    }

    /// Sandboxes in a state, newest first, that have all of `metadata`; without one, all that live.
    pub async fn list(
        &self,
        status: Option<Status>,
        metadata: &BTreeMap<String, String>,
    ) -> Result<Vec<Arc<Sandbox>>> {
        let mut all: Vec<Arc<Sandbox>> = if status == Some(Status::Shutdown) {
            let rows = self.store.ended_sandboxes(MOST_LISTED).await?;
            rows.into_iter().filter_map(record::from_row).map(Arc::new).collect()
        } else {
            self.lock().living.values().cloned().collect()
        };
        all.retain(|sandbox| status.is_none_or(|status| sandbox.status() == status));
        all.retain(|sandbox| metadata.iter().all(|(name, value)| sandbox.metadata.get(name) == Some(value)));
        all.sort_by_key(|sandbox| std::cmp::Reverse(sandbox.seq));
        Ok(all)
    }

    /// Ids of those whose time is over.
    pub fn expired(&self) -> Vec<WorkspaceId> {
        let now = Instant::now();
        let known = self.lock();
        known.deadlines.iter().filter(|(_, at)| **at <= now).map(|(id, _)| id.clone()).collect()
    }

    /// Records that a sandbox has ended, if it is one.
    pub async fn ended(&self, id: &WorkspaceId, reason: EndReason) -> Result<Option<Arc<Sandbox>>> {
        let Some(living) = self.lock().living.remove(id) else { return Ok(None) };
        self.lock().deadlines.remove(id);
        let held = self.lock().held.remove(id);
        let now = OffsetDateTime::now_utc();
        let sandbox = Sandbox { end: Some((now, reason)), remaining: None, ..(*living).clone() };
        let (ended_ms, reason) = (timestamp::to_millis(now), reason.name().to_owned());
        self.store.end_sandbox(id.to_string(), ended_ms, reason).await?;
        if held.is_some() && !sandbox.layers.is_empty() {
            drop(held);
            self.sweep_layers().await?;
        }
        Ok(Some(Arc::new(sandbox)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
