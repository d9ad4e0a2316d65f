//! `runlet`: starts the gateway and the executor that lie beside it, and tells what the machine offers. It links neither
//! of them.

mod clients;
mod doctor;
mod http;
mod token;
mod up;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Prints a line. Whoever reads may have enough of it, as `head` has; that is no reason to end.
fn say(line: &str) {
    use std::io::Write;
    let _unread = writeln!(std::io::stdout(), "{line}");
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
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Up(up) => up.run(),
        Command::Doctor(doctor) => doctor.run(),
    }
}
