//! JobService.

use std::sync::Arc;

use runlet_proto::v1;
use runlet_proto::v1::job_service_server::JobService;
use tonic::{Request, Response, Status};

use super::convert;
use crate::error::Error;
use crate::job::{NewJob, ReadFrom, ReadRequest};
use crate::machine::Machine;
use crate::output::Stream;

pub(super) struct Service(pub Arc<Machine>);

#[tonic::async_trait]
impl JobService for Service {
    async fn start_job(
        &self,
        request: Request<v1::StartJobRequest>,
    ) -> Result<Response<v1::StartJobResponse>, Status> {
        let v1::StartJobRequest {
            principal,
            request_id,
            workspace_id,
            command,
            cwd,
            env,
            stdin,
            keep_stdin_open,
            timeout,
            separate_stderr,
            shell,
            wait,
            max_output_bytes,
        } = request.into_inner();
        let new = NewJob {
            principal,
            request_id: convert::some(request_id),
            command,
            cwd: cwd.into_bytes(),
            env: env.into_iter().collect(),
            stdin: stdin.map(Into::into),
            keep_stdin_open,
            timeout: convert::from_duration("timeout_seconds", timeout)?,
            separate_stderr,
            shell,
        };
        let wait = convert::from_duration("wait_seconds", wait)?;
        let max_bytes = convert::output_limit(max_output_bytes)?;
        let lease = self.0.workspaces.enter(&workspace_id).await?;
        let started = self.0.jobs.start(lease, new, wait, max_bytes).await?;
        Ok(Response::new(convert::started(started)))
    }

    async fn get_job(
        &self,
        request: Request<v1::GetJobRequest>,
    ) -> Result<Response<v1::GetJobResponse>, Status> {
        let v1::GetJobRequest { job_id } = request.into_inner();
        let job = self.0.jobs.get(&job_id).await?;
        Ok(Response::new(v1::GetJobResponse { job: Some(convert::job(job)) }))
    }

    async fn list_jobs(
        &self,
        request: Request<v1::ListJobsRequest>,
    ) -> Result<Response<v1::ListJobsResponse>, Status> {
        let state = request.get_ref().state();
        let v1::ListJobsRequest { workspace_id, state: _, page_size, page_token } = request.into_inner();
        let workspace = match workspace_id.as_str() {
            "" => None,
            id_or_name => Some(self.0.workspaces.get(id_or_name)?.id.clone()),
        };
        let size = convert::page_size(page_size)?;
        let before = convert::from_page_token(&page_token)?;
        let page = self.0.jobs.list(workspace.as_ref(), convert::from_job_state(state), size, before).await?;
        Ok(Response::new(v1::ListJobsResponse {
            jobs: page.jobs.into_iter().map(convert::job).collect(),
            next_page_token: convert::page_token(page.next),
        }))
    }

    async fn read_output(
        &self,
        request: Request<v1::ReadOutputRequest>,
    ) -> Result<Response<v1::ReadOutputResponse>, Status> {
        let stream = match request.get_ref().stream() {
            v1::Stream::Unspecified | v1::Stream::Output => Stream::Output,
            v1::Stream::Stderr => Stream::Stderr,
        };
        let v1::ReadOutputRequest { job_id, stream: _, start, max_output_bytes, wait, until, raw, files } =
            request.into_inner();
        let from = match start {
            None => ReadFrom::Cursor(0),
            Some(v1::read_output_request::Start::Cursor(cursor)) => ReadFrom::Cursor(cursor),
            Some(v1::read_output_request::Start::Tail(_)) => ReadFrom::Tail,
        };
        let read = ReadRequest {
            stream,
            from,
            max_bytes: convert::output_limit(max_output_bytes)?,
            wait: convert::from_duration("wait_seconds", wait)?,
            until,
            raw,
        };
        let (job, output, matched) = self.0.jobs.read(&job_id, read).await?;
        let changes = if files { self.0.jobs.changed_files(&job).await? } else { None };
        let total = match stream {
            Stream::Output => job.output_bytes,
            Stream::Stderr => job.stderr_bytes,
        };
        Ok(Response::new(v1::ReadOutputResponse {
            output: Some(convert::output(output, total, matched)),
            job: Some(convert::job(job)),
            files: changes.map(convert::changed_files),
        }))
    }

    async fn write_stdin(
        &self,
        request: Request<v1::WriteStdinRequest>,
    ) -> Result<Response<v1::WriteStdinResponse>, Status> {
        let v1::WriteStdinRequest { principal: _, job_id, data, close } = request.into_inner();
        self.expect_awake(&job_id).await?;
        let accepted = self.0.jobs.write_stdin(&job_id, &data, close).await?;
        Ok(Response::new(v1::WriteStdinResponse {
            accepted_bytes: u64::try_from(accepted).unwrap_or(u64::MAX),
            closed: close && accepted == data.len(),
        }))
    }

    async fn cancel_job(
        &self,
        request: Request<v1::CancelJobRequest>,
    ) -> Result<Response<v1::CancelJobResponse>, Status> {
        let v1::CancelJobRequest { principal, job_id, signal, grace } = request.into_inner();
        let grace = convert::from_duration("grace_seconds", grace)?;
        self.expect_awake(&job_id).await?;
        let jobs = Arc::clone(&self.0.jobs);
        // Whoever asked may go away; what was begun is finished.
        let cancelling = tokio::spawn(async move { jobs.cancel(&job_id, &signal, grace).await });
        let (job, ended_processes) =
            cancelling.await.map_err(|error| Error::internal("ending a job", error))??;
        tracing::info!(principal, job_id = %job.id, ended_processes, "cancelled a job");
        Ok(Response::new(v1::CancelJobResponse { job: Some(convert::job(job)), ended_processes }))
    }
}

impl Service {
    /// Fails for a job of a sandbox that stands still.
    async fn expect_awake(&self, job_id: &str) -> Result<(), Error> {
        self.0.workspaces.expect_awake(&self.0.jobs.get(job_id).await?.workspace_id)
    }
}
