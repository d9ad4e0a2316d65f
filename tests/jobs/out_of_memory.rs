//! A job that eats more memory than there is: the kernel ends it, the record says so, and the executor lives. It takes root
//! and control groups of memory, of either generation; where there are none the test says that it was skipped.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use support::jobs::end;
use support::{World, wait};

/// What the executor and its jobs may use together.
const LIMIT: u64 = 256 << 20;

/// What jobs get of it: they leave an eighth.
const OF_JOBS: u64 = LIMIT - LIMIT / 8;

/// A control group. A test that fails may leave it behind, empty.
struct Group(PathBuf);

impl Group {
    fn new() -> Option<Self> {
        let name = format!("runlet-test-{}", std::process::id());
        let kinds = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        kinds.into_iter().find_map(|(mount, limit)| {
            let group = Self(Path::new(mount).join(&name));
            fs::create_dir(&group.0).ok()?;
            fs::write(group.0.join(limit), LIMIT.to_string()).ok()?;
            // Where there is swap, it must not take what is too much.
            for (file, most) in [("memory.memsw.limit_in_bytes", LIMIT), ("memory.swap.max", 0)] {
                let _no_swap = fs::write(group.0.join(file), most.to_string());
            }
            Some(group)
        })
    }

    /// Removes it, as soon as its last process is gone.
    async fn remove(self) {
        wait::until("the control group to be empty", Duration::from_secs(10), async || {
            fs::remove_dir(&self.0).is_ok()
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_the_kernel_ends_for_want_of_memory_says_so_and_names_the_limit() {
    let Some(group) = Group::new() else {
        println!("skipped: this takes root and control groups of memory");
        return;
    };
    let join = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", group.0.display());
    let world = World::builder().executor_through(&["sh", "-c", &join, "sh"]).start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let executor = world.executor_pid();
    let eat = "python3 -c 'x = b\"x\" * (600 << 20)'";
    let job = client.run(&workspace, &format!("exec {eat}")).await;
    assert_eq!((end(&job), &job["signal"]), ((Some("killed"), Some(137)), &json!("KILL")), "{job}");
    assert_eq!(job["oom_killed"], json!(true), "{job}");
    assert_eq!(job["limit_hit"], json!({ "name": "memory_bytes", "value": OF_JOBS }), "{job}");
    let note = job["notes"][0].as_str().unwrap();
    assert!(note.contains("control group") && note.contains(&OF_JOBS.to_string()), "{note}");
    // The same where a child of the shell was ended, and in a named shell.
    for more in [json!({}), json!({ "shell": "s" })] {
        let job = client.run_with(&workspace, &format!("({eat}); (exit $?)"), more).await;
        assert_eq!((end(&job), &job["oom_killed"]), ((Some("exited"), Some(137)), &json!(true)), "{job}");
    }
    // Others who kill are not the kernel, whatever it did before.
    for command in ["kill -9 $$", "sh -c 'kill -9 $$'; exit $?", "exit 137"] {
        let job = client.run(&workspace, command).await;
        assert_eq!((&job["exit_code"], &job["oom_killed"]), (&json!(137), &json!(false)), "{command}: {job}");
        assert_eq!(job["limit_hit"], Value::Null);
    }
    let killed = json!({ "timeout_seconds": 1 });
    let job = client.run_with(&workspace, "trap '' TERM; while :; do sleep .1; done", killed).await;
    assert_eq!((&job["exit_code"], &job["oom_killed"]), (&json!(137), &json!(false)), "{job}");
    assert_eq!(world.executor_pid(), executor);
    assert_eq!(client.run(&workspace, "echo goes on").await["output"], json!("goes on\n"));
    drop(world);
    group.remove().await;
    println!("out of memory: told with its limit, {OF_JOBS} bytes; the executor lives");
}
