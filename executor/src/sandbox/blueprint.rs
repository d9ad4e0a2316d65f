//! Blueprints: named disks that were prepared once, by commands, for sandboxes to begin with. This owns their records;
//! building one takes jobs, and is done where those meet.

use sha2::{Digest, Sha256};
use time::OffsetDateTime;

use super::{Held, Sandboxes};
use crate::error::{Error, Result};
use crate::id::{BlueprintId, WorkspaceId};
use crate::store::columns::{signed, time, unsigned};
use crate::store::{BlueprintRow, is_conflict};
use crate::timestamp;

/// Most commands of a blueprint.
const MAX_COMMANDS: usize = 100;

/// Most layers on one another: blueprints that build on blueprints.
pub(super) const MAX_LAYERS: usize = 32;

/// A blueprint.
#[derive(Debug, Clone)]
pub struct Blueprint {
    /// Id.
    pub id: BlueprintId,
    /// Order of creation.
    pub seq: i64,
    /// Name.
    pub name: String,
    /// Who made it.
    pub principal: String,
    /// Digest of everything that its disk follows from.
    pub definition: String,
    /// What is run to prepare it.
    pub commands: Vec<String>,
    /// Files that were written first.
    pub files: Vec<String>,
    /// Name of the blueprint it builds on.
    pub base: Option<String>,
    /// Ids of what it is made of, its own last, once it is ready.
    pub layers: Vec<String>,
    /// Form of the disk: what is made of it must have the same.
    pub form: String,
    /// State.
    pub state: BuildState,
    /// What its commands printed, and what went wrong.
    pub log: String,
    /// Bytes that it takes of the disk.
    pub bytes: u64,
    /// When it was asked for.
    pub created: OffsetDateTime,
    /// When it was ready or failed.
    pub ended: Option<OffsetDateTime>,
}

/// State of a blueprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildState {
    /// Its commands run.
    Building,
    /// Sandboxes can begin with it.
    Ready,
    /// A command failed; the log tells which.
    Failed,
}

/// What to prepare.
#[derive(Debug, Clone, Default)]
pub struct NewBlueprint {
    /// Who asks.
    pub principal: String,
    /// Name.
    pub name: String,
    /// What to run, one after the other, each in `/home/user`.
    pub commands: Vec<String>,
    /// Files to write first: paths and contents.
    pub files: Vec<(Vec<u8>, Vec<u8>)>,
    /// Id or name of the blueprint to build on.
    pub base: Option<String>,
}

/// What a request for a blueprint leads to.
pub enum Begun {
    /// There is one by this name already, which follows from the same.
    Known(Blueprint),
    /// It is on record, and to be built.
    New(Blueprint, Option<Held>),
}

impl BuildState {
    /// Its name in records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Building => "building",
            Self::Ready => "ready",
            Self::Failed => "failed",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Building, Self::Ready, Self::Failed].into_iter().find(|state| state.name() == name)
    }
}

impl NewBlueprint {
    fn check(&self) -> Result<()> {
        crate::workspace::check_name(Some(&self.name))?;
        if BlueprintId::parse(&self.name).is_some() {
            return Err(Error::invalid("name", "a name can't have the form of an id"));
        }
        if !(1..=MAX_COMMANDS).contains(&self.commands.len()) {
            let problem = format!("expected 1 to {MAX_COMMANDS} commands, got {}", self.commands.len());
            return Err(Error::invalid("setup_commands", problem));
        }
        match self.commands.iter().position(|command| command.trim().is_empty() || command.contains('\0')) {
            Some(index) => {
                let problem = format!("command {} is empty or holds a NUL", index + 1);
                Err(Error::invalid("setup_commands", problem))
            }
            None => Ok(()),
        }
    }

    /// A digest of everything that the disk follows from. Each part has its length before it, so that none runs into the next.
    fn definition(&self, base: &[String]) -> String {
        let mut digest = Sha256::new();
        let mut add = |part: &[u8]| {
            digest.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            digest.update(part);
        };
        add(base.join("\n").as_bytes());
        add(&self.commands.len().to_be_bytes());
        self.commands.iter().for_each(|command| add(command.as_bytes()));
        for (path, content) in &self.files {
            add(path);
            add(content);
        }
        digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Sandboxes {
    /// Puts a blueprint on record, if it is not there yet. What an equal one by another name left is used again.
    pub async fn begin_blueprint(&self, new: &NewBlueprint) -> Result<Begun> {
        new.check()?;
        // Two requests for one name are seen one after the other.
        let _order = self.blueprint_order.lock().await;
        let base = match &new.base {
            Some(base) => Some(self.ready_blueprint("base", base).await?),
            None => None,
        };
        let beneath = base.as_ref().map(|base| base.layers.clone()).unwrap_or_default();
        if beneath.len() >= MAX_LAYERS {
            let problem = format!("builds on {MAX_LAYERS} others already; put its commands into one");
            return Err(Error::invalid("base", problem));
        }
        let definition = new.definition(&beneath);
        let mut all = self.blueprints().await?;
        let here = self.workspaces.enclosure().form().await.name();
        for known in all.iter_mut().filter(|known| known.state == BuildState::Ready) {
            // What nothing can begin with any more is built again.
            let is_there = known.layers.iter().all(|id| self.layers.path(id).is_dir());
            if known.form != here || !is_there {
                known.state = BuildState::Failed;
            }
        }
        if let Some(known) = all.iter().find(|known| known.name == new.name) {
            match (known.definition == definition, known.state) {
                (true, BuildState::Building | BuildState::Ready) => return Ok(Begun::Known(known.clone())),
                (_, BuildState::Failed) => self.store.remove_blueprint(known.id.to_string()).await?,
                (false, _) => {
                    return Err(Error::BlueprintExists {
                        name: new.name.clone(),
                        blueprint_id: known.id.to_string(),
                    });
                }
            }
        }
        let equal = all.into_iter().find(|other| {
            other.definition == definition && other.state == BuildState::Ready && other.name != new.name
        });
        let mut blueprint = Blueprint {
            id: BlueprintId::generate()?,
            seq: 0,
            name: new.name.clone(),
            principal: new.principal.clone(),
            definition,
            commands: new.commands.clone(),
            files: new.files.iter().map(|(path, _)| String::from_utf8_lossy(path).into_owned()).collect(),
            base: base.map(|base| base.name),
            layers: beneath.clone(),
            form: String::new(),
            state: BuildState::Building,
            log: String::new(),
            bytes: 0,
            created: OffsetDateTime::now_utc(),
            ended: None,
        };
        if let Some(equal) = &equal {
            blueprint.state = BuildState::Ready;
            blueprint.layers.clone_from(&equal.layers);
            blueprint.form.clone_from(&equal.form);
            blueprint.bytes = equal.bytes;
            blueprint.ended = Some(blueprint.created);
            blueprint.log = format!("equal to blueprint {}, whose disk it shares\n{}", equal.name, equal.log);
        }
        let inserted = self.store.insert_blueprint(to_row(&blueprint)).await;
        blueprint.seq = inserted.map_err(|error| match error {
            error if is_conflict(&error) => {
                Error::BlueprintExists { name: new.name.clone(), blueprint_id: String::new() }
            }
            error => error,
        })?;
        let held = equal.is_none().then(|| self.layers.hold(&blueprint.layers));
        Ok(Begun::New(blueprint, held))
    }

    /// Records what became of a build.
    pub async fn end_blueprint(&self, blueprint: &Blueprint) -> Result<()> {
        self.store.end_blueprint(to_row(blueprint)).await
    }

    /// All blueprints, newest first.
    pub async fn blueprints(&self) -> Result<Vec<Blueprint>> {
        Ok(self.store.blueprints().await?.into_iter().filter_map(from_row).collect())
    }

    /// The blueprint with this id or name.
    pub async fn blueprint(&self, id_or_name: &str) -> Result<Blueprint> {
        let is_it =
            |blueprint: &Blueprint| blueprint.id.as_str() == id_or_name || blueprint.name == id_or_name;
        let found = self.blueprints().await?.into_iter().find(is_it);
        found.ok_or_else(|| Error::BlueprintNotFound { name: id_or_name.chars().take(80).collect() })
    }

    /// The same, if sandboxes can begin with it.
    pub(super) async fn ready_blueprint(&self, field: &'static str, id_or_name: &str) -> Result<Blueprint> {
        let found = self.blueprint(id_or_name).await?;
        match found.state {
            BuildState::Ready => Ok(found),
            BuildState::Building => Err(Error::BlueprintNotReady { name: found.name }),
            BuildState::Failed => Err(Error::invalid(
                field,
                format!("blueprint {} could not be built; get_blueprint shows its log", found.name),
            )),
        }
    }

    /// Deletes a blueprint. What was made from it goes on; those sandboxes are returned.
    pub async fn delete_blueprint(&self, id_or_name: &str) -> Result<(Blueprint, Vec<WorkspaceId>)> {
        let blueprint = self.blueprint(id_or_name).await?;
        if blueprint.state == BuildState::Building {
            return Err(Error::BlueprintNotReady { name: blueprint.name });
        }
        self.store.remove_blueprint(blueprint.id.to_string()).await?;
        self.sweep_layers().await?;
        let users = blueprint.layers.last().map(|layer| self.users_of(layer)).unwrap_or_default();
        Ok((blueprint, users))
    }

    /// Records that builds which were under way ended with their executor.
    pub(super) async fn lose_builds(&self) -> Result<()> {
        for blueprint in self.blueprints().await? {
            if blueprint.state == BuildState::Building {
                let log = format!("{}the executor ended while it was built\n", blueprint.log);
                let ended = Some(OffsetDateTime::now_utc());
                let lost = Blueprint { state: BuildState::Failed, log, ended, ..blueprint };
                self.end_blueprint(&lost).await?;
            }
        }
        Ok(())
    }

    /// Ends a build: what the sandbox has on its disk becomes the blueprint's. Its processes have ended.
    pub async fn keep_disk(&self, blueprint: &mut Blueprint, sandbox: &WorkspaceId) -> Result<()> {
        let id = blueprint.id.to_string();
        let _held = self.layers.hold(std::slice::from_ref(&id));
        let (form, bytes) = self.workspaces.give_disk(sandbox, &self.layers.path(&id)).await?;
        if form.is_whole() {
            blueprint.layers.clear();
        }
        blueprint.layers.push(id);
        form.name().clone_into(&mut blueprint.form);
        blueprint.bytes = bytes;
        blueprint.state = BuildState::Ready;
        blueprint.ended = Some(OffsetDateTime::now_utc());
        self.end_blueprint(blueprint).await
    }
}

fn to_row(blueprint: &Blueprint) -> BlueprintRow {
    BlueprintRow {
        seq: blueprint.seq,
        blueprint_id: blueprint.id.to_string(),
        name: blueprint.name.clone(),
        principal: blueprint.principal.clone(),
        definition: blueprint.definition.clone(),
        commands: serde_json::to_string(&blueprint.commands).unwrap_or_default(),
        files: serde_json::to_string(&blueprint.files).unwrap_or_default(),
        base: blueprint.base.clone(),
        layers: serde_json::to_string(&blueprint.layers).unwrap_or_default(),
        form: blueprint.form.clone(),
        state: blueprint.state.name().to_owned(),
        log: blueprint.log.clone(),
        size_bytes: signed(blueprint.bytes),
        created_ms: timestamp::to_millis(blueprint.created),
        ended_ms: blueprint.ended.map(timestamp::to_millis),
    }
}

/// `None` for a row that no version of this program wrote.
fn from_row(row: BlueprintRow) -> Option<Blueprint> {
    Some(Blueprint {
        id: BlueprintId::parse(&row.blueprint_id)?,
        seq: row.seq,
        name: row.name,
        principal: row.principal,
        definition: row.definition,
        commands: serde_json::from_str(&row.commands).ok()?,
        files: serde_json::from_str(&row.files).ok()?,
        base: row.base,
        layers: serde_json::from_str(&row.layers).ok()?,
        form: row.form,
        state: BuildState::from_name(&row.state)?,
        log: row.log,
        bytes: unsigned(row.size_bytes),
        created: time(row.created_ms),
        ended: row.ended_ms.map(time),
    })
}
