//! SandboxService.

use std::sync::Arc;
use std::time::Duration;

use runlet_proto::v1;
use runlet_proto::v1::sandbox_service_server::SandboxService;
use tonic::{Request, Response};

use super::convert;
use crate::error::Error;
use crate::id::WorkspaceId;
use crate::job::NewJob;
use crate::machine::{Deleted, Machine};
use crate::sandbox::{
    Blueprint, BuildState, EndReason, NOT_ISOLATED, NewBlueprint, NewSandbox, Sandbox, Snapshot, Status,
};

/// How long an answer waits for the files to be counted that a run has made.
const COUNTING: Duration = Duration::from_secs(2);

pub(super) struct Service(pub Arc<Machine>);

#[tonic::async_trait]
impl SandboxService for Service {
    async fn create_sandbox(
        &self,
        request: Request<v1::CreateSandboxRequest>,
    ) -> Result<Response<v1::CreateSandboxResponse>, tonic::Status> {
        let v1::CreateSandboxRequest {
            principal,
            name,
            files,
            env,
            lifetime,
            metadata,
            loopback_only,
            blueprint,
            snapshot_id,
        } = request.into_inner();
        let new = NewSandbox {
            principal,
            name: convert::some(name),
            env: env.into_iter().collect(),
            lifetime: convert::from_duration("lifetime_seconds", lifetime)?,
            metadata: metadata.into_iter().collect(),
            loopback_only,
            blueprint: convert::some(blueprint),
            snapshot_id: convert::some(snapshot_id),
        };
        let made = self.0.sandboxes.create(new).await?;
        if let Err(error) = self.0.write_files(&made.id, &contents(files)).await {
            self.0.end_sandbox(made.id.as_str(), EndReason::Failed).await?;
            return Err(error.into());
        }
        Ok(Response::new(v1::CreateSandboxResponse { sandbox: Some(self.wire(&made)) }))
    }

    async fn get_sandbox(
        &self,
        request: Request<v1::GetSandboxRequest>,
    ) -> Result<Response<v1::GetSandboxResponse>, tonic::Status> {
        let found = self.0.sandboxes.get(&request.into_inner().sandbox_id).await?;
        Ok(Response::new(v1::GetSandboxResponse { sandbox: Some(self.wire(&found)) }))
    }

    async fn list_sandboxes(
        &self,
        request: Request<v1::ListSandboxesRequest>,
    ) -> Result<Response<v1::ListSandboxesResponse>, tonic::Status> {
        let status = match request.get_ref().state() {
            v1::sandbox::State::Unspecified => None,
            v1::sandbox::State::Running => Some(Status::Running),
            v1::sandbox::State::Suspended => Some(Status::Suspended),
            v1::sandbox::State::Shutdown => Some(Status::Shutdown),
        };
        let metadata = request.into_inner().metadata.into_iter().collect();
        let found = self.0.sandboxes.list(status, &metadata).await?;
        let sandboxes = found.iter().map(|sandbox| self.wire(sandbox)).collect();
        Ok(Response::new(v1::ListSandboxesResponse { sandboxes }))
    }

    async fn shutdown_sandbox(
        &self,
        request: Request<v1::ShutdownSandboxRequest>,
    ) -> Result<Response<v1::ShutdownSandboxResponse>, tonic::Status> {
        let v1::ShutdownSandboxRequest { principal, sandbox_id } = request.into_inner();
        let known = self.0.sandboxes.get(&sandbox_id).await?;
        if known.end.is_some() {
            let sandbox = Some(self.wire(&known));
            return Ok(Response::new(v1::ShutdownSandboxResponse { sandbox, ..Default::default() }));
        }
        let Deleted { ended_jobs, removed_bytes, sandbox, .. } =
            self.0.end_sandbox(known.id.as_str(), EndReason::Shutdown).await?;
        tracing::info!(principal, sandbox_id = %known.id, "shut down a sandbox");
        Ok(Response::new(v1::ShutdownSandboxResponse {
            sandbox: Some(self.wire(&sandbox.unwrap_or(known))),
            ended_job_ids: ended_jobs.iter().map(ToString::to_string).collect(),
            removed_bytes,
        }))
    }

    async fn suspend_sandbox(
        &self,
        request: Request<v1::SuspendSandboxRequest>,
    ) -> Result<Response<v1::SuspendSandboxResponse>, tonic::Status> {
        let v1::SuspendSandboxRequest { principal, sandbox_id } = request.into_inner();
        let sandboxes = Arc::clone(&self.0.sandboxes);
        let sandbox = finished(async move { sandboxes.suspend(&sandbox_id).await }).await?;
        tracing::info!(principal, sandbox_id = %sandbox.id, "suspended a sandbox");
        Ok(Response::new(v1::SuspendSandboxResponse { sandbox: Some(self.wire(&sandbox)) }))
    }

    async fn resume_sandbox(
        &self,
        request: Request<v1::ResumeSandboxRequest>,
    ) -> Result<Response<v1::ResumeSandboxResponse>, tonic::Status> {
        let v1::ResumeSandboxRequest { principal, sandbox_id } = request.into_inner();
        let sandboxes = Arc::clone(&self.0.sandboxes);
        let sandbox = finished(async move { sandboxes.resume(&sandbox_id).await }).await?;
        tracing::info!(principal, sandbox_id = %sandbox.id, "resumed a sandbox");
        Ok(Response::new(v1::ResumeSandboxResponse { sandbox: Some(self.wire(&sandbox)) }))
    }

    async fn get_sandbox_usage(
        &self,
        request: Request<v1::GetSandboxUsageRequest>,
    ) -> Result<Response<v1::GetSandboxUsageResponse>, tonic::Status> {
        let sandbox = self.0.sandboxes.expect_living(&request.into_inner().sandbox_id).await?;
        let (used, disk_bytes, disk_partial) = self.0.usage(&sandbox).await?;
        Ok(Response::new(v1::GetSandboxUsageResponse {
            sandbox: Some(self.wire(&sandbox)),
            disk_bytes,
            disk_partial,
            processes: used.map(|used| v1::get_sandbox_usage_response::Processes {
                count: used.processes,
                memory_bytes: used.counted.memory_bytes,
                peak_memory_bytes: used.counted.peak_memory_bytes,
                cpu: Some(convert::duration(used.counted.cpu)),
                received_bytes: used.network_bytes.map(|(received, _)| received),
                sent_bytes: used.network_bytes.map(|(_, sent)| sent),
            }),
        }))
    }

    async fn create_snapshot(
        &self,
        request: Request<v1::CreateSnapshotRequest>,
    ) -> Result<Response<v1::CreateSnapshotResponse>, tonic::Status> {
        let v1::CreateSnapshotRequest { principal, sandbox_id, name } = request.into_inner();
        let made = self.0.sandboxes.create_snapshot(principal, &sandbox_id, convert::some(name)).await?;
        Ok(Response::new(v1::CreateSnapshotResponse { snapshot: Some(snapshot(made)) }))
    }

    async fn list_snapshots(
        &self,
        _request: Request<v1::ListSnapshotsRequest>,
    ) -> Result<Response<v1::ListSnapshotsResponse>, tonic::Status> {
        let snapshots = self.0.sandboxes.snapshots().await?.into_iter().map(snapshot).collect();
        Ok(Response::new(v1::ListSnapshotsResponse { snapshots }))
    }

    async fn delete_snapshot(
        &self,
        request: Request<v1::DeleteSnapshotRequest>,
    ) -> Result<Response<v1::DeleteSnapshotResponse>, tonic::Status> {
        let v1::DeleteSnapshotRequest { principal, snapshot_id } = request.into_inner();
        let (deleted, users) = self.0.sandboxes.delete_snapshot(&snapshot_id).await?;
        tracing::info!(principal, snapshot_id = %deleted.id, "deleted a snapshot");
        let (snapshot, used_by) = (Some(snapshot(deleted)), ids(&users));
        Ok(Response::new(v1::DeleteSnapshotResponse { snapshot, used_by }))
    }

    async fn create_blueprint(
        &self,
        request: Request<v1::CreateBlueprintRequest>,
    ) -> Result<Response<v1::CreateBlueprintResponse>, tonic::Status> {
        let v1::CreateBlueprintRequest { principal, name, setup_commands, files, base, wait } =
            request.into_inner();
        let wait = convert::from_duration("wait_seconds", wait)?;
        let (commands, files, base) = (setup_commands, contents(files), convert::some(base));
        let new = NewBlueprint { principal, name, commands, files, base };
        let made = self.0.create_blueprint(new, wait).await?;
        Ok(Response::new(v1::CreateBlueprintResponse { blueprint: Some(blueprint(made)) }))
    }

    async fn get_blueprint(
        &self,
        request: Request<v1::GetBlueprintRequest>,
    ) -> Result<Response<v1::GetBlueprintResponse>, tonic::Status> {
        let found = self.0.blueprint(&request.into_inner().name).await?;
        Ok(Response::new(v1::GetBlueprintResponse { blueprint: Some(blueprint(found)) }))
    }

    async fn list_blueprints(
        &self,
        _request: Request<v1::ListBlueprintsRequest>,
    ) -> Result<Response<v1::ListBlueprintsResponse>, tonic::Status> {
        let without_log = |found: Blueprint| blueprint(Blueprint { log: String::new(), ..found });
        let blueprints = self.0.sandboxes.blueprints().await?.into_iter().map(without_log).collect();
        Ok(Response::new(v1::ListBlueprintsResponse { blueprints }))
    }

    async fn delete_blueprint(
        &self,
        request: Request<v1::DeleteBlueprintRequest>,
    ) -> Result<Response<v1::DeleteBlueprintResponse>, tonic::Status> {
        let v1::DeleteBlueprintRequest { principal, name } = request.into_inner();
        let (deleted, users) = self.0.sandboxes.delete_blueprint(&name).await?;
        tracing::info!(principal, blueprint = deleted.name, "deleted a blueprint");
        let (blueprint, used_by) = (Some(blueprint(deleted)), ids(&users));
        Ok(Response::new(v1::DeleteBlueprintResponse { blueprint, used_by }))
    }

    async fn run_code(
        &self,
        request: Request<v1::RunCodeRequest>,
    ) -> Result<Response<v1::RunCodeResponse>, tonic::Status> {
        let v1::RunCodeRequest { principal, command, files, env, timeout, wait, max_output_bytes, blueprint } =
            request.into_inner();
        let timeout = convert::from_duration("timeout_seconds", timeout)?;
        let job = NewJob::plain(principal.clone(), command, timeout);
        let new = NewSandbox::for_code(principal, env.into_iter().collect(), convert::some(blueprint));
        let wait = convert::from_duration("wait_seconds", wait)?;
        let max_bytes = convert::output_limit(max_output_bytes)?;
        let machine = &self.0;
        let is_busy = |id: &WorkspaceId| {
            !machine.jobs.living(Some(id)).is_empty() || !machine.terminals.living(Some(id)).is_empty()
        };
        let claim = machine.sandboxes.claim(new, is_busy).await?;
        let id = claim.id.to_string();
        let started = async {
            machine.write_files(&claim.id, &contents(files)).await?;
            let lease = machine.workspaces.enter(&id).await?;
            let mut started = machine.jobs.start(lease, job, wait, max_bytes).await?;
            let made = match started.job.end {
                Some(_) => machine.jobs.changed_files_soon(&started.job.id, COUNTING).await?,
                None => None,
            };
            started.job = machine.jobs.get(started.job.id.as_str()).await?;
            Ok::<_, Error>((started, made.unwrap_or_default().created))
        };
        match started.await {
            Ok((started, made)) => Ok(Response::new(v1::RunCodeResponse {
                sandbox_id: id,
                reused: claim.reused,
                started: Some(convert::started(started)),
                artifacts: made.first.into_iter().map(Into::into).collect(),
                artifact_count: made.count,
            })),
            Err(error) => {
                if !claim.reused {
                    machine.end_sandbox(&id, EndReason::Failed).await?;
                }
                Err(error.into())
            }
        }
    }
}

impl Service {
    fn wire(&self, sandbox: &Sandbox) -> v1::Sandbox {
        let enclosure = self.0.workspaces.enclosure();
        let limited = sandbox.isolation != NOT_ISOLATED;
        v1::Sandbox {
            sandbox_id: sandbox.id.to_string(),
            name: sandbox.name.clone().unwrap_or_default(),
            state: match sandbox.status() {
                Status::Running => v1::sandbox::State::Running,
                Status::Suspended => v1::sandbox::State::Suspended,
                Status::Shutdown => v1::sandbox::State::Shutdown,
            }
            .into(),
            metadata: sandbox.metadata.clone().into_iter().collect(),
            create_time: Some(convert::timestamp(sandbox.created)),
            expire_time: match (&sandbox.end, sandbox.remaining) {
                (Some((at, _)), _) => Some(convert::timestamp(*at)),
                (None, None) => Some(convert::timestamp(sandbox.expires)),
                (None, Some(_)) => None,
            },
            isolation: sandbox.isolation.clone(),
            notes: sandbox.notes.clone(),
            end_reason: sandbox.end.map(|(_, reason)| reason.name().to_owned()).unwrap_or_default(),
            blueprint: sandbox.blueprint.clone().unwrap_or_default(),
            snapshot_id: sandbox.snapshot_id.clone().unwrap_or_default(),
            remaining: sandbox.remaining.map(convert::duration),
            limits: limited.then(|| {
                let limits = enclosure.limits();
                v1::sandbox::Limits {
                    memory_bytes: limits.memory_bytes.unwrap_or_default(),
                    cpus: limits.cpus.unwrap_or_default(),
                    processes: limits.processes.unwrap_or_default(),
                }
            }),
        }
    }
}

fn contents(files: Vec<v1::SandboxFile>) -> Vec<(Vec<u8>, Vec<u8>)> {
    files.into_iter().map(|v1::SandboxFile { path, content }| (path.to_vec(), content.to_vec())).collect()
}

fn snapshot(snapshot: Snapshot) -> v1::Snapshot {
    v1::Snapshot {
        snapshot_id: snapshot.id.to_string(),
        name: snapshot.name.unwrap_or_default(),
        sandbox_id: snapshot.sandbox_id.to_string(),
        blueprint: snapshot.blueprint.unwrap_or_default(),
        size_bytes: snapshot.bytes,
        create_time: Some(convert::timestamp(snapshot.created)),
    }
}

fn blueprint(blueprint: Blueprint) -> v1::Blueprint {
    v1::Blueprint {
        blueprint_id: blueprint.id.to_string(),
        name: blueprint.name,
        state: match blueprint.state {
            BuildState::Building => v1::blueprint::State::Building,
            BuildState::Ready => v1::blueprint::State::Ready,
            BuildState::Failed => v1::blueprint::State::Failed,
        }
        .into(),
        setup_commands: blueprint.commands,
        files: blueprint.files,
        base: blueprint.base.unwrap_or_default(),
        size_bytes: blueprint.bytes,
        create_time: Some(convert::timestamp(blueprint.created)),
        end_time: blueprint.ended.map(convert::timestamp),
        log: blueprint.log,
    }
}

fn ids(ids: &[WorkspaceId]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}

/// What was begun is finished, though whoever asked may go away.
async fn finished<T: Send + 'static>(
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    tokio::spawn(work).await.map_err(|error| Error::internal("doing what was asked of a sandbox", error))?
}
