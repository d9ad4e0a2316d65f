//! The program: exit codes, signals, what it prints and logs.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::support::TOKEN;

fn program(flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_runlet-gateway"));
    command.env_clear().args(flags).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn wrong_settings_exit_64_with_a_sentence() {
    for (token, flags, word) in [
        (None, &[][..], "SANDBOX_TOKEN"),
        (Some("changeme-changeme-changeme-changeme"), &[], "placeholder"),
        (Some(TOKEN), &["--executor=tcp://x"], "RUNLET_EXECUTOR"),
        (Some(TOKEN), &["--no-such-flag"], "--no-such-flag"),
        (Some(TOKEN), &["--log=a=b=c"], "RUNLET_LOG"),
    ] {
        let output = program(flags).envs(token.map(|token| ("SANDBOX_TOKEN", token))).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(64), "{text}");
        assert!(text.contains(word) && token.is_none_or(|token| !text.contains(token)), "{text}");
    }
}

#[test]
fn tools_are_printed_without_a_token() {
    let output = program(&["--print-tools"]).output().unwrap();
    assert!(output.status.success());
    let tools: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(tools.len(), 46);
    assert!(tools.iter().all(|tool| tool["inputSchema"]["type"] == "object"));
}

/// Starts the program on a port of its own choice and returns its address.
fn start(log_format: &str) -> (Child, String, BufReader<std::process::ChildStderr>) {
    let flags =
        ["--listen=127.0.0.1:0", "--executor=unix:/nowhere/executor.sock", "--allow-query-token", log_format];
    let mut child = program(&flags).env("SANDBOX_TOKEN", TOKEN).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    log.read_line(&mut line).unwrap();
    let line: Value = serde_json::from_str(&line).unwrap();
    (child, line["address"].as_str().unwrap().to_owned(), log)
}

#[test]
fn log_names_the_call_and_holds_no_secret() {
    let (mut child, address, mut log) = start("--log-format=json");
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write_file","arguments":{"workspace_id":"ws_a","path":"CANARY-path","content":"CANARY-content","encoding":1}}}"#;
    let mut stream = TcpStream::connect(&address).unwrap();
    let request = format!(
        "POST /mcp?api_key={TOKEN}&x=CANARY HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("INVALID_ARGUMENT"), "{answer}");
    signal(&child, "TERM");
    assert!(child.wait().unwrap().success());
    let mut text = String::new();
    log.read_to_string(&mut text).unwrap();
    assert!(!text.contains("CANARY") && !text.contains(TOKEN), "{text}");
    let line: Value = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .find(|line| line["message"] == "request")
        .unwrap_or_else(|| panic!("no line of a request in {text}"));
    for (key, value) in [
        ("route", "/mcp"),
        ("method", "POST"),
        ("principal", "default"),
        ("rpc", "tools/call"),
        ("tool", "write_file"),
        ("workspace", "ws_a"),
        ("failure", "INVALID_ARGUMENT"),
    ] {
        assert_eq!(line[key], value, "{line}");
    }
    assert!(line["duration_ms"].is_u64() && line["status"] == 200 && line["request"].is_u64(), "{line}");
}

#[test]
fn http_18_second_signal_ends_it_at_once() {
    let (mut child, address, _log) = start("--log-format=json");
    // A request whose body never comes holds the first stop up.
    let mut stream = TcpStream::connect(&address).unwrap();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Sandbox-Token: {TOKEN}\r\nContent-Type: application/json\r\n\
         Content-Length: 10\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let start = Instant::now();
    signal(&child, "TERM");
    wait_until_refused(&address);
    assert!(child.try_wait().unwrap().is_none(), "the first signal lets requests end");
    signal(&child, "INT");
    child.wait().unwrap();
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap().success());
}

fn wait_until_refused(address: &str) {
    let deadline = Instant::now() + Duration::from_secs(3);
    while TcpStream::connect(address).is_ok() {
        assert!(Instant::now() < deadline, "it still accepts");
        std::thread::yield_now();
    }
}
