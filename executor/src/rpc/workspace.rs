//! WorkspaceService.

use std::sync::Arc;
use std::time::Duration;

use runlet_proto::v1;
use runlet_proto::v1::workspace_service_server::WorkspaceService;
use tonic::{Request, Response, Status};

use super::convert;
use crate::machine::Machine;
use crate::workspace::{Credential, GitSource, NewWorkspace};

pub(super) struct Service(pub Arc<Machine>);

#[tonic::async_trait]
impl WorkspaceService for Service {
    async fn create_workspace(
        &self,
        request: Request<v1::CreateWorkspaceRequest>,
    ) -> Result<Response<v1::CreateWorkspaceResponse>, Status> {
        let v1::CreateWorkspaceRequest { principal, request_id, name, git, env, python } =
            request.into_inner();
        let new = NewWorkspace {
            principal,
            request_id: convert::some(request_id),
            name: convert::some(name),
            git: git.map(git_source),
            env: env.into_iter().collect(),
            python,
            sandbox: None,
        };
        let patience = Duration::from_secs(self.0.config.create_wait_seconds);
        let made = self.0.workspaces.create(new, patience).await?;
        let workspace = Some(convert::workspace(&made, &self.0.drawn.isolation));
        Ok(Response::new(v1::CreateWorkspaceResponse { workspace }))
    }

    async fn list_workspaces(
        &self,
        request: Request<v1::ListWorkspacesRequest>,
    ) -> Result<Response<v1::ListWorkspacesResponse>, Status> {
        let v1::ListWorkspacesRequest { page_size, page_token } = request.into_inner();
        let size = usize::try_from(convert::page_size(page_size)?).unwrap_or(usize::MAX);
        let before = convert::from_page_token(&page_token)?.unwrap_or(i64::MAX);
        let mut rows: Vec<_> = self
            .0
            .workspaces
            .list()
            .into_iter()
            .filter(|row| row.seq < before && !row.sandbox)
            .take(size + 1)
            .collect();
        let more = rows.len() > size;
        rows.truncate(size);
        let next = if more { rows.last().map(|row| row.seq) } else { None };
        Ok(Response::new(v1::ListWorkspacesResponse {
            workspaces: rows.iter().map(|row| convert::workspace(row, &self.0.drawn.isolation)).collect(),
            next_page_token: convert::page_token(next),
        }))
    }

    async fn get_workspace(
        &self,
        request: Request<v1::GetWorkspaceRequest>,
    ) -> Result<Response<v1::GetWorkspaceResponse>, Status> {
        let v1::GetWorkspaceRequest { workspace_id } = request.into_inner();
        let found = self.0.workspaces.get(&workspace_id)?;
        let (disk, git) =
            tokio::join!(self.0.workspaces.disk_bytes(&found), self.0.workspaces.git_status(&found));
        let (disk_bytes, disk_bytes_partial) = disk?;
        Ok(Response::new(v1::GetWorkspaceResponse {
            workspace: Some(convert::workspace(&found, &self.0.drawn.isolation)),
            disk_bytes,
            live_job_ids: self.0.jobs.living(Some(&found.id)).iter().map(|job| job.id.to_string()).collect(),
            git_status: git?.map(|status| v1::get_workspace_response::GitStatus {
                branch: status.branch,
                commit: status.commit,
                changed_paths: status.changed_paths,
            }),
            disk_bytes_partial,
            live_terminal_ids: (self.0.terminals.living(Some(&found.id)).iter())
                .map(|terminal| terminal.id.to_string())
                .collect(),
        }))
    }

    async fn delete_workspace(
        &self,
        request: Request<v1::DeleteWorkspaceRequest>,
    ) -> Result<Response<v1::DeleteWorkspaceResponse>, Status> {
        let v1::DeleteWorkspaceRequest { principal, workspace_id } = request.into_inner();
        let deleted = self.0.delete_workspace(&workspace_id).await?;
        tracing::info!(principal, workspace_id = %deleted.workspace_id, "deleted a workspace");
        Ok(Response::new(v1::DeleteWorkspaceResponse {
            workspace_id: deleted.workspace_id.to_string(),
            ended_job_ids: deleted.ended_jobs.iter().map(ToString::to_string).collect(),
            ended_processes: deleted.ended_processes,
            removed_bytes: deleted.removed_bytes,
            ended_terminal_ids: deleted.ended_terminals.iter().map(ToString::to_string).collect(),
        }))
    }
}

fn git_source(source: v1::create_workspace_request::GitSource) -> GitSource {
    let v1::create_workspace_request::GitSource { url, r#ref, depth, credential } = source;
    GitSource {
        url,
        reference: convert::some(r#ref),
        depth: (depth > 0).then_some(depth),
        credential: convert::some(credential).map(Credential),
    }
}
