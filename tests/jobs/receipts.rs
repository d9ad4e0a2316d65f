//! What a job tells when it has ended: what it used, what it left running, which limit it hit, which files it changed.

use std::time::Duration;

use serde_json::{Value, json};
use support::jobs::{end, id};
use support::{Client, World, probe, wait};

const PROMPTLY: Duration = Duration::from_secs(10);

/// Python that keeps a processor busy for a bit more than half a second.
const BUSY: &str = "python3 -c 'import time\nwhile time.process_time() < 0.6: pass'";

fn counts(created: u64, changed: u64, deleted: u64) -> Value {
    json!({ "created": created, "changed": changed, "deleted": deleted })
}

/// Runs a command, and waits until its changes are counted, which may take a moment longer.
async fn run(client: &Client, workspace: &str, command: &str, more: Value) -> Value {
    let mut job = client.run_with(workspace, command, more).await;
    if job["status"] == json!("running") {
        job = client.ended(id(&job)).await;
    }
    counted(client, job).await
}

async fn counted(client: &Client, mut job: Value) -> Value {
    wait::until("the count of files", PROMPTLY, async || {
        if job["files_note"] == json!("being counted") {
            job = client.job(id(&job)).await;
        }
        job["files_note"] != json!("being counted")
    })
    .await;
    job
}

/// The job with the names of the files it changed.
async fn named(client: &Client, job: &Value) -> Value {
    let read = json!({ "job_id": id(job), "files": true });
    client.call("read_output", read).await.expect()["file_names"].clone()
}

async fn until_nothing_is_left(client: &Client, job: &Value) -> Value {
    let mut now = Value::Null;
    wait::until("the last process to go", PROMPTLY, async || {
        now = client.job(id(job)).await;
        now["leftover_processes"] == json!(0)
    })
    .await;
    now
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_were_created_changed_and_deleted_are_counted_and_named() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let before = "mkdir -p d/e; echo a > changes; echo b > goes; echo c > moves; echo d > d/mode; echo e > stays; \
                  ln -s stays link; git init -q . 2>/dev/null || mkdir .git";
    let job = run(&client, &workspace, before, json!({})).await;
    assert_eq!(job["files"], counts(9, 0, 0), "{job}");
    let odd = r"'new
line' $'bad\xff' ' lead' -- '\x41'";
    let command = format!(
        "echo more >> changes; rm goes; mv moves d/e/moved; chmod 600 d/mode; ln -sfn d link; touch {odd}; \
         echo x > passing; rm passing; echo x >> .git/description; cat stays; mkdir d/new"
    );
    let job = run(&client, &workspace, &command, json!({})).await;
    assert_eq!((&job["files"], end(&job)), (&counts(6, 3, 2), (Some("exited"), Some(0))), "{job}");
    assert_eq!(
        named(&client, &job).await,
        json!({
            "created": [" lead", r"\x5cx41", r"bad\xff", "d/e/moved", "d/new", r"new\x0aline"],
            "changed": ["changes", "d/mode", "link"],
            "deleted": ["goes", "moves"],
            "truncated": false,
        })
    );
    let read = client.call("read_output", json!({ "job_id": id(&job), "files": true })).await.text();
    assert!(
        read.contains("[6 files created]\n lead\n") && read.contains("[2 files deleted]\ngoes\nmoves\n"),
        "{read}"
    );
    let job = run(&client, &workspace, "cat stays; ls -R > /dev/null", json!({})).await;
    assert_eq!(job["files"], counts(0, 0, 0));
    let read = client.call("read_output", json!({ "job_id": id(&job), "files": true })).await;
    assert!(
        read.text().contains("[no file was created, changed or deleted while it ran]"),
        "{}",
        read.text()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_names_of_many_are_told_and_the_rest_is_counted() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let job = run(&client, &workspace, "touch {1000..1499}", json!({})).await;
    assert_eq!(job["files"], counts(500, 0, 0));
    let names = named(&client, &job).await;
    let created = names["created"].as_array().unwrap();
    assert_eq!((created.len(), &created[0], &created[199]), (200, &json!("1000"), &json!("1199")));
    assert_eq!(names["truncated"], json!(true));
    let read = client.call("read_output", json!({ "job_id": id(&job), "files": true })).await.text();
    assert!(read.contains("[500 files created]\n1000\n") && read.contains("1199\n[… 300 more]\n"), "{read}");
    // Whoever does not ask is not told.
    assert!(client.job(id(&job)).await.get("file_names").is_none());
    let listed = client.call("list_jobs", json!({})).await.expect();
    assert_eq!(listed["jobs"][0]["files"], counts(500, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_that_is_too_large_is_not_followed_and_says_so() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let make = "mkdir -p node_modules/{1..300} && cd node_modules && for d in *; do touch $d/{1..100}; done";
    let made = run(&client, &workspace, make, json!({})).await;
    assert_eq!(end(&made), (Some("exited"), Some(0)));
    for job in [
        made,
        run(&client, &workspace, "touch new", json!({})).await,
        run(&client, &workspace, "true", json!({})).await,
    ] {
        assert_eq!(job["files"], Value::Null, "{job}");
        let note = job["files_note"].as_str().unwrap();
        assert!(note.starts_with("not followed: "), "{note}");
        let read = client.call("read_output", json!({ "job_id": id(&job), "files": true })).await.text();
        assert!(read.contains("[changed files: not followed"), "{read}");
    }
    // The other workspaces go on as they were.
    let other = client.workspace().await;
    assert_eq!(run(&client, &other, "touch new", json!({})).await["files"], counts(1, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_at_once_share_what_changes_and_others_are_not_blamed() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let first =
        client.start(&workspace, "touch a; echo up; until [ -e b ]; do sleep .05; done; sleep .3").await;
    assert_eq!(first["files"], Value::Null);
    let up = json!({ "job_id": id(&first), "until": "up", "wait_seconds": 10 });
    let _up = client.call("read_output", up).await.expect();
    let second = run(&client, &workspace, "touch b", json!({})).await;
    assert_eq!(second["files"], counts(1, 0, 0), "{second}");
    let first = counted(&client, client.ended(id(&first)).await).await;
    assert_eq!(named(&client, &first).await["created"], json!(["a", "b"]));
    // What a tool wrote between two jobs is of neither.
    for number in 0..3 {
        let write =
            json!({ "workspace_id": workspace, "path": format!("tool-{number}"), "content": "by a tool" });
        let _written = client.call("write_file", write).await.expect();
        let edits = json!([{ "old_text": "by a", "new_text": "with another" }]);
        let edit = json!({ "workspace_id": workspace, "path": format!("tool-{number}"), "edits": edits });
        let _edited = client.call("edit_file", edit).await.expect();
        assert_eq!(run(&client, &workspace, "true", json!({})).await["files"], counts(0, 0, 0), "{number}");
    }
    // Nor is what was left behind by a job that has ended.
    let left = run(&client, &workspace, "(sleep .5; touch late) & echo", json!({})).await;
    assert_eq!(left["files"], counts(0, 0, 0));
    let _gone = until_nothing_is_left(&client, &left).await;
    assert_eq!(run(&client, &workspace, "rm late", json!({})).await["files"], counts(0, 0, 1));
    // A repeated one must see what a job before it did at once.
    for number in 0..20 {
        let command = format!("touch quick-{number}");
        assert_eq!(run(&client, &workspace, &command, json!({})).await["files"], counts(1, 0, 0), "{number}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_in_a_named_shell_have_receipts_of_their_own() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    for (command, expected) in [
        ("touch one two", counts(2, 0, 0)),
        ("true", counts(0, 0, 0)),
        ("echo >> one; rm two", counts(0, 1, 1)),
        ("touch three; exit", counts(1, 0, 0)),
    ] {
        let job = run(&client, &workspace, command, json!({ "shell": "s" })).await;
        assert_eq!(job["files"], expected, "{command}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn processor_time_is_that_of_the_whole_tree() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    // Nobody in the job waits for it.
    let orphan =
        format!("(setsid sh -c \"{BUSY}; touch done\" &); until [ -e done ]; do sleep .05; done; sleep .1");
    let job = run(&client, &workspace, &orphan, json!({})).await;
    assert!(job["cpu_seconds"].as_f64().unwrap() >= 0.6, "{job}");
    let own = run(&client, &workspace, "true", json!({})).await;
    assert!(own["cpu_seconds"].as_f64().unwrap() < 0.3, "an init that had a job before counts anew: {own}");
    // It is still busy when the job ends, and grows with it.
    let job = client.run(&workspace, &format!("{BUSY} & echo")).await;
    let (early, late) = (job, run(&client, &workspace, "true", json!({})).await);
    let late = (late, until_nothing_is_left(&client, &early).await).1;
    assert!(late["cpu_seconds"].as_f64().unwrap() >= 0.6, "{late}");
    let large = "python3 -c 'x = b\"x\" * (120 << 20)' & sleep 3 & wait %1";
    let job = client.run(&workspace, large).await;
    assert!(job["max_rss_bytes"].as_u64().unwrap() > 120 << 20, "{job}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_left_running_is_named_and_the_record_survives_a_restart() {
    let mut world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let command = r"sleep 34001.5 & (exec -a $'odd\tname' sleep 34001.6) & touch f;
                    python3 -c 'import time; time.sleep(34001)' $(seq 200) & sleep .5";
    let job = run(&client, &workspace, command, json!({})).await;
    let left = job["leftovers"].as_array().unwrap();
    assert_eq!((left.len(), &job["leftover_processes"]), (3, &json!(3)), "{job}");
    let find =
        |text: &str| left.iter().find(|left| left["command"].as_str().unwrap().contains(text)).unwrap();
    assert_eq!(find("34001.5"), &json!({ "pid": probe::marked("34001.5")[0], "command": "sleep 34001.5" }));
    assert_eq!(find("34001.6")["command"], json!("odd name 34001.6"));
    let long = find("time.sleep")["command"].as_str().unwrap().to_owned();
    assert!(
        long.starts_with("python3 -c import time; time.sleep(34001) 1 2 3") && long.len() <= 200,
        "{long}"
    );
    let crowd =
        run(&client, &workspace, "for i in {1..30}; do sleep 34002.5 & done; sleep .3", json!({})).await;
    assert_eq!(
        (crowd["leftovers"].as_array().unwrap().len(), &crowd["leftover_processes"]),
        (20, &json!(30)),
        "{crowd}"
    );
    world.kill_executor().await;
    world.start_executor().await;
    let after = client.job(id(&job)).await;
    assert_eq!((&after["leftovers"], &after["leftover_processes"]), (&job["leftovers"], &json!(0)));
    for field in ["files", "cpu_seconds", "max_rss_bytes", "limit_hit", "oom_killed"] {
        assert_eq!(after[field], job[field], "{field}");
    }
    assert_eq!(named(&client, &job).await["created"], json!(["f"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_that_was_hit_is_told() {
    let mut world = World::builder().executor("RUNLET_JOB_LOG_BYTES", "1048576").start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let flood = "head -c 4000000 /dev/zero | tr '\\0' x";
    let late =
        client.run_with(&workspace, &format!("{flood}; sleep 60"), json!({ "timeout_seconds": 2 })).await;
    assert_eq!(late["limit_hit"], json!({ "name": "timeout_seconds", "value": 2 }), "{late}");
    let long = client.run(&workspace, flood).await;
    assert_eq!(long["limit_hit"], json!({ "name": "log_bytes", "value": 1_048_576 }), "{long}");
    let fits = run(&client, &workspace, "head -c 500000 /dev/zero | tr '\\0' x", json!({})).await;
    assert_eq!((&fits["limit_hit"], &fits["oom_killed"]), (&Value::Null, &json!(false)));
    let cancelled = client.start(&workspace, "sleep 60").await;
    assert_eq!(client.cancel(id(&cancelled)).await["limit_hit"], Value::Null);
    // What is left behind may go past it later.
    let later = client.run(&workspace, &format!("(sleep 1; {flood}) & echo")).await;
    assert_eq!(later["limit_hit"], Value::Null);
    assert_eq!(until_nothing_is_left(&client, &later).await["limit_hit"], long["limit_hit"]);
    world.kill_executor().await;
    world.start_executor().await;
    assert_eq!(client.job(id(&late)).await["limit_hit"], late["limit_hit"]);
    assert_eq!(client.job(id(&long)).await["limit_hit"], long["limit_hit"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn command_in_a_named_shell_tells_its_own_processor_time() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let burn = "i=0; while ((i < 150000)); do ((i++)); done";
    let run = async |command: &str| {
        client.run_with(&workspace, command, json!({ "shell": "s", "wait_seconds": 30 })).await
    };
    let own = run(burn).await;
    assert!(own["cpu_seconds"].as_f64().unwrap() >= 0.05, "{own}");
    let child = run(&format!("bash -c '{burn}'")).await;
    assert!(child["cpu_seconds"].as_f64().unwrap() >= 0.05, "{child}");
    // Not that of the commands before it; and a user's own settings change nothing of it.
    run("LC_ALL=de_DE.UTF-8; times() { echo no; }; set -e").await;
    let little = run(":").await;
    assert!(little["cpu_seconds"].as_f64().unwrap() < 0.05, "{little}");
    let failed = run("(exit 7) || exit_code=$?; set +e; (exit $exit_code)").await;
    assert_eq!((&failed["exit_code"], &failed["max_rss_bytes"]), (&json!(7), &json!(null)), "{failed}");
}
