//! SandboxService.

use std::sync::Arc;

use runlet_proto::v1;
use runlet_proto::v1::sandbox_service_server::SandboxService;
use tonic::{Request, Response, Status};

use super::convert;
use crate::error::Error;
use crate::file::{IfMatch, WriteOptions};
use crate::job::NewJob;
use crate::machine::{Deleted, Machine};
use crate::sandbox::{EndReason, NewSandbox, Sandbox};

pub(super) struct Service(pub Arc<Machine>);

#[tonic::async_trait]
impl SandboxService for Service {
    async fn create_sandbox(
        &self,
        request: Request<v1::CreateSandboxRequest>,
    ) -> Result<Response<v1::CreateSandboxResponse>, Status> {
        let v1::CreateSandboxRequest { principal, name, files, env, lifetime, metadata, loopback_only } =
            request.into_inner();
        let new = NewSandbox {
            principal,
            name: convert::some(name),
            env: env.into_iter().collect(),
            lifetime: convert::from_duration("lifetime_seconds", lifetime)?,
            metadata: metadata.into_iter().collect(),
            loopback_only,
        };
        let made = self.0.sandboxes.create(new).await?;
        if let Err(error) = self.write_files(made.id.as_str(), files).await {
            self.0.end_sandbox(made.id.as_str(), EndReason::Failed).await?;
            return Err(error.into());
        }
        Ok(Response::new(v1::CreateSandboxResponse { sandbox: Some(wire(&made)) }))
    }

    async fn get_sandbox(
        &self,
        request: Request<v1::GetSandboxRequest>,
    ) -> Result<Response<v1::GetSandboxResponse>, Status> {
        let found = self.0.sandboxes.get(&request.into_inner().sandbox_id).await?;
        Ok(Response::new(v1::GetSandboxResponse { sandbox: Some(wire(&found)) }))
    }

    async fn list_sandboxes(
        &self,
        request: Request<v1::ListSandboxesRequest>,
    ) -> Result<Response<v1::ListSandboxesResponse>, Status> {
        let ended = request.get_ref().state() == v1::sandbox::State::Shutdown;
        let metadata = request.into_inner().metadata.into_iter().collect();
        let found = self.0.sandboxes.list(ended, &metadata).await?;
        let sandboxes = found.iter().map(|sandbox| wire(sandbox)).collect();
        Ok(Response::new(v1::ListSandboxesResponse { sandboxes }))
    }

    async fn shutdown_sandbox(
        &self,
        request: Request<v1::ShutdownSandboxRequest>,
    ) -> Result<Response<v1::ShutdownSandboxResponse>, Status> {
        let v1::ShutdownSandboxRequest { principal, sandbox_id } = request.into_inner();
        let known = self.0.sandboxes.get(&sandbox_id).await?;
        if known.end.is_some() {
            let sandbox = Some(wire(&known));
            return Ok(Response::new(v1::ShutdownSandboxResponse { sandbox, ..Default::default() }));
        }
        let Deleted { ended_jobs, removed_bytes, sandbox, .. } =
            self.0.end_sandbox(known.id.as_str(), EndReason::Shutdown).await?;
        tracing::info!(principal, sandbox_id = %known.id, "shut down a sandbox");
        Ok(Response::new(v1::ShutdownSandboxResponse {
            sandbox: Some(wire(&sandbox.unwrap_or(known))),
            ended_job_ids: ended_jobs.iter().map(ToString::to_string).collect(),
            removed_bytes,
        }))
    }

    async fn run_code(
        &self,
        request: Request<v1::RunCodeRequest>,
    ) -> Result<Response<v1::RunCodeResponse>, Status> {
        let v1::RunCodeRequest { principal, command, files, env, timeout, wait, max_output_bytes } =
            request.into_inner();
        let new = NewJob {
            principal: principal.clone(),
            request_id: None,
            command,
            cwd: Vec::new(),
            env: std::collections::BTreeMap::new(),
            stdin: None,
            keep_stdin_open: false,
            timeout: convert::from_duration("timeout_seconds", timeout)?,
            separate_stderr: false,
            shell: String::new(),
        };
        let wait = convert::from_duration("wait_seconds", wait)?;
        let max_bytes = convert::output_limit(max_output_bytes)?;
        let machine = &self.0;
        let is_busy = |id: &crate::id::WorkspaceId| {
            !machine.jobs.living(Some(id)).is_empty() || !machine.terminals.living(Some(id)).is_empty()
        };
        let claim = machine.sandboxes.claim(principal, env.into_iter().collect(), is_busy).await?;
        let id = claim.id.to_string();
        let started = async {
            self.write_files(&id, files).await?;
            let lease = machine.workspaces.enter(&id).await?;
            machine.jobs.start(lease, new, wait, max_bytes).await
        };
        match started.await {
            Ok(started) => Ok(Response::new(v1::RunCodeResponse {
                sandbox_id: id,
                reused: claim.reused,
                started: Some(convert::started(started)),
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
    async fn write_files(&self, id: &str, files: Vec<v1::SandboxFile>) -> Result<(), Error> {
        for v1::SandboxFile { path, content } in files {
            let lease = self.0.workspaces.enter(id).await?;
            let options = WriteOptions { if_match: IfMatch::Any, executable: None };
            self.0.files.write(Arc::clone(&lease.root), path.to_vec(), content.to_vec(), options).await?;
        }
        Ok(())
    }
}

fn wire(sandbox: &Sandbox) -> v1::Sandbox {
    let Sandbox { id, seq: _, name, principal: _, metadata, created, expires, isolation, notes, end } =
        sandbox;
    v1::Sandbox {
        sandbox_id: id.to_string(),
        name: name.clone().unwrap_or_default(),
        state: match end {
            None => v1::sandbox::State::Running,
            Some(_) => v1::sandbox::State::Shutdown,
        }
        .into(),
        metadata: metadata.clone().into_iter().collect(),
        create_time: Some(convert::timestamp(*created)),
        expire_time: Some(convert::timestamp(end.map_or(*expires, |(at, _)| at))),
        isolation: isolation.clone(),
        notes: notes.clone(),
        end_reason: end.map(|(_, reason)| reason.name().to_owned()).unwrap_or_default(),
    }
}
