//! What surrounds a command: its variables, locale, start-up files; and what it must not find there.

use std::time::{Duration, Instant};

use serde_json::json;
use support::World;
use support::jobs::{end, id};

#[tokio::test(flavor = "multi_thread")]
async fn exe_21_start_up_files_of_shells_are_not_run() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let files = "for f in .bashrc .profile .bash_profile .zshenv; do \
                 printf 'echo NOISE; cat; sleep 5; exit 3\\n' > ~/$f; done; cp ~/.bashrc noise";
    assert_eq!(end(&client.run(&workspace, files).await), (Some("exited"), Some(0)));
    let began = Instant::now();
    let job = client.run(&workspace, "echo ok").await;
    assert_eq!((&job["output"], end(&job)), (&json!("ok\n"), (Some("exited"), Some(0))));
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn exe_21_bash_env_of_the_executor_is_not_passed_on() {
    let world = World::builder().executor("BASH_ENV", "/dev/null/no").executor("ENV", "/no").start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let job = client.run(&workspace, "echo \"[$BASH_ENV$ENV]\"").await;
    assert_eq!(job["output"], json!("[]\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn exe_22_no_secret_of_the_executor_or_the_gateway_can_be_found() {
    let world = World::builder()
        .executor("SOME_TOKEN", "CANARY-executor")
        .gateway("OTHER_TOKEN", "CANARY-gateway")
        .start()
        .await;
    let client = world.client();
    let workspace = client.workspace().await;
    let search = "env | grep -c CANARY; \
                  cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -c -e '^[A-Z_]*=CANARY' -e '^SANDBOX_TOKEN'; \
                  cat /proc/$PPID/environ 2>/dev/null | grep -ac .; true";
    assert_eq!(client.run(&workspace, search).await["output"], json!("0\n0\n0\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn exe_23_no_secret_stands_among_the_arguments_of_a_process() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let secret = json!({ "env": { "SECRET": "CANARY-of-a-job" }, "wait_seconds": 0 });
    let job = client.run_with(&workspace, "echo up; sleep 600", secret).await;
    let up = json!({ "job_id": id(&job), "until": "up", "wait_seconds": 10 });
    assert_eq!(client.call("read_output", up).await.expect()["matched"], json!(true));
    // The brackets keep the search from finding itself.
    let search = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c 'C[A]NARY-of'; true";
    assert_eq!(client.run(&workspace, search).await["output"], json!("0\n"));
    let tokens = format!(
        "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c '{}[6]789'; true",
        &support::world::TOKEN[..17]
    );
    assert_eq!(client.run(&workspace, &tokens).await["output"], json!("0\n"));
    let _cancelled = client.cancel(id(&job)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exe_25_text_is_utf_8_whatever_the_executor_was_started_with() {
    let wrapper =
        ["env", "-u", "LANG", "-u", "LC_ALL", "-u", "LC_CTYPE", "-u", "HOME", "-u", "USER", "-u", "TERM"];
    let world = World::builder().executor_through(&wrapper).start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let command =
        "locale charmap; python3 -c \"print('é')\"; touch café; ls; perl -e 'print \"ok\\n\"'; date +%Z";
    let job = client.run(&workspace, command).await;
    assert_eq!((&job["output"], end(&job)), (&json!("UTF-8\né\ncafé\nok\nUTC\n"), (Some("exited"), Some(0))));
    let plain = client.run_with(&workspace, "locale charmap", json!({ "env": { "LANG": "C" } })).await;
    assert_eq!(plain["output"], json!("ANSI_X3.4-1968\n"), "a language that was given holds: {plain}");
}

#[tokio::test(flavor = "multi_thread")]
async fn exe_28_no_pager_waits_for_a_key() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let commands = "git init -q . && git config user.email a@b && git config user.name a && git config core.pager less && \
                    for i in $(seq 60); do git commit -q --allow-empty -m c$i; done; git log | grep -c ^commit; \
                    git log > /dev/null; systemctl status > /dev/null 2>&1; man ls > /dev/null 2>&1; git log | head -1 | cut -c1-6";
    let job =
        client.run_with(&workspace, commands, json!({ "wait_seconds": 40, "timeout_seconds": 40 })).await;
    assert_eq!((&job["output"], end(&job)), (&json!("60\ncommit\n"), (Some("exited"), Some(0))));
    let job = client.run_with(&workspace, "git log", json!({ "timeout_seconds": 10 })).await;
    assert_eq!(end(&job), (Some("exited"), Some(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_that_the_executor_was_started_to_ignore_are_not_ignored_by_jobs() {
    let world = World::builder()
        .executor_through(&["env", "--ignore-signal=HUP", "--ignore-signal=INT", "--ignore-signal=QUIT"])
        .start()
        .await;
    let client = world.client();
    let workspace = client.workspace().await;
    // Those above 31 are the C library's and for real time.
    let ignored = "echo $((0x$(grep SigIgn /proc/self/status | cut -f2) & 0x7fffffff))";
    assert_eq!(client.run(&workspace, ignored).await["output"], json!("0\n"));
    let job = client.run(&workspace, "kill -HUP $$; echo survived").await;
    assert_eq!((&job["output"], &job["signal"]), (&json!(""), &json!("HUP")), "{job}");
}
