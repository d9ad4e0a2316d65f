//! `runlet`: starts the gateway and the executor that lie beside it, and tells what the machine offers. It links neither
//! of them. And it shows a person what agents run, by the gateway that agents use.

mod attach;
mod clients;
mod doctor;
mod gateway;
mod logs;
mod mcp;
mod patience;
mod ps;
mod token;
mod up;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::gateway::Failure;

/// Prints a line. Whoever reads may have enough of it, as `head` has; that is no reason to end.
fn say(line: &str) {
    use std::io::Write;
    let _unread = writeln!(std::io::stdout(), "{line}");
}

/// Prints a line to standard error, which may be closed as well.
fn warn(line: &str) {
    use std::io::Write;
    let _unread = writeln!(std::io::stderr(), "runlet: {line}");
}

/// Exit status for arguments that can't be used, as clap has it.
const BAD_USAGE: u8 = 2;

/// Runs what talks to a gateway, and tells how it failed.
fn talk(work: impl Future<Output = Result<ExitCode, Failure>>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => {
            let outcome = runtime.block_on(work);
            // What a thread still waits for is of no use to anybody.
            runtime.shutdown_background();
            outcome
        }
        Err(error) => Err(Failure::Unusable(format!("starting: {error}"))),
    };
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            warn(&failure.to_string());
            let is_usage = matches!(failure, Failure::Usage(_));
            if is_usage { ExitCode::from(BAD_USAGE) } else { ExitCode::FAILURE }
        }
    }
}

/// A self-hosted Linux machine for coding agents, over MCP.
#[derive(Debug, Parser)]
#[command(name = "runlet", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start the gateway and the executor on this machine, print how to connect, and run until Ctrl-C
    Up(up::Up),
    /// Check what this machine offers, and say what each lack costs
    Doctor(doctor::Doctor),
    /// List the jobs and terminals that run
    Ps(ps::Ps),
    /// Print the output of a job or a terminal, and follow it
    Logs(logs::Logs),
    /// Take over a terminal: see what it shows and type into it, beside the agent that uses it
    Attach(attach::Attach),
    /// Serve MCP on standard input and output, for clients that start their servers as programs
    Mcp(mcp::Mcp),
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Up(up) => up.run(),
        Command::Doctor(doctor) => doctor.run(),
        Command::Ps(ps) => talk(ps.run()),
        Command::Logs(logs) => talk(logs.run()),
        Command::Attach(attach) => talk(attach.run()),
        Command::Mcp(mcp) => talk(mcp.run()),
    }
}
