//! Building blueprints: a sandbox is made on the base, the commands run in it as jobs, one after the other, and what it has
//! on its disk then becomes the blueprint's. It goes on when the caller goes away.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::watch;

use crate::error::{Error, Result};
use crate::file::{IfMatch, WriteOptions};
use crate::id::WorkspaceId;
use crate::job::{EndState, Job, NewJob};
use crate::machine::Machine;
use crate::sandbox::{Begun, Blueprint, BuildState, EndReason, NewBlueprint, NewSandbox};

/// Longest time one command may take. The sandbox that it runs in lives no longer.
const COMMAND_LIMIT: Duration = Duration::from_secs(3600);

/// Bytes of the output of one command, and of all, that the log keeps.
const COMMAND_LOG_BYTES: usize = 64 << 10;
const LOG_BYTES: usize = 512 << 10;

/// What went wrong with a build.
enum Problem {
    /// A command ended with this, as a sentence.
    Command(String),
    /// Something else did.
    Other(Error),
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl Machine {
    /// Makes a blueprint, or finds it by its name, and waits up to `wait` until it is ready or failed.
    pub async fn create_blueprint(self: &Arc<Self>, new: NewBlueprint, wait: Duration) -> Result<Blueprint> {
        let name = new.name.clone();
        match self.sandboxes.begin_blueprint(&new).await? {
            Begun::New(blueprint, held) if blueprint.state == BuildState::Building => {
                let log = watch::Sender::new(String::new());
                self.builds().insert(blueprint.id.clone(), log.subscribe());
                let this = Arc::clone(self);
                self.background_to_the_end(async move {
                    let id = blueprint.id.clone();
                    this.build(blueprint, new, &log).await;
                    this.builds().remove(&id);
                    drop((log, held));
                });
            }
            Begun::Known(_) | Begun::New(..) => {}
        }
        let known = self.sandboxes.blueprint(&name).await?;
        let building = self.builds().get(&known.id).cloned();
        if let Some(mut building) = building {
            // Its sender goes when the build is over.
            let over = async { while building.changed().await.is_ok() {} };
            let _elapsed = tokio::time::timeout(wait, over).await;
        }
        self.blueprint(&name).await
    }

    /// The blueprint with this id or name, with what its commands have printed so far.
    pub async fn blueprint(&self, id_or_name: &str) -> Result<Blueprint> {
        let known = self.sandboxes.blueprint(id_or_name).await?;
        let building = self.builds().get(&known.id).map(|log| log.borrow().clone());
        Ok(match building.filter(|_| known.state == BuildState::Building) {
            Some(log) => Blueprint { log, ..known },
            None => known,
        })
    }

    async fn build(
        self: &Arc<Self>,
        mut blueprint: Blueprint,
        new: NewBlueprint,
        log: &watch::Sender<String>,
    ) {
        let sandbox = NewSandbox::for_blueprint(new.principal.clone(), new.base.clone());
        let built = match self.sandboxes.create(sandbox).await {
            Ok(sandbox) => {
                let prepared = self.prepare(&sandbox.id, &new, log).await;
                let prepared = match prepared {
                    Ok(()) => {
                        blueprint.log = log.borrow().clone();
                        self.end_keeping(&sandbox.id, &mut blueprint).await.map_err(Problem::Other)
                    }
                    Err(problem) => Err(problem),
                };
                // Once its disk is kept, it is built.
                let prepared = if blueprint.state == BuildState::Ready { Ok(()) } else { prepared };
                if prepared.is_err() {
                    let _ended = self.end_sandbox(sandbox.id.as_str(), EndReason::Failed).await;
                }
                prepared
            }
            Err(error) => Err(Problem::Other(error)),
        };
        let Err(problem) = built else {
            tracing::info!(blueprint = blueprint.name, "built a blueprint");
            return;
        };
        let said = match problem {
            Problem::Command(said) => said,
            Problem::Other(error) => {
                tracing::warn!(error = %error, cause = ?error, blueprint = blueprint.name, "can't build a blueprint");
                error.to_string()
            }
        };
        note(log, &format!("{said}\n"));
        let (state, ended) = (BuildState::Failed, Some(OffsetDateTime::now_utc()));
        let failed = Blueprint { state, log: log.borrow().clone(), ended, ..blueprint };
        if let Err(error) = self.sandboxes.end_blueprint(&failed).await {
            tracing::error!(error = %error, cause = ?error, "can't record a failed build");
        }
    }

    async fn prepare(
        self: &Arc<Self>,
        id: &WorkspaceId,
        new: &NewBlueprint,
        log: &watch::Sender<String>,
    ) -> std::result::Result<(), Problem> {
        self.write_files(id, &new.files).await?;
        for (index, command) in new.commands.iter().enumerate() {
            note(log, &format!("$ {command}\n"));
            let job = NewJob::plain(new.principal.clone(), command.clone(), COMMAND_LIMIT);
            let lease = self.workspaces.enter(id.as_str()).await?;
            let started = self.jobs.start(lease, job, COMMAND_LIMIT, COMMAND_LOG_BYTES).await?;
            for (number, piece) in started.output.pieces.iter().enumerate() {
                note(log, if number == 0 { "" } else { "\n…\n" });
                note(log, &piece.text);
            }
            let Job { end, .. } = started.job;
            match end {
                Some(end) if end.state == EndState::Exited && end.exit_code == Some(0) => {}
                Some(end) => {
                    let mut said = format!("command {} ", index + 1);
                    let _written = match end.exit_code.filter(|_| end.state == EndState::Exited) {
                        Some(code) => write!(said, "exited {code}"),
                        None => write!(
                            said,
                            "was ended ({})",
                            end.signal.as_deref().unwrap_or("its time was over")
                        ),
                    };
                    return Err(Problem::Command(said));
                }
                None => return Err(Problem::Command(format!("command {} took too long", index + 1))),
            }
        }
        Ok(())
    }

    /// Writes files into a sandbox, one after the other.
    pub async fn write_files(&self, id: &WorkspaceId, files: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        for (path, content) in files {
            let lease = self.workspaces.enter(id.as_str()).await?;
            let options = WriteOptions { if_match: IfMatch::Any, executable: None };
            self.files.write(Arc::clone(&lease.root), path.clone(), content.clone(), options).await?;
        }
        Ok(())
    }
}

/// Adds to a log, as long as it is not too long.
fn note(log: &watch::Sender<String>, text: &str) {
    log.send_modify(|log| {
        if log.len() < LOG_BYTES {
            let room = LOG_BYTES - log.len();
            log.push_str(&text[..text.floor_char_boundary(room)]);
        }
    });
}
