//! Workspaces, and the overview of all that lives.

use std::{collections::BTreeMap, time::Duration};

use runlet_proto::v1::{
    CreateWorkspaceRequest, DeleteWorkspaceRequest, GetOverviewRequest, GetWorkspaceRequest,
    ListWorkspacesRequest, Workspace, create_workspace_request::GitSource, workspace::State,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    ANSWER_TIME, Context, Effect, Offered, Tool, job::job_record, terminal::terminal_record,
    transfer::link_record,
};
use crate::{
    executor::{Repeat, system, workspaces},
    failure::Failure,
    reply::{Reply, fields, filled, time_text, wire_seconds},
};

pub(super) fn tools() -> Vec<Offered> {
    vec![
        Offered::new::<CreateWorkspace>("workspaces"),
        Offered::new::<ListWorkspaces>("workspaces"),
        Offered::new::<GetWorkspace>("workspaces"),
        Offered::new::<DeleteWorkspace>("workspaces"),
        Offered::new::<GetOverview>("workspaces"),
    ]
}

/// Cloning and removing take their time; the executor has limits of its own, which come first.
const LONG: Duration = Duration::from_secs(15 * 60);

/// Makes a workspace, empty or a git clone: a directory with its own HOME and Python environment, kept until
/// delete_workspace. A long clone comes back with status creating: see get_workspace.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CreateWorkspace {
    /// Works as id
    name: Option<String>,
    /// HTTPS
    git_url: Option<String>,
    /// Branch, tag or commit
    git_ref: Option<String>,
    #[schemars(range(min = 1))]
    git_depth: Option<u32>,
    /// Token or user:password; kept nowhere
    git_credential: Option<String>,
    env: Option<BTreeMap<String, String>>,
    #[serde(default = "python")]
    python: bool,
}

fn python() -> bool {
    true
}

impl Tool for CreateWorkspace {
    const NAME: &'static str = "create_workspace";
    const TITLE: &'static str = "Create a workspace";
    const EFFECT: Effect = Effect { open_world: true, ..Effect::ADDS };
    const RECORD: &'static [(&'static str, &'static str)] = &[("workspace_id", "string"), ("path", "string")];

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let git = match (self.git_url, &self.git_ref, self.git_depth, &self.git_credential) {
            (Some(url), ..) => Some(GitSource {
                url,
                r#ref: self.git_ref.unwrap_or_default(),
                depth: self.git_depth.unwrap_or_default(),
                credential: self.git_credential.unwrap_or_default(),
            }),
            (None, None, None, None) => None,
            (None, ..) => {
                return Err(Failure::argument(
                    "create_workspace: git_ref, git_depth and git_credential go with git_url, which is missing",
                ));
            }
        };
        let message = CreateWorkspaceRequest {
            principal: context.principal(),
            request_id: String::new(),
            name: self.name.unwrap_or_default(),
            git,
            env: self.env.unwrap_or_default().into_iter().collect(),
            python: self.python,
        };
        let send = |channel, request| async move { workspaces(channel).create_workspace(request).await };
        let answer = context.link.call(message, LONG, Repeat::Unsent, send).await?;
        Ok(Reply::Record(Value::Object(workspace_record(&answer.workspace.unwrap_or_default()))))
    }
}

/// Lists the workspaces that live, newest first.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListWorkspaces {
    #[serde(default = "page_size")]
    #[schemars(range(min = 1, max = 1000))]
    page_size: u32,
    page_token: Option<String>,
}

fn page_size() -> u32 {
    50
}

impl Tool for ListWorkspaces {
    const NAME: &'static str = "list_workspaces";
    const TITLE: &'static str = "List workspaces";
    const EFFECT: Effect = Effect::READS;
    const RECORD: &'static [(&'static str, &'static str)] = &[("workspaces", "array")];

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let message = ListWorkspacesRequest {
            page_size: self.page_size,
            page_token: self.page_token.unwrap_or_default(),
        };
        let send = |channel, request| async move { workspaces(channel).list_workspaces(request).await };
        let answer = context.link.call(message, ANSWER_TIME, Repeat::Always, send).await?;
        let rows: Vec<_> = answer.workspaces.iter().map(workspace_record).collect();
        Ok(Reply::Record(json!({ "workspaces": rows, "next_page_token": filled(answer.next_page_token) })))
    }
}

/// Shows a workspace with running jobs, terminals, disk use and git state.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GetWorkspace {
    workspace_id: String,
}

impl Tool for GetWorkspace {
    const NAME: &'static str = "get_workspace";
    const TITLE: &'static str = "Show a workspace";
    const EFFECT: Effect = Effect::READS;
    const RECORD: &'static [(&'static str, &'static str)] = &[("workspace_id", "string"), ("path", "string")];

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let message = GetWorkspaceRequest { workspace_id: self.workspace_id };
        let send = |channel, request| async move { workspaces(channel).get_workspace(request).await };
        let answer = context.link.call(message, ANSWER_TIME, Repeat::Always, send).await?;
        let mut record = workspace_record(&answer.workspace.unwrap_or_default());
        record.insert("disk_bytes".to_owned(), answer.disk_bytes.into());
        if answer.disk_bytes_partial {
            record.insert("disk_bytes_partial".to_owned(), true.into());
        }
        record.insert("running_jobs".to_owned(), answer.live_job_ids.into());
        record.insert("terminals".to_owned(), answer.live_terminal_ids.into());
        let git_status = answer.git_status.map(|status| {
            json!({
                "branch": filled(status.branch),
                "commit": filled(status.commit),
                "changed_paths": status.changed_paths,
            })
        });
        record.insert("git_status".to_owned(), git_status.into());
        Ok(Reply::Record(Value::Object(record)))
    }
}

/// Ends every process of a workspace and removes its files for good.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DeleteWorkspace {
    workspace_id: String,
}

impl Tool for DeleteWorkspace {
    const NAME: &'static str = "delete_workspace";
    const TITLE: &'static str = "Delete a workspace";
    const EFFECT: Effect = Effect::REMOVES;
    const RECORD: &'static [(&'static str, &'static str)] =
        &[("workspace_id", "string"), ("ended_jobs", "array")];

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let message =
            DeleteWorkspaceRequest { principal: context.principal(), workspace_id: self.workspace_id };
        let send = |channel, request| async move { workspaces(channel).delete_workspace(request).await };
        let answer = context.link.call(message, LONG, Repeat::Unsent, send).await?;
        Ok(Reply::Record(json!({
            "workspace_id": answer.workspace_id,
            "ended_jobs": answer.ended_job_ids,
            "ended_terminals": answer.ended_terminal_ids,
            "ended_processes": answer.ended_processes,
            "removed_bytes": answer.removed_bytes,
        })))
    }
}

/// Shows who you are, what this machine can do, its limits, what runs, links, and what ended lately. Call it first, or
/// when lost.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GetOverview {
    #[serde(default = "since_seconds")]
    #[schemars(range(min = 0, max = 604800))]
    since_seconds: u32,
}

fn since_seconds() -> u32 {
    3_600
}

impl Tool for GetOverview {
    const NAME: &'static str = "get_overview";
    const TITLE: &'static str = "Overview";
    const EFFECT: Effect = Effect::READS;
    const RECORD: &'static [(&'static str, &'static str)] =
        &[("executor", "object"), ("workspaces", "array"), ("running_jobs", "array")];

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let principal = context.principal();
        let message = GetOverviewRequest {
            principal: principal.clone(),
            since: Some(wire_seconds(self.since_seconds)),
        };
        let send = |channel, request| async move { system(channel).get_overview(request).await };
        let answer = context.link.call(message, ANSWER_TIME, Repeat::Always, send).await?;
        let executor = answer.executor.unwrap_or_default();
        let programs: BTreeMap<_, _> = executor.programs.into_iter().collect();
        let limits: BTreeMap<_, _> = executor.limits.into_iter().collect();
        Ok(Reply::Record(json!({
            "principal": principal,
            "executor": {
                "version": executor.version,
                "started_at": time_text(executor.start_time.as_ref()),
                "os": executor.os,
                "kernel": executor.kernel,
                "cpus": executor.cpus,
                "memory_bytes": executor.memory_bytes,
                "free_disk_bytes": executor.free_disk_bytes,
                "job_user": executor.job_user,
                "isolation": executor.isolation,
                "gaps": executor.gaps,
                "sandbox_isolation": executor.sandbox_isolation,
                "sandbox_gap": filled(executor.sandbox_gap),
                "programs": programs,
                "limits": limits,
            },
            "workspace_count": answer.workspace_count,
            "workspaces": answer.workspaces.iter().map(workspace_record).collect::<Vec<_>>(),
            "running_jobs": answer.live_jobs.iter().map(job_record).collect::<Vec<_>>(),
            "ended_job_count": answer.ended_job_count,
            "ended_jobs": answer.ended_jobs.iter().map(job_record).collect::<Vec<_>>(),
            "terminals": answer.live_terminals.iter().map(terminal_record).collect::<Vec<_>>(),
            "ended_terminals": answer.ended_terminals.iter().map(terminal_record).collect::<Vec<_>>(),
            "links": answer.links.iter().map(link_record).collect::<Vec<_>>(),
        })))
    }
}

fn workspace_record(workspace: &Workspace) -> Map<String, Value> {
    let status = match workspace.state() {
        State::Unspecified => "unknown",
        State::Creating => "creating",
        State::Ready => "ready",
        State::Deleting => "deleting",
        State::Failed => "failed",
        State::Suspended => "suspended",
    };
    let git = workspace
        .git
        .clone()
        .map(|git| json!({ "url": git.url, "ref": filled(git.r#ref), "commit": filled(git.commit) }));
    let python =
        workspace.python.clone().map(|python| json!({ "version": python.version, "venv": python.venv }));
    let object = json!({
        "workspace_id": workspace.workspace_id,
        "name": filled(workspace.name.clone()),
        "path": workspace.path,
        "home": workspace.home,
        "status": status,
        "created_at": time_text(workspace.create_time.as_ref()),
        "git": git,
        "python": python,
        "env": workspace.env_names,
        "isolation": workspace.isolation,
    });
    let mut record = fields(object);
    if !workspace.notes.is_empty() {
        record.insert("notes".to_owned(), workspace.notes.clone().into());
    }
    record
}
