//! The gateway: MCP over HTTP in front of an executor. It keeps no state between requests, starts no process and opens
//! no data: everything that lives is the executor's.

mod accept;
mod answer;
mod auth;
mod config;
#[cfg(feature = "conformance")]
mod conformance;
mod connection;
mod disposition;
mod downloads;
mod envelope;
mod executor;
mod failure;
mod hosts;
mod http;
mod log;
mod mcp;
mod path;
mod ranges;
mod reply;
mod server;
mod slow;
mod tools;
mod uploads;

use std::{
    ffi::OsString,
    io::{self, Write as _},
    os::fd::AsFd as _,
    process::ExitCode,
    sync::Arc,
};

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

pub use crate::{
    auth::{MIN_TOKEN_CHARS, Principal, Tokens},
    config::{Config, ConfigError, LogFormat, Order},
    hosts::HostRules,
    tools::Selection,
};

/// Exit code for settings that are wrong, as in sysexits.h.
const EX_USAGE: u8 = 64;

/// The whole program: reads the settings from `arguments`, the environment and `token` (the value of `SANDBOX_TOKEN`),
/// and serves until it is told to stop. The exit code is 64 when a setting is wrong, 1 when serving failed.
#[must_use]
pub fn main(arguments: impl IntoIterator<Item = OsString>, token: Option<OsString>) -> ExitCode {
    let order = match Order::read(arguments, token) {
        Ok(order) => order,
        Err(error) => return complain(&error.to_string(), EX_USAGE),
    };
    match order {
        Order::Print(text) => print(&text),
        Order::PrintTools(selection) => print(&printed_tools(&selection)),
        Order::Serve(config) => match log::init(&config.log_filter, config.log_format) {
            Err(problem) => complain(&problem, EX_USAGE),
            Ok(()) => match run(&config) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => complain(&error.to_string(), 1),
            },
        },
    }
}

fn complain(problem: &str, code: u8) -> ExitCode {
    let _written = writeln!(io::stderr(), "runlet-gateway: {}", problem.trim_end());
    ExitCode::from(code)
}

fn print(text: &str) -> ExitCode {
    match writeln!(io::stdout(), "{}", text.trim_end()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// The declarations of the tools as JSON.
fn printed_tools(selection: &Selection) -> String {
    let tools = tools::Toolbox::new(selection).declarations();
    serde_json::to_string_pretty(&tools).unwrap_or_default()
}

/// Serves until SIGTERM or SIGINT; a second one ends it at once.
fn run(config: &Config) -> io::Result<()> {
    // Keeps the token, which may be in the environment, from other processes of this user, and out of core files.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        let listener = TcpListener::bind(config.listen).await.map_err(|error| {
            io::Error::new(error.kind(), format!("can't listen on {}: {error}", config.listen))
        })?;
        let stop = CancellationToken::new();
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut serving = tokio::spawn(serve(listener, config, stop.clone())?);
        let mut parent_gone = Box::pin(end_of_stdin(config.stop_with_stdin));
        for seen in 0.. {
            tokio::select! {
                ended = &mut serving => return ended.map_err(io::Error::other),
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                () = &mut parent_gone, if seen == 0 => {}
            }
            if seen > 0 {
                break;
            }
            tracing::info!("stopping");
            stop.cancel();
        }
        Ok(())
    })
}

/// Resolves when standard input, a pipe, has ended; never, unless that is to be watched.
async fn end_of_stdin(watched: bool) {
    if watched
        && let Ok(stdin) = io::stdin().as_fd().try_clone_to_owned()
        && let Ok(pipe) = tokio::net::unix::pipe::Receiver::from_owned_fd(stdin)
    {
        let mut buffer = [0; 64];
        while pipe.readable().await.is_ok() {
            match pipe.try_read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(read) if read > 0 => {}
                _ => return,
            }
        }
        return;
    }
    std::future::pending().await
}

/// Serves on `listener` until `stop` is cancelled; then ends waits, lets what is under way end within 10 s, and returns.
///
/// # Errors
///
/// When the listener is broken.
pub fn serve(
    listener: TcpListener,
    config: &Config,
    stop: CancellationToken,
) -> io::Result<impl Future<Output = ()> + Send + use<>> {
    let address = listener.local_addr()?;
    let gateway = Arc::new(http::Gateway::new(config, stop.clone())?);
    tracing::info!(
        %address,
        version = env!("CARGO_PKG_VERSION"),
        executor = %config.executor_socket.display(),
        hosts = config.host_rules.hosts().join(", "),
        "serving"
    );
    Ok(server::serve(listener, gateway.router(), stop))
}
