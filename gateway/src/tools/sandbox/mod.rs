//! Sandboxes: make one, run code in it, take files in and out, end it. Their names and arguments are those that agents
//! know from hosted services.

mod blueprint;
mod snapshot;

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use runlet_proto::v1::{
    CreateSandboxRequest, GetSandboxRequest, GetSandboxUsageRequest, ListSandboxesRequest,
    ResumeSandboxRequest, RunCodeRequest, Sandbox, SandboxFile, ShutdownSandboxRequest, StartJobRequest,
    SuspendSandboxRequest, sandbox::State, write_file_request::Header,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::{
    executor::{Repeat, jobs, sandboxes},
    failure::Failure,
    path,
    reply::{Reply, counted, fields, filled, seconds, time_text, wire_seconds},
    tools::{ANSWER_TIME, Context, Effect, Offered, Tool, file, job, with_wait},
};

pub(super) fn tools() -> Vec<Offered> {
    let own = vec![
        Offered::new::<RunCode>("sandboxes"),
        Offered::new::<CreateSandbox>("sandboxes"),
        Offered::new::<ListSandboxes>("sandboxes"),
        Offered::new::<GetSandbox>("sandboxes"),
        Offered::new::<ExecuteInSandbox>("sandboxes"),
        Offered::new::<UploadFile>("sandboxes"),
        Offered::new::<DownloadArtifact>("sandboxes"),
        Offered::new::<SuspendSandbox>("sandboxes"),
        Offered::new::<ResumeSandbox>("sandboxes"),
        Offered::new::<GetSandboxUsage>("sandboxes"),
        Offered::new::<ShutdownSandbox>("sandboxes"),
    ];
    own.into_iter().chain(snapshot::tools()).chain(blueprint::tools()).collect()
}

fn timeout_seconds() -> u32 {
    120
}

fn wait_seconds() -> u32 {
    50
}

/// Where the user of a sandbox is at home.
const HOME: &str = "/home/user";

/// Names of new files in the text of an answer.
const MOST_NAMED: usize = 20;

/// `[3 new files: /home/user/a, …]`
fn named(artifacts: &[String], count: u64) -> String {
    let shown = artifacts[..artifacts.len().min(MOST_NAMED)].join(", ");
    let more = if count > MOST_NAMED as u64 { ", …" } else { "" };
    format!("[{}: {shown}{more}]\n", counted(count, "new file"))
}

type Files = BTreeMap<String, String>;

fn wire_files(files: Option<Files>) -> Vec<SandboxFile> {
    let files = files.unwrap_or_default().into_iter();
    files
        .map(|(path, content)| SandboxFile { path: path::to_bytes(&path), content: content.into() })
        .collect()
}

/// Runs a command in a disposable sandbox, with files at /home/user. The sandbox is kept for the next call.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RunCode {
    #[schemars(length(min = 1))]
    command: String,
    /// Path → text
    files: Option<Files>,
    blueprint: Option<String>,
    /// Other variables take another sandbox
    env: Option<BTreeMap<String, String>>,
    #[serde(default = "timeout_seconds")]
    #[schemars(range(min = 1, max = 86400))]
    timeout_seconds: u32,
    #[serde(default = "wait_seconds")]
    #[schemars(range(min = 0, max = 50))]
    wait_seconds: u32,
}

impl Tool for RunCode {
    const NAME: &'static str = "run_code";
    const TITLE: &'static str = "Run code in a sandbox";
    const EFFECT: Effect = Effect { open_world: true, ..Effect::ADDS };

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let message = RunCodeRequest {
            principal: context.principal(),
            command: self.command,
            files: wire_files(self.files),
            env: self.env.unwrap_or_default().into_iter().collect(),
            timeout: Some(wire_seconds(self.timeout_seconds)),
            wait: Some(wire_seconds(self.wait_seconds)),
            max_output_bytes: job::max_output_bytes(),
            blueprint: self.blueprint.unwrap_or_default(),
        };
        let send = |channel, request| async move { sandboxes(channel).run_code(request).await };
        let limit = with_wait(self.wait_seconds) + ANSWER_TIME;
        let answer = context.link.call(message, limit, Repeat::Unsent, send).await?;
        let id = answer.sandbox_id;
        let which = if answer.reused { "used again" } else { "new" };
        let reply = job::started(&answer.started.unwrap_or_default());
        let Reply::Text(text, job) = reply else { return Ok(reply) };
        let artifacts: Vec<String> =
            answer.artifacts.iter().map(|path| format!("{HOME}/{}", String::from_utf8_lossy(path))).collect();
        let mut text = format!("sandbox {id}, {which}\n{text}");
        if !artifacts.is_empty() {
            text.push_str(&named(&artifacts, answer.artifact_count));
        }
        let object = json!({
            "sandbox_id": id,
            "reused": answer.reused,
            "job": job,
            "artifacts": artifacts,
            "artifact_count": answer.artifact_count,
        });
        Ok(Reply::Text(text, object))
    }
}

/// Makes a disposable machine: its own root, /home/user and /tmp, where package installs and rm -rf stay inside. Its id
/// works as workspace_id in every other tool.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CreateSandbox {
    /// Path → text
    files: Option<Files>,
    blueprint: Option<String>,
    snapshot_id: Option<String>,
    env: Option<BTreeMap<String, String>>,
    #[serde(default = "lifetime_seconds")]
    #[schemars(range(min = 60, max = 3600))]
    lifetime_seconds: u32,
    /// Works as id
    name: Option<String>,
    metadata: Option<BTreeMap<String, String>>,
    /// false: loopback only
    #[serde(default = "network")]
    network: bool,
}

fn lifetime_seconds() -> u32 {
    3600
}

fn network() -> bool {
    true
}

impl Tool for CreateSandbox {
    const NAME: &'static str = "create_sandbox";
    const TITLE: &'static str = "Create a sandbox";
    const EFFECT: Effect = Effect { open_world: true, ..Effect::ADDS };
    const RECORD: &'static [(&'static str, &'static str)] = &[("id", "string"), ("isolation", "string")];

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let message = CreateSandboxRequest {
            principal: context.principal(),
            name: self.name.unwrap_or_default(),
            files: wire_files(self.files),
            env: self.env.unwrap_or_default().into_iter().collect(),
            lifetime: Some(wire_seconds(self.lifetime_seconds)),
            metadata: self.metadata.unwrap_or_default().into_iter().collect(),
            loopback_only: !self.network,
            blueprint: self.blueprint.unwrap_or_default(),
            snapshot_id: self.snapshot_id.unwrap_or_default(),
        };
        let send = |channel, request| async move { sandboxes(channel).create_sandbox(request).await };
        let limit = with_wait(wait_seconds());
        let answer = context.link.call(message, limit, Repeat::Unsent, send).await?;
        Ok(record(&answer.sandbox.unwrap_or_default()))
    }
}

#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum Status {
    Running,
    Suspended,
    Shutdown,
}

/// Lists sandboxes that live, newest first; ended ones with status=shutdown.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListSandboxes {
    status: Option<Status>,
    /// Only those with all of these
    metadata: Option<BTreeMap<String, String>>,
}

impl Tool for ListSandboxes {
    const NAME: &'static str = "list_sandboxes";
    const TITLE: &'static str = "List sandboxes";
    const EFFECT: Effect = Effect::READS;
    const RECORD: &'static [(&'static str, &'static str)] = &[("sandboxes", "array")];

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let state = match self.status {
            None => State::Unspecified,
            Some(Status::Running) => State::Running,
            Some(Status::Suspended) => State::Suspended,
            Some(Status::Shutdown) => State::Shutdown,
        };
        let metadata = self.metadata.unwrap_or_default().into_iter().collect();
        let message = ListSandboxesRequest { state: state.into(), metadata };
        let send = |channel, request| async move { sandboxes(channel).list_sandboxes(request).await };
        let answer = context.link.call(message, ANSWER_TIME, Repeat::Always, send).await?;
        let rows: Vec<_> = answer.sandboxes.iter().map(object).collect();
        Ok(Reply::Record(json!({ "sandboxes": rows })))
    }
}

/// Shows a sandbox, also one that has ended.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GetSandbox {
    sandbox_id: String,
}

impl Tool for GetSandbox {
    const NAME: &'static str = "get_sandbox";
    const TITLE: &'static str = "Show a sandbox";
    const EFFECT: Effect = Effect::READS;
    const RECORD: &'static [(&'static str, &'static str)] = &[("id", "string"), ("status", "string")];

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let message = GetSandboxRequest { sandbox_id: self.sandbox_id };
        let send = |channel, request| async move { sandboxes(channel).get_sandbox(request).await };
        let answer = context.link.call(message, ANSWER_TIME, Repeat::Always, send).await?;
        Ok(record(&answer.sandbox.unwrap_or_default()))
    }
}

/// Runs a bash command in a sandbox, as run_command does in a workspace.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ExecuteInSandbox {
    sandbox_id: String,
    #[schemars(length(min = 1))]
    command: String,
    #[serde(default = "timeout_seconds")]
    #[schemars(range(min = 1, max = 86400))]
    timeout_seconds: u32,
    #[serde(default = "wait_seconds")]
    #[schemars(range(min = 0, max = 50))]
    wait_seconds: u32,
}

impl Tool for ExecuteInSandbox {
    const NAME: &'static str = "execute_in_sandbox";
    const TITLE: &'static str = "Run a command in a sandbox";
    const EFFECT: Effect = Effect { open_world: true, ..Effect::CHANGES };

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let message = StartJobRequest {
            principal: context.principal(),
            workspace_id: self.sandbox_id,
            command: self.command,
            timeout: Some(wire_seconds(self.timeout_seconds)),
            wait: Some(wire_seconds(self.wait_seconds)),
            max_output_bytes: job::max_output_bytes(),
            ..StartJobRequest::default()
        };
        let send = |channel, request| async move { jobs(channel).start_job(request).await };
        let answer = context.link.call(message, with_wait(self.wait_seconds), Repeat::Unsent, send).await?;
        Ok(job::started(&answer))
    }
}

/// Writes a file into a sandbox.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UploadFile {
    sandbox_id: String,
    file_path: String,
    /// base64
    content: String,
}

impl Tool for UploadFile {
    const NAME: &'static str = "upload_file";
    const TITLE: &'static str = "Upload a file";
    const EFFECT: Effect = Effect::REMOVES;
    const RECORD: &'static [(&'static str, &'static str)] = &[("sha256", "string")];

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let content = file::decoded(Self::NAME, &self.content)?;
        let header = Header {
            principal: context.principal(),
            workspace_id: self.sandbox_id,
            path: path::to_bytes(&self.file_path),
            length: content.len() as u64,
            ..Header::default()
        };
        file::write(context, header, content).await
    }
}

/// Returns a file of a sandbox as base64. create_download makes a link to a large one.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DownloadArtifact {
    sandbox_id: String,
    file_path: String,
}

impl Tool for DownloadArtifact {
    const NAME: &'static str = "download_artifact";
    const TITLE: &'static str = "Download a file";
    const EFFECT: Effect = Effect::READS;

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let content = file::read_whole(context, self.sandbox_id, &self.file_path).await?;
        let bytes = u64::try_from(content.len()).unwrap_or(u64::MAX);
        let sha256: String = Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
        let base64 = BASE64.encode(&content);
        let path = self.file_path;
        let text = format!("{path} · {} · sha256 {sha256} · base64\n{base64}\n", counted(bytes, "byte"));
        let object = json!({ "file_path": path, "bytes": bytes, "sha256": sha256, "content": base64 });
        Ok(Reply::Text(text, object))
    }
}

/// Freezes a sandbox with its processes and its lifetime. Its files survive a restart of the server.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SuspendSandbox {
    sandbox_id: String,
}

impl Tool for SuspendSandbox {
    const NAME: &'static str = "suspend_sandbox";
    const TITLE: &'static str = "Suspend a sandbox";
    const EFFECT: Effect = Effect::CHANGES;
    const RECORD: &'static [(&'static str, &'static str)] = &[("id", "string"), ("status", "string")];

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let message = SuspendSandboxRequest { principal: context.principal(), sandbox_id: self.sandbox_id };
        let send = |channel, request| async move { sandboxes(channel).suspend_sandbox(request).await };
        let answer = context.link.call(message, ANSWER_TIME, Repeat::Always, send).await?;
        Ok(record(&answer.sandbox.unwrap_or_default()))
    }
}

/// Lets a suspended sandbox go on.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ResumeSandbox {
    sandbox_id: String,
}

impl Tool for ResumeSandbox {
    const NAME: &'static str = "resume_sandbox";
    const TITLE: &'static str = "Resume a sandbox";
    const EFFECT: Effect = Effect::CHANGES;
    const RECORD: &'static [(&'static str, &'static str)] = &[("id", "string"), ("status", "string")];

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let message = ResumeSandboxRequest { principal: context.principal(), sandbox_id: self.sandbox_id };
        let send = |channel, request| async move { sandboxes(channel).resume_sandbox(request).await };
        let answer = context.link.call(message, with_wait(wait_seconds()), Repeat::Always, send).await?;
        Ok(record(&answer.sandbox.unwrap_or_default()))
    }
}

/// Tells what a sandbox uses: memory, disk and processes now, CPU time and the memory's peak in all.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GetSandboxUsage {
    sandbox_id: String,
}

impl Tool for GetSandboxUsage {
    const NAME: &'static str = "get_sandbox_usage";
    const TITLE: &'static str = "Show what a sandbox uses";
    const EFFECT: Effect = Effect::READS;
    const RECORD: &'static [(&'static str, &'static str)] = &[("now", "object"), ("in_all", "object")];

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let message = GetSandboxUsageRequest { sandbox_id: self.sandbox_id };
        let send = |channel, request| async move { sandboxes(channel).get_sandbox_usage(request).await };
        let answer = context.link.call(message, ANSWER_TIME, Repeat::Always, send).await?;
        let sandbox = answer.sandbox.unwrap_or_default();
        let used = answer.processes;
        Ok(Reply::Record(json!({
            "sandbox_id": sandbox.sandbox_id,
            "status": status_name(sandbox.state()),
            "limits": limits(&sandbox),
            "now": {
                "memory_bytes": used.as_ref().map(|used| used.memory_bytes),
                "disk_bytes": answer.disk_bytes,
                "disk_bytes_partial": answer.disk_partial,
                "processes": used.as_ref().map(|used| used.count),
            },
            "in_all": {
                "cpu_seconds": used.as_ref().and_then(|used| seconds(used.cpu.as_ref())),
                "peak_memory_bytes": used.as_ref().and_then(|used| used.peak_memory_bytes),
                "network_received_bytes": used.as_ref().and_then(|used| used.received_bytes),
                "network_sent_bytes": used.as_ref().and_then(|used| used.sent_bytes),
            },
        })))
    }
}

/// Ends a sandbox with its processes, and removes its data.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ShutdownSandbox {
    sandbox_id: String,
}

impl Tool for ShutdownSandbox {
    const NAME: &'static str = "shutdown_sandbox";
    const TITLE: &'static str = "Shut down a sandbox";
    const EFFECT: Effect = Effect::REMOVES;
    const RECORD: &'static [(&'static str, &'static str)] = &[("id", "string"), ("status", "string")];

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let message = ShutdownSandboxRequest { principal: context.principal(), sandbox_id: self.sandbox_id };
        let send = |channel, request| async move { sandboxes(channel).shutdown_sandbox(request).await };
        let answer = context.link.call(message, with_wait(wait_seconds()), Repeat::Always, send).await?;
        let mut record = object(&answer.sandbox.unwrap_or_default());
        record.insert("ended_jobs".to_owned(), answer.ended_job_ids.into());
        record.insert("removed_bytes".to_owned(), answer.removed_bytes.into());
        Ok(Reply::Record(Value::Object(record)))
    }
}

const fn status_name(state: State) -> &'static str {
    match state {
        State::Shutdown => "shutdown",
        State::Suspended => "suspended",
        State::Running | State::Unspecified => "running",
    }
}

fn limits(sandbox: &Sandbox) -> Option<Value> {
    let limits = sandbox.limits?;
    let cpus = Some(limits.cpus).filter(|cpus| *cpus > 0.0);
    Some(json!({ "memory_bytes": limits.memory_bytes, "cpus": cpus, "processes": limits.processes }))
}

fn record(sandbox: &Sandbox) -> Reply {
    Reply::Record(Value::Object(object(sandbox)))
}

fn object(sandbox: &Sandbox) -> Map<String, Value> {
    let object = json!({
        "id": sandbox.sandbox_id,
        "sandbox_id": sandbox.sandbox_id,
        "name": filled(sandbox.name.clone()),
        "status": status_name(sandbox.state()),
        "blueprint": filled(sandbox.blueprint.clone()),
        "snapshot_id": filled(sandbox.snapshot_id.clone()),
        "metadata": sandbox.metadata,
        "created_at": time_text(sandbox.create_time.as_ref()),
        "expires_at": time_text(sandbox.expire_time.as_ref()),
        "remaining_seconds": seconds(sandbox.remaining.as_ref()),
        "isolation": sandbox.isolation,
        "limits": limits(sandbox),
        "end_reason": filled(sandbox.end_reason.clone()),
        "notes": sandbox.notes,
    });
    fields(object)
}
