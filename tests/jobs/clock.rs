//! The machine's clock jumps: time limits and durations do not.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde_json::json;
use support::World;
use support::jobs::{end, id};

/// A library that moves the wall clock of the program it is loaded into by as many seconds as a file says.
const SKEW: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, clock, now);
    char text[32] = {0};
    int file = clock == CLOCK_REALTIME ? open(getenv("SKEW_FILE"), O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        if (read(file, text, sizeof text - 1) > 0) now->tv_sec += atol(text);
        close(file);
    }
    return result;
}
"#;

fn compile(directory: &Path) {
    std::fs::write(directory.join("skew.c"), SKEW).unwrap();
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(directory.join("skew.so"))
        .arg(directory.join("skew.c"))
        .status();
    assert!(compiled.unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn ws_04_jumps_of_the_clock_change_no_time_limit() {
    let own = tempfile::tempdir().unwrap();
    compile(own.path());
    let skew = own.path().join("skew");
    std::fs::write(&skew, "0").unwrap();
    let world = World::builder()
        .executor("LD_PRELOAD", own.path().join("skew.so").to_string_lossy())
        .executor("SKEW_FILE", skew.to_string_lossy())
        .executor("TZ", "Asia/Tokyo")
        .start()
        .await;
    let client = world.client();
    let workspace = client.workspace().await;
    for jump in ["3600", "-3600"] {
        std::fs::write(&skew, "0").unwrap();
        let began = Instant::now();
        let limited = json!({ "timeout_seconds": 4, "wait_seconds": 0 });
        let job = client.run_with(&workspace, "sleep 600", limited).await;
        std::fs::write(&skew, jump).unwrap();
        let during = client.job(id(&job)).await;
        assert_eq!(end(&during), (Some("running"), None), "{jump}");
        let job = client.ended(id(&job)).await;
        let took = began.elapsed().as_secs_f64();
        assert!((4.0..9.0).contains(&took), "{jump}: {took}");
        assert_eq!(end(&job), (Some("timed_out"), Some(143)));
        let duration = job["duration_seconds"].as_f64().unwrap();
        assert!((3.9..9.0).contains(&duration), "{jump}: {job}");
        let (started, ended) = (job["started_at"].as_str().unwrap(), job["ended_at"].as_str().unwrap());
        assert!(started.ends_with('Z') && started <= ended, "{job}");
    }
    // The skew took effect, and jobs have UTC whatever the executor's zone.
    std::fs::write(&skew, "86400000").unwrap();
    let job = client.run(&workspace, "date +%Z; date +%Y; echo \"[$LD_PRELOAD$SKEW_FILE]\"").await;
    let lines: Vec<&str> = job["output"].as_str().unwrap().lines().collect();
    assert_eq!((lines[0], lines[2]), ("UTC", "[]"));
    let year = |text: &str| text[..4].parse::<u32>().unwrap();
    assert!(year(job["started_at"].as_str().unwrap()) >= year(lines[1]) + 2, "{job}");
}
