//! `runlet-executor`: parses its settings, starts its log, runs.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use runlet_executor::config::Config;
use runlet_executor::error::Error;
use runlet_executor::process::sandbox;
use tracing_subscriber::EnvFilter;

/// Exit status for settings that can't be used (EX_USAGE of sysexits.h).
const UNUSABLE_SETTINGS: u8 = 64;

fn main() -> ExitCode {
    let config = Config::parse();
    if let Err(problem) = start_log(&config) {
        eprintln!("runlet-executor: RUNLET_LOG: {problem}");
        return ExitCode::from(UNUSABLE_SETTINGS);
    }
    let done = match &config {
        Config { draw_preview: Some(max_edge), .. } => runlet_executor::image::serve_as_helper(*max_edge),
        Config { enter_sandbox: Some(plan), .. } => sandbox::enter(plan),
        Config { sandbox_init: true, .. } => sandbox::serve(),
        Config { probe_isolation: true, .. } => report_isolation(&config),
        _ => runlet_executor::run(config),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error @ Error::InvalidArgument { .. }) => {
            eprintln!("runlet-executor: {error}");
            ExitCode::from(UNUSABLE_SETTINGS)
        }
        Err(error) => {
            eprintln!("runlet-executor: {error}");
            ExitCode::FAILURE
        }
    }
}

fn report_isolation(config: &Config) -> Result<(), Error> {
    let (drawn, no_sandboxes) = runlet_executor::probe_isolation(config)?;
    let sandboxes = no_sandboxes.unwrap_or_default();
    let lines: Vec<&str> =
        [&drawn.isolation, &sandboxes].into_iter().chain(&drawn.gaps).map(String::as_str).collect();
    writeln!(std::io::stdout(), "{}", lines.join("\n"))
        .map_err(|error| Error::internal("writing to standard output", error))
}

fn start_log(config: &Config) -> Result<(), String> {
    let filter = EnvFilter::try_new(&config.log).map_err(|error| error.to_string())?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match config.log_format.as_str() {
        "json" => log.json().flatten_event(true).init(),
        _ => log.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).init(),
    }
    Ok(())
}
