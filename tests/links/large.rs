//! A gibibyte through curl and aria2c: whole, in parts, resumed; and what that takes of memory.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::json;
use support::probe::resident_bytes;
use tokio::process::Command;

use crate::desk::{Desk, url};

const GROWTH: u64 = 16 << 20;

struct Memory {
    pids: [u32; 2],
    before: [u64; 2],
    most: [u64; 2],
}

impl Memory {
    fn of(desk: &Desk) -> Self {
        let pids = [desk.world.executor_pid(), desk.world.gateway_pid()];
        let before = pids.map(resident_bytes);
        Self { pids, before, most: before }
    }

    /// Watches both programs while `command` runs, which must succeed.
    async fn during(&mut self, command: &mut Command) {
        let running = command.kill_on_drop(true).output();
        tokio::pin!(running);
        let output = loop {
            tokio::select! {
                output = &mut running => break output.unwrap(),
                () = tokio::time::sleep(Duration::from_millis(10)) => {
                    for (most, pid) in self.most.iter_mut().zip(self.pids) {
                        *most = (*most).max(resident_bytes(pid));
                    }
                }
            }
        };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{}: {said} {}",
            output.status,
            String::from_utf8_lossy(&output.stdout)
        );
    }

    fn check(&self, what: &str) {
        let grown: Vec<u64> = self.most.iter().zip(self.before).map(|(most, before)| most - before).collect();
        println!("{what}: executor +{} KiB, gateway +{} KiB", grown[0] >> 10, grown[1] >> 10);
        assert!(grown.iter().all(|grown| *grown < GROWTH), "{what}: {grown:?}");
    }
}

async fn sum(path: &Path) -> String {
    let output = Command::new("sha256sum").arg(path).output().await.unwrap();
    String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap().to_owned()
}

fn curl(arguments: &[&str], to: &Path, url: &str) -> Command {
    let mut command = Command::new("curl");
    command.args(["-fsS", "--noproxy", "*"]).args(arguments).arg("-o").arg(to).arg(url);
    command
}

fn aria(directory: &Path, arguments: &[&str], url: &str) -> Command {
    let mut command = Command::new("aria2c");
    command.args(["-q", "--no-conf", "--all-proxy=", "-o", "aria", "--file-allocation=none"]);
    command.arg("-d").arg(directory).args(arguments).arg(url);
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gibibyte_is_fetched_whole_in_parts_and_resumed_with_memory_flat() {
    let desk = Desk::new().await;
    // Noise here and there, so that it is there at once and no two places are alike.
    desk.run(
        "truncate -s 1G big; for at in 0 100 333 511 777 1007; do \
         dd if=/dev/urandom of=big bs=1M count=16 seek=$at conv=notrunc status=none; done",
    )
    .await;
    let mut memory = Memory::of(&desk);
    let start = Instant::now();
    let made = desk.call("create_download", json!({ "path": "big" })).await.expect();
    println!("the snapshot took {:?}", start.elapsed());
    let (url, right) = (url(&made), made["sha256"].as_str().unwrap().to_owned());
    assert_eq!(sum(&desk.at("big")).await, right);
    let to: PathBuf = desk.world.directory().join("fetched");

    let start = Instant::now();
    memory.during(&mut curl(&[], &to, &url)).await;
    println!("curl took {:?}", start.elapsed());
    assert_eq!(sum(&to).await, right);
    memory.check("curl");

    // Cut in the middle, then resumed from where it is.
    let cut = curl(&["--max-time", "0.2", "--limit-rate", "400M"], &to, &url).output().await.unwrap();
    assert_eq!(cut.status.code(), Some(28));
    let part = std::fs::metadata(&to).unwrap().len();
    assert!(part < 1 << 30);
    memory.during(&mut curl(&["-C", "-"], &to, &url)).await;
    assert_eq!(sum(&to).await, right);
    memory.check("curl, resumed");
    std::fs::remove_file(&to).unwrap();

    desk.hand_over_nothing();
    let directory = desk.world.directory();
    let aria_file = directory.join("aria");
    memory.during(&mut aria(directory, &["-x4", "-s4", "-k", "1M"], &url)).await;
    assert_eq!(sum(&aria_file).await, right);
    memory.check("aria2c, 4 parts, by message");
    std::fs::remove_file(&aria_file).unwrap();

    let mut first = aria(directory, &["-x4", "-s4", "-k", "1M"], &url).kill_on_drop(true).spawn().unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let pid = rustix::process::Pid::from_raw(first.id().unwrap().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    first.wait().await.unwrap();
    memory.during(&mut aria(directory, &["-c", "-x4", "-s4", "-k", "1M"], &url)).await;
    assert_eq!(sum(&aria_file).await, right);
    memory.check("aria2c, resumed, by message");
}
