//! TerminalService.

use std::sync::Arc;
use std::time::Duration;

use runlet_proto::v1;
use runlet_proto::v1::terminal_service_server::TerminalService;
use tonic::{Request, Response, Status};

use super::convert;
use crate::error::Error;
use crate::machine::Machine;
use crate::terminal::{Content, NewTerminal, ReadTerminal, Reading, Shown, Typed, View};

/// What a list tells of terminals that have ended.
const ENDED_SINCE: Duration = Duration::from_secs(86_400);
const ENDED_SHOWN: u32 = 50;

pub(super) struct Service(pub Arc<Machine>);

#[tonic::async_trait]
impl TerminalService for Service {
    async fn open_terminal(
        &self,
        request: Request<v1::OpenTerminalRequest>,
    ) -> Result<Response<v1::OpenTerminalResponse>, Status> {
        let v1::OpenTerminalRequest { principal, workspace_id, command, columns, rows, cwd, env, name } =
            request.into_inner();
        let new = NewTerminal {
            principal,
            name: convert::some(name),
            command,
            cwd: cwd.into_bytes(),
            env: env.into_iter().collect(),
            columns,
            rows,
        };
        let lease = self.0.workspaces.enter(&workspace_id).await?;
        let terminal = self.0.terminals.open(lease, new).await?;
        let reading = self.0.terminals.first_look(terminal).await?;
        Ok(Response::new(v1::OpenTerminalResponse { sight: Some(sight(reading)) }))
    }

    async fn send_input(
        &self,
        request: Request<v1::SendInputRequest>,
    ) -> Result<Response<v1::SendInputResponse>, Status> {
        let view = view(request.get_ref().view());
        let v1::SendInputRequest {
            principal: _,
            terminal_id,
            text,
            paste,
            keys,
            wait,
            until,
            view: _,
            max_output_bytes,
        } = request.into_inner();
        let look = ReadTerminal {
            view,
            cursor: None,
            wait: convert::from_duration("wait_seconds", wait)?,
            until,
            max_bytes: convert::output_limit(max_output_bytes)?,
        };
        let typed = Typed { text, paste, keys };
        self.expect_awake(&terminal_id).await?;
        let terminals = Arc::clone(&self.0.terminals);
        // Whoever typed may go away; what was begun is typed to its end.
        let sending = tokio::spawn(async move { terminals.send(&terminal_id, typed, look).await });
        let reading = sending.await.map_err(|error| Error::internal("typing into a terminal", error))??;
        let wide = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
        let (accepted_bytes, input_bytes) = (wide(reading.typed.0), wide(reading.typed.1));
        Ok(Response::new(v1::SendInputResponse { sight: Some(sight(reading)), accepted_bytes, input_bytes }))
    }

    async fn read_terminal(
        &self,
        request: Request<v1::ReadTerminalRequest>,
    ) -> Result<Response<v1::ReadTerminalResponse>, Status> {
        let view = view(request.get_ref().view());
        let v1::ReadTerminalRequest { terminal_id, view: _, cursor, wait, until, max_output_bytes } =
            request.into_inner();
        let look = ReadTerminal {
            view,
            cursor,
            wait: convert::from_duration("wait_seconds", wait)?,
            until,
            max_bytes: convert::output_limit(max_output_bytes)?,
        };
        let reading = self.0.terminals.read(&terminal_id, look).await?;
        Ok(Response::new(v1::ReadTerminalResponse { sight: Some(sight(reading)) }))
    }

    async fn resize_terminal(
        &self,
        request: Request<v1::ResizeTerminalRequest>,
    ) -> Result<Response<v1::ResizeTerminalResponse>, Status> {
        let v1::ResizeTerminalRequest { principal: _, terminal_id, columns, rows } = request.into_inner();
        self.expect_awake(&terminal_id).await?;
        let terminal = self.0.terminals.resize(&terminal_id, columns, rows).await?;
        Ok(Response::new(v1::ResizeTerminalResponse { terminal: Some(convert::terminal(terminal)) }))
    }

    async fn close_terminal(
        &self,
        request: Request<v1::CloseTerminalRequest>,
    ) -> Result<Response<v1::CloseTerminalResponse>, Status> {
        let v1::CloseTerminalRequest { principal, terminal_id } = request.into_inner();
        self.expect_awake(&terminal_id).await?;
        let terminals = Arc::clone(&self.0.terminals);
        // Whoever asked may go away; what was begun is finished.
        let closing = tokio::spawn(async move { terminals.close(&terminal_id).await });
        let closed = closing.await.map_err(|error| Error::internal("closing a terminal", error))??;
        tracing::info!(principal, terminal_id = %closed.terminal.id, "closed a terminal");
        Ok(Response::new(v1::CloseTerminalResponse {
            ended_processes: closed.ended_processes,
            terminal: Some(convert::terminal(closed.terminal)),
        }))
    }

    async fn list_terminals(
        &self,
        request: Request<v1::ListTerminalsRequest>,
    ) -> Result<Response<v1::ListTerminalsResponse>, Status> {
        let v1::ListTerminalsRequest { workspace_id } = request.into_inner();
        let workspace = match workspace_id.as_str() {
            "" => None,
            id_or_name => Some(self.0.workspaces.get(id_or_name)?.id.clone()),
        };
        let mut terminals = self.0.terminals.living(workspace.as_ref());
        let ended = self.0.terminals.ended(workspace.as_ref(), ENDED_SINCE, ENDED_SHOWN).await?;
        let is_new = |row: &crate::terminal::Terminal| !terminals.iter().any(|known| known.id == row.id);
        let ended: Vec<_> = ended.into_iter().filter(is_new).collect();
        terminals.extend(ended);
        Ok(Response::new(v1::ListTerminalsResponse {
            terminals: terminals.into_iter().map(convert::terminal).collect(),
        }))
    }
}

impl Service {
    /// Fails for a terminal of a sandbox that stands still.
    async fn expect_awake(&self, terminal_id: &str) -> Result<(), Error> {
        self.0.workspaces.expect_awake(&self.0.terminals.get(terminal_id).await?.workspace_id)
    }
}

fn view(view: v1::View) -> View {
    match view {
        v1::View::Unspecified | v1::View::Screen => View::Screen,
        v1::View::Output => View::Output,
        v1::View::Scrollback => View::Scrollback,
        v1::View::Image => View::Image,
        v1::View::Drawn => View::Drawn,
        v1::View::Raw => View::Raw,
    }
}

fn sight(reading: Reading) -> v1::Sight {
    let Reading { terminal, content, matched, typed: _ } = reading;
    let total = terminal.output_bytes;
    let content = match content {
        Content::Screen(shown) => v1::sight::Content::Screen(screen(shown)),
        Content::Output(output) => v1::sight::Content::Output(convert::output(output, total, matched)),
        Content::Image(png) => v1::sight::Content::Image(png.into()),
    };
    v1::Sight { terminal: Some(convert::terminal(terminal)), content: Some(content), matched }
}

fn screen(shown: Shown) -> v1::Screen {
    let Shown { text, cursor_row, cursor_column, cursor_visible, alternate, title, offset } = shown;
    v1::Screen { text, cursor_row, cursor_column, cursor_visible, alternate, title, offset }
}
