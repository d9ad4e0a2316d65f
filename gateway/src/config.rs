//! The gateway's settings: read once, from flags and environment, and checked. Whatever is wrong is said here, naming
//! the setting.

use std::{ffi::OsString, net::SocketAddr, path::PathBuf};

use clap::{Parser, ValueEnum};

use crate::{auth::Tokens, hosts::HostRules, tools::Selection};

/// Flags and variables as given. `--help` is the reference.
#[derive(Debug, Parser)]
#[command(
    name = "runlet-gateway",
    version,
    about = "MCP over HTTP in front of a runlet-executor",
    after_help = "The token that clients must send comes from the environment variable SANDBOX_TOKEN, or from the file \
                  that --token-file names."
)]
struct Arguments {
    /// Address to listen on
    #[arg(long, env = "RUNLET_LISTEN", default_value = "127.0.0.1:8000")]
    listen: SocketAddr,
    /// File that holds the token
    #[arg(long, env = "SANDBOX_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// Where the executor listens: unix:/path/of/the/socket
    #[arg(long, env = "RUNLET_EXECUTOR", default_value = "unix:/run/runlet/executor.sock")]
    executor: String,
    /// File with the secret that the executor made at its start [default: the socket's path with `.secret` added]
    #[arg(long, env = "RUNLET_EXECUTOR_SECRET_FILE")]
    executor_secret_file: Option<PathBuf>,
    /// URL under which clients reach this gateway; links begin with it [default: http and the name a client calls by]
    #[arg(long, env = "RUNLET_PUBLIC_URL")]
    public_url: Option<String>,
    /// Host names to answer to, beside loopback names and that of the public URL
    #[arg(long, env = "RUNLET_ALLOWED_HOSTS", value_delimiter = ',')]
    allowed_hosts: Vec<String>,
    /// Origins of web pages that may call, beside those on loopback and the public URL's
    #[arg(long, env = "RUNLET_ALLOWED_ORIGINS", value_delimiter = ',')]
    allowed_origins: Vec<String>,
    /// Accept the token as `?api_key=` too, where it ends up in logs of proxies
    #[arg(long, env = "RUNLET_ALLOW_QUERY_TOKEN")]
    allow_query_token: bool,
    /// Tools to offer: sets (workspaces, jobs, files, links) or names of tools [default: all]
    #[arg(long, env = "RUNLET_TOOLSETS", value_delimiter = ',')]
    toolsets: Vec<String>,
    /// What to log, in the syntax of tracing's EnvFilter; rmcp logs errors only, unless it is named here
    #[arg(long, env = "RUNLET_LOG", default_value = "info")]
    log: String,
    /// Form of the log
    #[arg(long, env = "RUNLET_LOG_FORMAT", default_value = "text")]
    log_format: LogFormat,
    /// Largest request body in bytes
    #[arg(long, env = "RUNLET_MAX_BODY_BYTES", default_value_t = 16 << 20)]
    max_body_bytes: usize,
    /// Stop when standard input ends, as it does when the program that holds its other end is gone
    #[arg(long, hide = true)]
    stop_with_stdin: bool,
    /// Print the tools as JSON and exit
    #[arg(long)]
    print_tools: bool,
}

/// Form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// What the program is asked to do.
#[derive(Debug)]
pub enum Order {
    /// Serve.
    Serve(Box<Config>),
    /// Print the declarations of these tools.
    PrintTools(Selection),
    /// Print this text, of `--help` or `--version`.
    Print(String),
}

/// Checked settings.
#[derive(Debug)]
pub struct Config {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Tokens that are let in.
    pub tokens: Tokens,
    /// Whether `?api_key=` is looked at.
    pub allow_query_token: bool,
    /// Path of the executor's socket.
    pub executor_socket: PathBuf,
    /// Path of the file with the executor's secret.
    pub executor_secret_file: PathBuf,
    /// Host names and origins that are let in.
    pub host_rules: HostRules,
    /// Tools that are offered.
    pub tools: Selection,
    /// Largest request body in bytes.
    pub max_body_bytes: usize,
    /// Whether the end of standard input stops the gateway.
    pub stop_with_stdin: bool,
    /// What to log.
    pub log_filter: String,
    /// Form of the log.
    pub log_format: LogFormat,
}

/// A setting that is wrong. The text names it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

const LEAST_BODY_BYTES: usize = 64 << 10;
// A body and what goes with it must fit in a message to the executor.
const MOST_BODY_BYTES: usize = 16 << 20;

impl Order {
    /// Reads the settings from `arguments` (the program's name first), the environment, and `token`, the value of
    /// `SANDBOX_TOKEN`.
    ///
    /// # Errors
    ///
    /// The first setting that is wrong.
    pub fn read(
        arguments: impl IntoIterator<Item = OsString>,
        token: Option<OsString>,
    ) -> Result<Self, ConfigError> {
        let arguments = match Arguments::try_parse_from(arguments) {
            Ok(arguments) => arguments,
            Err(error) if !error.use_stderr() => return Ok(Self::Print(error.to_string())),
            Err(error) => return Err(ConfigError(error.to_string())),
        };
        let tools = Selection::parse(&filled(&arguments.toolsets)).map_err(ConfigError)?;
        if arguments.print_tools {
            return Ok(Self::PrintTools(tools));
        }
        arguments.checked(token, tools).map(|config| Self::Serve(Box::new(config)))
    }
}

impl Arguments {
    fn checked(self, token: Option<OsString>, tools: Selection) -> Result<Config, ConfigError> {
        let tokens = read_token(token, self.token_file.filter(|path| !path.as_os_str().is_empty()))?;
        let executor_socket = socket_path(&self.executor)?;
        let executor_secret_file =
            self.executor_secret_file.filter(|path| !path.as_os_str().is_empty()).unwrap_or_else(|| {
                let mut path = executor_socket.clone().into_os_string();
                path.push(".secret");
                path.into()
            });
        let public_url = self.public_url.as_deref().filter(|url| !url.is_empty());
        let host_rules =
            HostRules::new(public_url, &filled(&self.allowed_hosts), &filled(&self.allowed_origins))
                .map_err(ConfigError)?;
        if !(LEAST_BODY_BYTES..=MOST_BODY_BYTES).contains(&self.max_body_bytes) {
            return Err(ConfigError(format!(
                "RUNLET_MAX_BODY_BYTES: {} is out of range, expected {LEAST_BODY_BYTES} to {MOST_BODY_BYTES}",
                self.max_body_bytes
            )));
        }
        Ok(Config {
            listen: self.listen,
            tokens,
            allow_query_token: self.allow_query_token,
            executor_socket,
            executor_secret_file,
            host_rules,
            tools,
            max_body_bytes: self.max_body_bytes,
            stop_with_stdin: self.stop_with_stdin,
            log_filter: self.log,
            log_format: self.log_format,
        })
    }
}

/// Compose files pass a variable that is not set as an empty one.
fn filled(values: &[String]) -> Vec<String> {
    values.iter().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty()).collect()
}

fn read_token(variable: Option<OsString>, file: Option<PathBuf>) -> Result<Tokens, ConfigError> {
    let (source, token) = match (variable.filter(|value| !value.is_empty()), file) {
        (Some(_), Some(_)) => {
            return Err(ConfigError(
                "SANDBOX_TOKEN and SANDBOX_TOKEN_FILE are both set; set one of them".to_owned(),
            ));
        }
        (None, None) => {
            return Err(ConfigError(
                "SANDBOX_TOKEN is not set, nor SANDBOX_TOKEN_FILE; make a token with `openssl rand -hex 32`"
                    .to_owned(),
            ));
        }
        (Some(value), None) => ("SANDBOX_TOKEN".to_owned(), value.into_string().unwrap_or_default()),
        (None, Some(path)) => {
            let source = format!("SANDBOX_TOKEN_FILE {}", path.display());
            let token =
                std::fs::read_to_string(&path).map_err(|error| ConfigError(format!("{source}: {error}")))?;
            (source, token)
        }
    };
    Tokens::single(token.trim()).map_err(|problem| ConfigError(format!("{source}: {problem}")))
}

fn socket_path(executor: &str) -> Result<PathBuf, ConfigError> {
    let path = executor.strip_prefix("unix:").map(|path| path.strip_prefix("//").unwrap_or(path));
    match path.map(PathBuf::from) {
        Some(path) if path.is_absolute() => Ok(path),
        _ if executor.starts_with("https://") => Err(ConfigError(format!(
            "RUNLET_EXECUTOR: '{executor}': this version reaches an executor through a Unix socket only, \
             such as unix:/run/runlet/executor.sock"
        ))),
        _ => Err(ConfigError(format!(
            "RUNLET_EXECUTOR: '{executor}' is no address of an executor, such as unix:/run/runlet/executor.sock"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn read(flags: &[&str], token: Option<&str>) -> Result<Order, String> {
        let arguments = std::iter::once("runlet-gateway").chain(flags.iter().copied()).map(OsString::from);
        Order::read(arguments, token.map(OsString::from)).map_err(|error| error.to_string())
    }

    #[test]
    fn defaults() {
        let Ok(Order::Serve(config)) = read(&[], Some(TOKEN)) else { panic!("expected settings") };
        assert_eq!(config.listen, "127.0.0.1:8000".parse().unwrap());
        assert_eq!(config.executor_socket, PathBuf::from("/run/runlet/executor.sock"));
        assert_eq!(config.executor_secret_file, PathBuf::from("/run/runlet/executor.sock.secret"));
        assert_eq!(config.max_body_bytes, 16_777_216);
        assert!(!config.allow_query_token);
        assert!(!format!("{config:?}").contains(TOKEN));
    }

    #[test]
    fn wrong_settings_are_named() {
        for (flags, token, word) in [
            (&[][..], None, "SANDBOX_TOKEN"),
            (&[], Some(""), "SANDBOX_TOKEN"),
            (&[], Some("short"), "SANDBOX_TOKEN"),
            (&["--token-file=/nowhere/token"], None, "/nowhere/token"),
            (&["--token-file=/etc/hostname"], Some(TOKEN), "both set"),
            (&["--executor=https://vm:8443"], Some(TOKEN), "RUNLET_EXECUTOR"),
            (&["--executor=run.sock"], Some(TOKEN), "RUNLET_EXECUTOR"),
            (&["--toolsets=jobs,nonsense"], Some(TOKEN), "nonsense"),
            (&["--max-body-bytes=1"], Some(TOKEN), "RUNLET_MAX_BODY_BYTES"),
            (&["--listen=here"], Some(TOKEN), "--listen"),
        ] {
            let problem = read(flags, token).expect_err(word);
            assert!(problem.contains(word), "{flags:?}: {problem}");
        }
    }
}
