//! Making a workspace with Python in it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde_json::json;

use crate::Bench;
use crate::peer::succeeds;
use crate::table::{Figure, Row, Target, Unit};

const RUNS: usize = 10;
const PEER_RUNS: usize = 3;

/// A workspace with Python, and `python3 -m venv` with the same interpreter, in turn.
pub(crate) async fn with_python(bench: &Bench) -> Vec<Row> {
    let client = bench.programs.client();
    let venv = bench.directory.path().join("venv");
    let (mut own_times, mut venv_times) = (Vec::new(), Vec::new());
    for run in 0..RUNS {
        let start = Instant::now();
        let made = client.call("create_workspace", json!({ "python": true })).await.expect();
        own_times.push(start.elapsed().as_secs_f64());
        if run < PEER_RUNS {
            let theirs = made["python"]["venv"].as_str().expect("a workspace with Python");
            let python = fs::canonicalize(Path::new(theirs).join("bin/python3")).unwrap();
            let start = Instant::now();
            assert!(succeeds(Command::new(python).args(["-m", "venv"]).arg(&venv)));
            venv_times.push(start.elapsed().as_secs_f64());
            fs::remove_dir_all(&venv).unwrap();
        }
        let _deleted =
            client.call("delete_workspace", json!({ "workspace_id": made["workspace_id"] })).await.expect();
    }
    vec![
        Row::new("create_workspace, Python with pip", &Figure::of(Unit::Seconds, own_times))
            .beside("python3 -m venv", Figure::of(Unit::Seconds, venv_times))
            .target(Target::AtMost(0.3)),
    ]
}
