//! The gateway program: the process around the library.

fn main() -> std::process::ExitCode {
    runlet_gateway::main(std::env::args_os(), std::env::var_os("SANDBOX_TOKEN"))
}
