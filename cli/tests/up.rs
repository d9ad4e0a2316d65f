//! `runlet up` as a person uses it. It needs the other two programs beside it, as `cargo test --workspace` builds them.
#![expect(clippy::unwrap_used, reason = "a test that can't go on must fail")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

fn up(root: &Path, port: u16) -> Child {
    Command::new(env!("CARGO_BIN_EXE_runlet"))
        .args(["up", "--listen", &format!("127.0.0.1:{port}"), "--root"])
        .arg(root)
        .env_remove("SANDBOX_TOKEN")
        .env("RUNLET_PREPARE_PYTHON", "false")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn read_until_ready(child: &mut Child) -> String {
    let mut greeting = String::new();
    for line in BufReader::new(child.stdout.as_mut().unwrap()).lines() {
        let line = line.unwrap();
        greeting += &line;
        greeting.push('\n');
        if line.starts_with("Ctrl-C") {
            return greeting;
        }
    }
    let mut said = String::new();
    child.stderr.as_mut().unwrap().read_to_string(&mut said).unwrap();
    panic!("it ended before it was ready: {greeting}{said}");
}

fn call(port: u16, token: &str) -> String {
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_workspaces","arguments":{}}}"#;
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(
        stream,
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Sandbox-Token: {token}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn interrupt(child: &Child) {
    let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
}

/// Ids of the programs that this root's `runlet up` started.
fn programs_of(root: &Path) -> Vec<u32> {
    let wanted = format!("SANDBOX_ROOT={}", root.display());
    let all = fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes())
        })
        .collect()
}

#[test]
fn it_starts_both_programs_says_how_to_connect_and_stops_both() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap().join("var");
    let port = free_port();
    let mut child = up(&root, port);
    let greeting = read_until_ready(&mut child);
    let token = fs::read_to_string(root.join("token")).unwrap().trim().to_owned();
    assert_eq!(fs::metadata(root.join("token")).unwrap().permissions().mode() & 0o777, 0o600);
    let command = format!("claude mcp add --transport http runlet http://127.0.0.1:{port}/mcp --header");
    for part in [command.as_str(), &token, "[mcp_servers.runlet]", ".cursor/mcp.json", ".vscode/mcp.json"] {
        assert!(greeting.contains(part), "{part}: {greeting}");
    }
    assert!(call(port, &token).starts_with("HTTP/1.1 200"), "{}", call(port, &token));
    assert!(call(port, "wrong").starts_with("HTTP/1.1 401"));
    interrupt(&child);
    assert!(child.wait().unwrap().success());
    assert_eq!(programs_of(&root), Vec::<u32>::new());

    // The token stays for the next start.
    let mut again = up(&root, port);
    assert!(read_until_ready(&mut again).contains(&token));
    interrupt(&again);
    assert!(again.wait().unwrap().success());
}

#[test]
fn when_one_program_ends_it_says_which_and_stops_the_other() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap().join("var");
    let occupied = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let child = up(&root, occupied.local_addr().unwrap().port());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("runlet: runlet-gateway ended") && said.contains("can't listen on"), "{said}");
    assert_eq!(programs_of(&root), Vec::<u32>::new());
}

#[test]
fn when_it_is_killed_both_programs_stop() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap().join("var");
    let mut child = up(&root, free_port());
    read_until_ready(&mut child);
    child.kill().unwrap();
    child.wait().unwrap();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !programs_of(&root).is_empty() {
        assert!(std::time::Instant::now() < end, "{:?} live on", programs_of(&root));
        std::thread::yield_now();
    }
}
