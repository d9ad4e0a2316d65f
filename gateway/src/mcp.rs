//! The server as MCP sees it: what it is, how to work with it, its tools. HTTP and the executor lie on either side of
//! it.

use std::{convert::Infallible, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use http::request::Parts;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, InitializeResult,
        ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ProtocolVersion,
        ServerCapabilities, Tool,
    },
    service::RequestContext,
};
use tokio::time::{Instant, interval_at, sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    accept::Accept,
    auth::Principal,
    envelope::list_of_tools,
    executor::Link,
    failure::Failure,
    log::Facts,
    tools::{Context, Offered, Toolbox},
};

/// What every client is told, once: how the tools go together. Each tool says the rest itself.
const INSTRUCTIONS: &str = "\
Runlet gives you a Linux machine. Start with get_overview (also when you have lost track) or create_workspace; a workspace's name or \
id goes into every other call, and stays valid across sessions.

Work: run_command waits up to wait_seconds (at most 50). If the command is still running then, you get its job_id and a \
cursor; the command goes on. Follow it with read_output(job_id, cursor, wait_seconds=50), repeated with the next_cursor it \
names; `until` waits for a pattern, such as a server's ready line; wait_for waits for several jobs, ports or files. Start servers \
with wait_seconds=1. cancel_job ends a job with all it started; nothing else does, neither a dropped request nor the end of a session.

Commands have no terminal and an empty stdin; programs that need one go into open_terminal. Each call is a shell of its own, \
unless `shell` names a persistent one. A non-zero exit code is a normal result.

Long output comes as head and tail; the gap names the call that reads it. Ended jobs stay readable for 7 days.

Files: read_file, then edit_file with exact text, or apply_patch. Paths are relative to the work directory. Pass sha256 as if_match to be \
told when somebody else changed the file. create_download makes a link to a file for a person, create_upload one to send a file.

Errors have a code, a sentence and `next`, the call to make then. If an answer was lost, list_jobs shows what runs; \
request_id makes a repeat of run_command safe.";

/// Calls that are nearly over may end by themselves when the gateway stops.
const STOP_GRACE: Duration = Duration::from_secs(2);

const FIRST_PROGRESS: Duration = Duration::from_secs(1);
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// What the HTTP side knows of a request.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) principal: Principal,
    pub(crate) accept: Accept,
    /// Where the client reaches this server.
    pub(crate) base: Arc<str>,
    pub(crate) facts: Arc<Facts>,
}

/// The server.
#[derive(Clone)]
pub(crate) struct McpServer {
    pub(crate) toolbox: Arc<Toolbox>,
    pub(crate) link: Arc<Link>,
    pub(crate) stopping: CancellationToken,
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> InitializeResult {
        let mut info = InitializeResult::new(ServerCapabilities::builder().enable_tools().build());
        info.protocol_version = ProtocolVersion::V_2025_11_25;
        info.server_info = Implementation::new("runlet", env!("CARGO_PKG_VERSION"));
        info.instructions = Some(INSTRUCTIONS.to_owned());
        info
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        if request.is_some_and(|request| request.cursor.is_some()) {
            return Err(ErrorData::invalid_params(
                "cursor: the list of tools has one page, call without a cursor",
                None,
            ));
        }
        let modern = ProtocolVersion::V_2026_07_28;
        let is_modern = context.protocol_version().is_some_and(|version| version.as_str() >= modern.as_str());
        Ok(list_of_tools(self.toolbox.declarations(), is_modern))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.toolbox.find(name).map(|tool| tool.declaration.clone())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        #[cfg(feature = "conformance")]
        if let Some(result) = crate::conformance::call(&request.name, &context).await {
            return Ok(result.into());
        }
        let Some(tool) = self.toolbox.find(&request.name) else {
            let message = format!("no tool is named '{}'; tools/list names them", request.name);
            return Err(ErrorData::invalid_params(message, None));
        };
        let caller = context.extensions.get::<Parts>().and_then(|parts| parts.extensions.get::<Caller>());
        let Some(caller) = caller.cloned() else {
            return Err(ErrorData::internal_error("the request came without a caller", None));
        };
        let interrupted = async {
            tokio::select! {
                () = context.ct.cancelled() => Failure::cancelled(),
                never = report_progress(&context, caller.accept) => match never {},
            }
        };
        Ok(self.call(tool, request.arguments.unwrap_or_default(), &caller, interrupted).await.into())
    }
}

impl McpServer {
    /// Calls a tool, and notes what the log tells of it. The call ends when it is `interrupted` or the gateway stops; a
    /// panic becomes an error.
    pub(crate) async fn call(
        &self,
        tool: &Offered,
        arguments: rmcp::model::JsonObject,
        caller: &Caller,
        interrupted: impl Future<Output = Failure>,
    ) -> CallToolResult {
        let facts = &caller.facts;
        let workspace = arguments.get("workspace_id").and_then(|id| id.as_str()).filter(|id| is_loggable(id));
        if let Some(workspace) = workspace {
            facts.workspace.get_or_init(|| workspace.to_owned());
        }
        facts.tool.get_or_init(|| tool.declaration.name.clone().into_owned());
        let context = Context {
            link: Arc::clone(&self.link),
            principal: caller.principal.clone(),
            base: Arc::clone(&caller.base),
        };
        let stopped = async {
            self.stopping.cancelled().await;
            sleep(STOP_GRACE).await;
        };
        let result = tokio::select! {
            biased;
            result = AssertUnwindSafe(tool.call(Arc::new(context), arguments)).catch_unwind() => {
                result.unwrap_or_else(|_| Err(Failure::internal()))
            }
            failure = interrupted => Err(failure),
            () = stopped => Err(Failure::stopping()),
        };
        match result {
            Ok(reply) => reply.into_result(),
            Err(failure) => {
                facts.failure.get_or_init(|| failure.code);
                failure.into_result()
            }
        }
    }
}

/// Tells a client that wants to know that the call goes on. It would turn the answer into a stream of events, so a
/// client that does not take those is not told.
async fn report_progress(context: &RequestContext<RoleServer>, accept: Accept) -> Infallible {
    let Some(token) = context.meta.get_progress_token().filter(|_| accept.events) else {
        return std::future::pending().await;
    };
    let start = Instant::now();
    let mut ticks = interval_at(start + FIRST_PROGRESS, PROGRESS_INTERVAL);
    loop {
        ticks.tick().await;
        let elapsed = start.elapsed();
        let message = format!("waiting, {} s", elapsed.as_secs());
        let progress =
            ProgressNotificationParam::new(token.clone(), elapsed.as_secs_f64()).with_message(message);
        if context.peer.notify_progress(progress).await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// Whether a name given by a client may stand in the log.
fn is_loggable(id: &str) -> bool {
    id.len() <= 64 && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_short() {
        assert!(INSTRUCTIONS.chars().count() <= 1_700, "{}", INSTRUCTIONS.chars().count());
    }

    #[test]
    fn odd_names_do_not_reach_the_log() {
        assert!(is_loggable("ws_7f3k2m9qd4ra"));
        assert!(!is_loggable("a b"));
        assert!(!is_loggable("line\nbreak"));
    }
}
