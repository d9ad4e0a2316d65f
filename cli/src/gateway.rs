//! The gateway as a person's commands use it: the endpoint and the token that agents have, the tools that agents call. It
//! tries nothing twice; whoever calls knows whether that is safe.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use reqwest::{StatusCode, Url, redirect};
use serde_json::{Value, json};

use crate::token::{self, Found};

/// How long a connection may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// How much longer than its wait a call may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// Longest wait of a call, in seconds.
pub(crate) const LONGEST_WAIT: u64 = 50;

/// Where the gateway is, and what it is shown.
#[derive(Debug, Args)]
pub(crate) struct Connection {
    /// Address of the gateway
    #[arg(long, env = "RUNLET_URL", default_value = "http://127.0.0.1:8000")]
    url: String,
    /// File that holds the token; without it SANDBOX_TOKEN, then SANDBOX_TOKEN_FILE, then the file that `runlet up` keeps
    #[arg(long)]
    token_file: Option<PathBuf>,
    /// Directory of all data, where `runlet up` keeps the token
    #[arg(long, env = "SANDBOX_ROOT", default_value = "./var")]
    pub(crate) root: PathBuf,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// What the person gave can't be used.
    #[error("{0}")]
    Usage(String),
    /// The gateway or its executor is away for now.
    #[error("{message}")]
    Away {
        message: String,
        /// The call may have got there.
        arrived: bool,
    },
    /// A tool's error, by its code.
    #[error("{message}")]
    Refused { code: String, message: String },
    /// The same call would fail again.
    #[error("{0}")]
    Unusable(String),
}

/// A client of one gateway.
#[derive(Debug, Clone)]
pub(crate) struct Gateway {
    http: reqwest::Client,
    endpoint: Url,
    token: HeaderValue,
    /// Where the token is from, for whoever has to look there.
    token_source: String,
}

impl Connection {
    /// A client. Nothing is sent yet.
    pub(crate) fn open(&self) -> Result<Gateway, Failure> {
        self.open_at(&self.url)
    }

    /// A client of the gateway at another address.
    pub(crate) fn open_at(&self, url: &str) -> Result<Gateway, Failure> {
        let endpoint = endpoint(url)?;
        let Found { token, source } =
            token::find(self.token_file.as_deref(), &self.root).map_err(Failure::Usage)?;
        let mut token = HeaderValue::from_str(&token).map_err(|_| {
            Failure::Usage(format!("{source}: expected a token of printable characters in one line"))
        })?;
        token.set_sensitive(true);
        let http = client(&endpoint).map_err(|error| {
            let cause = innermost(&error);
            Failure::Unusable(format!("can't speak TLS: {cause}; install the package ca-certificates"))
        })?;
        Ok(Gateway { http, endpoint, token, token_source: source })
    }
}

/// An HTTP client. Redirects would carry the token elsewhere, and a proxy does not know this machine's loopback.
pub(crate) fn client(url: &Url) -> reqwest::Result<reqwest::Client> {
    // Fails where one is installed already, which is as good.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let mut builder = reqwest::Client::builder()
        .connect_timeout(CONNECT_LIMIT)
        .redirect(redirect::Policy::none())
        .user_agent(concat!("runlet/", env!("CARGO_PKG_VERSION")));
    if is_loopback(url) {
        builder = builder.no_proxy();
    }
    if url.scheme() == "http" {
        // A machine without certificates of authorities has no need of them.
        builder = builder.tls_certs_only([]);
    }
    builder.build()
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The endpoint of MCP, given with its path or without.
fn endpoint(url: &str) -> Result<Url, Failure> {
    let expected = |problem: &str| {
        Failure::Usage(format!("--url {url:?}: {problem}; expected such as http://127.0.0.1:8000"))
    };
    let mut parsed = Url::parse(url).map_err(|error| expected(&error.to_string()))?;
    if !matches!(parsed.scheme(), "http" | "https") || !parsed.has_host() {
        return Err(expected("not an address of HTTP"));
    }
    let path = parsed.path().trim_end_matches('/');
    let path = if path.ends_with("/mcp") { path.to_owned() } else { format!("{path}/mcp") };
    parsed.set_path(&path);
    Ok(parsed)
}

impl Gateway {
    /// Calls a tool and returns its object. The answer may take as long as `wait_seconds` among the arguments says.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Result<Value, Failure> {
        let wait = Duration::from_secs(arguments["wait_seconds"].as_u64().unwrap_or_default());
        let params = json!({ "name": tool, "arguments": arguments });
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let request = self.post(message.to_string()).timeout(wait + ANSWER_LIMIT);
        let response = request.send().await.map_err(|error| self.unreached(&error))?;
        let status = response.status();
        let body = response.text().await.map_err(|error| self.unreached(&error))?;
        self.understand(status, &body)
    }

    /// A request with a message of JSON-RPC.
    pub(crate) fn post(&self, message: String) -> reqwest::RequestBuilder {
        self.http
            .post(self.endpoint.clone())
            .header("X-Sandbox-Token", self.token.clone())
            .header(ACCEPT, "application/json, text/event-stream")
            .header(CONTENT_TYPE, "application/json")
            .body(message)
    }

    /// The items of all pages of a tool that lists.
    pub(crate) async fn all(&self, tool: &str, key: &str, arguments: Value) -> Result<Vec<Value>, Failure> {
        self.pages(tool, key, arguments, |_| true).await
    }

    /// The items of pages, as long as there are more and `goes_on` says so of the last one.
    pub(crate) async fn pages(
        &self,
        tool: &str,
        key: &str,
        mut arguments: Value,
        goes_on: impl Fn(&[Value]) -> bool,
    ) -> Result<Vec<Value>, Failure> {
        arguments["page_size"] = json!(1_000);
        let mut all = Vec::new();
        loop {
            let mut answer = self.call(tool, arguments.clone()).await?;
            let Value::Array(items) = answer[key].take() else { return Ok(all) };
            let more = goes_on(&items);
            all.extend(items);
            arguments["page_token"] = answer["next_page_token"].take();
            if !more || arguments["page_token"].is_null() {
                return Ok(all);
            }
        }
    }

    /// The address as the person knows it.
    pub(crate) fn address(&self) -> String {
        self.endpoint.as_str().trim_end_matches("/mcp").to_owned()
    }

    /// Why nothing came of a request.
    pub(crate) fn unreached(&self, error: &reqwest::Error) -> Failure {
        let (url, cause) = (self.address(), innermost(error));
        if cause.contains("certificate") {
            return Failure::Unusable(format!(
                "{url} can't be trusted ({cause}); SSL_CERT_FILE can name the certificates of further authorities"
            ));
        }
        if error.is_connect() {
            let message = format!(
                "no gateway answers at {url} ({cause}); start one with `runlet up`, or name another with --url"
            );
            return Failure::Away { message, arrived: false };
        }
        Failure::Away {
            message: format!("the gateway at {url} broke off ({cause}); see whether it still runs"),
            arrived: true,
        }
    }

    fn understand(&self, status: StatusCode, body: &str) -> Result<Value, Failure> {
        let url = self.address();
        let mut answer = message_in(body).unwrap_or_default();
        if answer["result"].is_object() {
            return object_of(answer["result"].take());
        }
        let said = answer["error"]["message"].as_str().or(answer["message"].as_str()).unwrap_or_default();
        match status {
            StatusCode::UNAUTHORIZED => Err(Failure::Unusable(format!(
                "the gateway at {url} does not take the token from {}; give the right one with --token-file",
                self.token_source
            ))),
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
                let message = format!("the gateway at {url} is away (HTTP {}); try again", status.as_u16());
                Err(Failure::Away { message, arrived: true })
            }
            _ if said.is_empty() => Err(Failure::Unusable(format!(
                "what answers at {url} is no gateway of Runlet (HTTP {}); name another address with --url",
                status.as_u16()
            ))),
            _ => Err(Failure::Unusable(format!("the gateway at {url} refused the call: {said}"))),
        }
    }
}

/// The message of JSON-RPC in a body, which may be an event stream.
fn message_in(body: &str) -> Option<Value> {
    let data = body.lines().filter_map(|line| line.strip_prefix("data:"));
    let parsed = std::iter::once(body).chain(data).filter_map(|part| serde_json::from_str(part.trim()).ok());
    parsed.into_iter().find(|message: &Value| ["result", "error"].iter().any(|key| !message[*key].is_null()))
}

/// The object of a tool's result.
fn object_of(mut result: Value) -> Result<Value, Failure> {
    let object = match result["structuredContent"].take() {
        Value::Null => result["_meta"]["runlet/result"].take(),
        object => object,
    };
    if result["isError"] != true {
        return Ok(object);
    }
    let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
    let (code, mut message) = (text("code"), text("message"));
    if message.is_empty() {
        message = result["content"][0]["text"].as_str().unwrap_or("the tool failed").to_owned();
    }
    match code.as_str() {
        "EXECUTOR_UNAVAILABLE" | "SHUTTING_DOWN" => {
            let message = format!("{message}; if it stays so, see whether runlet-executor runs");
            Err(Failure::Away { message, arrived: true })
        }
        "GATEWAY_STOPPING" => Err(Failure::Away { message, arrived: true }),
        "JOB_NOT_FOUND" | "TERMINAL_NOT_FOUND" => {
            Err(Failure::Refused { code, message: message + "; `runlet ps -a` shows what there is" })
        }
        "WORKSPACE_NOT_FOUND" => {
            Err(Failure::Refused { code, message: message + "; `runlet ps` shows the workspaces in use" })
        }
        _ => Err(Failure::Refused { code, message }),
    }
}

/// What is at the bottom of an error.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_with_its_path_or_without() {
        for (given, expected) in [
            ("http://127.0.0.1:8000", "http://127.0.0.1:8000/mcp"),
            ("http://127.0.0.1:8000/mcp", "http://127.0.0.1:8000/mcp"),
            ("https://example.org/agents/", "https://example.org/agents/mcp"),
        ] {
            assert_eq!(endpoint(given).unwrap().as_str(), expected);
        }
        for bad in ["127.0.0.1:8000", "ftp://example.org", "", "http://"] {
            let Err(Failure::Usage(problem)) = endpoint(bad) else { panic!("{bad:?} was taken") };
            assert!(problem.contains("--url"), "{problem}");
        }
    }

    #[test]
    fn loopback_is_told_from_other_hosts() {
        let is = |url: &str| is_loopback(&Url::parse(url).unwrap());
        assert!(is("http://127.0.0.1:1") && is("http://[::1]:1") && is("http://localhost"));
        assert!(!is("http://10.0.0.1") && !is("http://localhost.example.org"));
    }

    #[test]
    fn a_message_is_found_in_json_and_in_an_event_stream() {
        let message = json!({ "result": { "structuredContent": { "a": 1 } } });
        for body in [message.to_string(), format!(": wait\n\nevent: message\ndata: {message}\n\n")] {
            assert_eq!(object_of(message_in(&body).unwrap()["result"].take()).unwrap(), json!({ "a": 1 }));
        }
        assert_eq!(message_in("<html>"), None);
    }

    #[test]
    fn errors_of_tools_are_told_for_a_person() {
        let failed = |code: &str| {
            let error = json!({ "code": code, "message": "it failed" });
            object_of(json!({ "isError": true, "_meta": { "runlet/result": error } })).unwrap_err()
        };
        assert!(matches!(failed("EXECUTOR_UNAVAILABLE"), Failure::Away { arrived: true, .. }));
        assert!(failed("JOB_NOT_FOUND").to_string().contains("`runlet ps -a`"));
        assert_eq!(failed("INVALID_ARGUMENT").to_string(), "it failed");
    }
}
