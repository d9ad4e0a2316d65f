//! The gateway with the tools that the official conformance suite calls, for that suite alone.

use std::process::ExitCode;

fn main() -> ExitCode {
    runlet_gateway::main(std::env::args_os(), std::env::var_os("SANDBOX_TOKEN"))
}
