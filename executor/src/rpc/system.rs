//! SystemService.

use std::collections::HashMap;
use std::sync::Arc;

use runlet_proto::v1;
use runlet_proto::v1::system_service_server::SystemService;
use tonic::{Request, Response, Status};

use super::convert;
use super::transfer::wire_link;
use crate::error::Error;
use crate::machine::Machine;
use crate::waiting::{Condition, Known};

/// Rows shown at most; the counts tell how many there are.
const WORKSPACES_SHOWN: usize = 100;
const ENDED_SHOWN: u32 = 50;
const LINKS_SHOWN: usize = 100;

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
            links: (machine.transfers.list(None).into_iter().take(LINKS_SHOWN).map(wire_link)).collect(),
            live_terminals: machine.terminals.living(None).into_iter().map(convert::terminal).collect(),
            ended_terminals: ended_terminals.into_iter().map(convert::terminal).collect(),
        }))
    }

    async fn wait_for(
        &self,
        request: Request<v1::WaitForRequest>,
    ) -> Result<Response<v1::WaitForResponse>, Status> {
        let v1::WaitForRequest { conditions, all, timeout } = request.into_inner();
        let conditions = conditions.into_iter().map(condition).collect::<Result<_, _>>()?;
        let timeout = convert::from_duration("timeout_seconds", timeout)?;
        let waited = self.0.wait_for(conditions, all, timeout).await?;
        let state = |known: Known| {
            let Known { held, possible, state } = known;
            v1::wait_for_response::State { held, possible, state }
        };
        Ok(Response::new(v1::WaitForResponse {
            satisfied: waited.satisfied,
            conditions: waited.conditions.into_iter().map(state).collect(),
            duration: Some(convert::duration(waited.duration)),
        }))
    }
}

fn condition(given: v1::Condition) -> Result<Condition, Error> {
    use v1::condition::{Kind, OutputMatches, WorkspacePath};
    Ok(match given.kind {
        Some(Kind::JobEnded(id)) => Condition::Ended(id),
        Some(Kind::OutputMatches(OutputMatches { id, regex })) => Condition::OutputMatches(id, regex),
        Some(Kind::PortOpen(port)) => {
            let port = u16::try_from(port).ok().filter(|port| *port > 0);
            Condition::PortOpen(
                port.ok_or_else(|| Error::invalid("port_open", "expected a port, 1 to 65535"))?,
            )
        }
        Some(Kind::PathExists(WorkspacePath { workspace_id, path })) => {
            Condition::PathExists(workspace_id, path.into())
        }
        Some(Kind::PathChanged(WorkspacePath { workspace_id, path })) => {
            Condition::PathChanged(workspace_id, path.into())
        }
        Some(Kind::Elapsed(time)) => Condition::Elapsed(convert::from_duration("seconds", Some(time))?),
        None => return Err(Error::invalid("conditions", "a condition is empty")),
    })
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
        let enclosure = machine.workspaces.enclosure();
        let (sandbox_isolation, sandbox_gap) = match enclosure.usable().await {
            Ok(found) => ("namespaces", found.gap.as_deref().unwrap_or_default()),
            Err(why) => ("none", why),
        };
        let more_gaps = [enclosure.unlimited_jobs(), enclosure.unenclosed().await];
        let more_gaps: Vec<String> = more_gaps.into_iter().flatten().collect();
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
            gaps: [machine.drawn.gaps.clone(), more_gaps].concat(),
            programs: machine.programs().await.clone().into_iter().collect::<HashMap<_, _>>(),
            limits: limits.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            sandbox_isolation: sandbox_isolation.to_owned(),
            sandbox_gap: sandbox_gap.to_owned(),
        }
    }
}
