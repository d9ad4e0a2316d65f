//! A flood of output that nobody reads.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;
use support::probe::resident_bytes;

use crate::Bench;
use crate::memory::mebibytes;
use crate::peer::succeeds;
use crate::table::{Figure, Row, Target, Unit};

const RUNS: usize = 3;
const FLOOD: &str = "head -c 1073741824 /dev/zero";

/// One gibibyte through a job, and through `cat` to a file, in turn.
pub(crate) async fn one_gibibyte(bench: &Bench) -> Vec<Row> {
    let file = bench.directory.path().join("flood");
    let (mut own_times, mut growths, mut cat_times) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let (time, growth) = through_job(bench).await;
        own_times.push(time);
        growths.push(growth);
        let start = Instant::now();
        assert!(succeeds(
            Command::new("/bin/bash").args(["-c", &format!("{FLOOD} | cat > \"$0\"")]).arg(&file)
        ));
        cat_times.push(start.elapsed().as_secs_f64());
        std::fs::remove_file(&file).unwrap();
    }
    // Half of the peer's rate is twice its time.
    vec![
        Row::new("1 GiB of job output", &Figure::of(Unit::Seconds, own_times))
            .beside("cat > file", Figure::of(Unit::Seconds, cat_times))
            .target(Target::RatioAtMost(2.0)),
        Row::new("growth of the executor meanwhile", &Figure::of(Unit::Mebibytes, growths))
            .target(Target::AtMost(16.0)),
    ]
}

/// Seconds that the flood takes, and by how many MiB the executor's resident memory grew at most.
async fn through_job(bench: &Bench) -> (f64, f64) {
    let pid = bench.programs.executor_pid();
    let before = resident_bytes(pid);
    let arguments = json!({ "workspace_id": bench.workspace, "command": FLOOD, "wait_seconds": 50 });
    let call = bench.programs.client().call("run_command", arguments);
    tokio::pin!(call);
    let (start, mut largest) = (Instant::now(), before);
    let job = loop {
        tokio::select! {
            answer = &mut call => break answer.expect(),
            () = tokio::time::sleep(Duration::from_millis(20)) => largest = largest.max(resident_bytes(pid)),
        }
    };
    let time = start.elapsed().as_secs_f64();
    assert_eq!((job["exit_code"].as_i64(), job["total_bytes"].as_u64()), (Some(0), Some(1 << 30)), "{job}");
    (time, mebibytes(largest - before))
}
