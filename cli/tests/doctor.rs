//! `runlet doctor` as a person uses it. It needs the executor beside it, as `cargo test --workspace` builds it.

use std::io::Read;
use std::process::{Command, Stdio};

fn doctor() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_runlet"));
    command.args(["doctor", "--root", "/tmp"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn it_tells_what_keeps_jobs_from_the_executor_and_what_stays_open() {
    let output = doctor().output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{told}");
    let line = |name: &str| told.lines().find(|line| line[9..].starts_with(name)).map(str::to_owned);
    assert!(line("bash").unwrap().starts_with("ok"), "{told}");
    let apart = line("jobs and the executor").unwrap();
    if rustix::process::geteuid().is_root() {
        assert!(apart.starts_with("ok") && apart.contains("another user"), "{told}");
        assert_eq!(line("stays open"), None, "{told}");
    } else {
        assert!(line("stays open").unwrap().contains("the executor's own user"), "{told}");
    }
}

#[test]
fn a_reader_that_has_enough_does_not_hurt_it() {
    let mut child = doctor().spawn().unwrap();
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success() && said.is_empty(), "{said}");
}
