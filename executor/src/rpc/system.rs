//! SystemService.

use std::collections::HashMap;
use std::sync::Arc;

use runlet_proto::v1;
use runlet_proto::v1::system_service_server::SystemService;
use tonic::{Request, Response, Status};

use super::convert;
use crate::machine::Machine;

/// Rows shown at most; the counts tell how many there are.
const WORKSPACES_SHOWN: usize = 100;
const ENDED_SHOWN: u32 = 50;

pub(super) struct Service(pub Arc<Machine>);

#[tonic::async_trait]
impl SystemService for Service {
    async fn get_overview(
        &self,
        request: Request<v1::GetOverviewRequest>,
    ) -> Result<Response<v1::GetOverviewResponse>, Status> {
        let v1::GetOverviewRequest { principal: _, since } = request.into_inner();
        let since = convert::from_duration("since_seconds", since)?;
        let machine = &self.0;
        let workspaces = machine.workspaces.list();
        let (ended, ended_job_count) = machine.jobs.ended(since, ENDED_SHOWN).await?;
        let ended_terminals = machine.terminals.ended(None, since, ENDED_SHOWN).await?;
        let shown = workspaces.iter().take(WORKSPACES_SHOWN);
        Ok(Response::new(v1::GetOverviewResponse {
            executor: Some(self.executor().await),
            workspaces: shown.map(|row| convert::workspace(row, &machine.drawn.isolation)).collect(),
            workspace_count: u32::try_from(workspaces.len()).unwrap_or(u32::MAX),
            live_jobs: machine.jobs.living(None).into_iter().map(convert::job).collect(),
            ended_jobs: ended.into_iter().map(convert::job).collect(),
            ended_job_count,
            live_terminals: machine.terminals.living(None).into_iter().map(convert::terminal).collect(),
            ended_terminals: ended_terminals.into_iter().map(convert::terminal).collect(),
        }))
    }
}

impl Service {
    async fn executor(&self) -> v1::get_overview_response::Executor {
        let machine = &self.0;
        let limits = [
            ("jobs", u64::try_from(machine.job_limit).unwrap_or(u64::MAX)),
            ("job_log_bytes", machine.config.job_log_bytes),
            ("logs_bytes", machine.config.logs_bytes),
            ("retention_seconds", machine.config.retention_seconds),
            ("file_bytes", machine.config.max_file_bytes),
            ("free_disk_bytes", machine.config.free_disk_bytes),
        ];
        let host = crate::host::describe();
        v1::get_overview_response::Executor {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            start_time: Some(convert::timestamp(machine.started)),
            os: host.os,
            kernel: host.kernel,
            cpus: host.cpus,
            memory_bytes: host.memory_bytes,
            free_disk_bytes: machine.root.free_bytes(),
            job_user: machine.identity.name.clone(),
            isolation: machine.drawn.isolation.clone(),
            gaps: machine.drawn.gaps.clone(),
            programs: machine.programs().await.clone().into_iter().collect::<HashMap<_, _>>(),
            limits: limits.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        }
    }
}
