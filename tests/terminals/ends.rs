//! How terminals end, and that nothing is lost or left by it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{World, probe, terminals::shown, wait};

async fn ended(command: &str) -> (Value, String) {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let terminal = client.open(&workspace, command).await;
    let seen = client.terminal_ended(&terminal).await;
    (seen, client.written(&terminal).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn pty_01_the_end_of_the_program_is_seen_at_once() {
    let begun = Instant::now();
    let (seen, written) = ended("echo bye; exit 3").await;
    assert_eq!((&seen["status"], &seen["exit_code"]), (&json!("exited"), &json!(3)));
    assert_eq!(written, "bye\n");
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn pty_03_all_that_was_written_is_kept_to_the_last_byte() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    for _ in 0..20 {
        let terminal = client.open(&workspace, "seq 1 100000").await;
        let seen = client.terminal_ended(&terminal).await;
        assert_eq!((&seen["status"], &seen["exit_code"]), (&json!("exited"), &json!(0)));
        assert_eq!(seen["total_bytes"], 688_895);
        assert!(shown(&seen).ends_with("99999\n100000"), "{}", shown(&seen));
    }
    let quiet = client.open(&workspace, "sleep 1").await;
    let seen = client.terminal_ended(&quiet).await;
    assert_eq!((&seen["exit_code"], &seen["total_bytes"], shown(&seen)), (&json!(0), &json!(0), ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn pty_04_closing_types_nothing() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let work = world.root().join("workspaces").join(&workspace).join("work");
    let shell = client.open_with(&workspace, json!({})).await;
    client.send(&shell, json!({ "text": "touch BOOM", "until": "touch BOOM" })).await;
    let cat = client.open(&workspace, "cat > f").await;
    client.send(&cat, json!({ "text": "abc", "until": "abc" })).await;
    for terminal in [&shell, &cat] {
        let closed = client.close(terminal).await;
        assert_eq!((&closed["status"], &closed["signal"]), (&json!("killed"), &json!("HUP")), "{closed}");
    }
    assert!(!work.join("BOOM").exists());
    assert_eq!(std::fs::read(work.join("f")).unwrap(), b"");
}

#[tokio::test(flavor = "multi_thread")]
async fn pty_04_deleting_the_workspace_and_stopping_type_nothing() {
    let mut world = World::start().await;
    let client = world.client();
    let out = tempfile::tempdir().unwrap();
    std::fs::set_permissions(out.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let type_half = async |name: &str| {
        let workspace = client.workspace().await;
        let shell = client.open_with(&workspace, json!({})).await;
        let text = format!("touch {}/{name}", out.path().display());
        client.send(&shell, json!({ "text": text, "until": name })).await;
        workspace
    };
    let deleted = type_half("deleted").await;
    let gone = client.call("delete_workspace", json!({ "workspace_id": deleted })).await.expect();
    assert_eq!(gone["ended_terminals"].as_array().unwrap().len(), 1, "{gone}");
    type_half("stopped").await;
    world.signal_executor(rustix::process::Signal::TERM);
    world.executor_ended().await;
    world.start_executor().await;
    type_half("killed").await;
    world.kill_executor().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn pty_05_death_by_a_signal_is_told_as_a_shell_tells_it() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    for (command, status, code, signal) in [
        ("kill -9 $$", "killed", 137, json!("KILL")),
        ("kill -SEGV $$", "killed", 139, json!("SEGV")),
        ("kill -TERM $$", "killed", 143, json!("TERM")),
        ("exit 1", "exited", 1, Value::Null),
        ("exit 300", "exited", 44, Value::Null),
        ("nosuchcmd_x", "exited", 127, Value::Null),
    ] {
        let terminal = client
            .open_with(&workspace, json!({ "command": command, "env": { "LANG": "de_DE.UTF-8" } }))
            .await;
        let seen = client.terminal_ended(&terminal).await;
        assert_eq!(seen["status"], status, "{command}");
        assert_eq!((&seen["exit_code"], &seen["signal"]), (&json!(code), &signal), "{command}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pty_06_closing_ends_everything_whatever_it_ignores() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let stubborn = client.open(&workspace, "trap '' HUP TERM; sleep 31420.1; sleep 31420.1").await;
    let escaped = client.open(&workspace, "setsid sleep 31420.2 & sleep 31420.2").await;
    wait::until("the programs", Duration::from_secs(5), async || {
        probe::marked("31420.1").len() == 1 && probe::marked("31420.2").len() == 2
    })
    .await;
    let begun = Instant::now();
    let other = tokio::spawn({
        let (client, workspace) = (client.clone(), workspace.clone());
        async move {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let begun = Instant::now();
            client.call("list_files", json!({ "workspace_id": workspace })).await.expect();
            begun.elapsed()
        }
    });
    let (first, second) = tokio::join!(client.close(&stubborn), client.close(&escaped));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!((&first["exit_code"], &first["signal"]), (&json!(137), &json!("KILL")));
    assert_eq!(second["status"], "killed");
    assert_eq!((probe::marked("31420.1"), probe::marked("31420.2")), (vec![], vec![]));
    let waited = other.await.unwrap();
    assert!(waited < Duration::from_millis(500), "another call took {waited:?}");
    // Again: nothing is left to do.
    let again = client.close(&stubborn).await;
    assert_eq!((&again["exit_code"], &again["ended_processes"]), (&json!(137), &json!(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn pty_06_what_a_program_left_behind_is_counted_and_ends_with_the_terminal() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let terminal = client.open(&workspace, "setsid -f sleep 31421.1; sleep .3; echo left").await;
    let seen = client.terminal_ended(&terminal).await;
    assert_eq!((&seen["status"], &seen["leftover_processes"]), (&json!("exited"), &json!(1)), "{seen}");
    let closed = client.close(&terminal).await;
    assert_eq!((&closed["ended_processes"], &closed["leftover_processes"]), (&json!(1), &json!(0)));
    assert_eq!((&closed["status"], &closed["exit_code"]), (&json!("exited"), &json!(0)));
    assert_eq!(probe::marked("31421.1"), Vec::<u32>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn pty_14_a_terminal_that_has_ended_takes_nothing_and_says_so() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let terminal = client.open(&workspace, "exit 7").await;
    client.terminal_ended(&terminal).await;
    let id = &terminal["terminal_id"];
    for (tool, arguments) in [
        ("send_input", json!({ "terminal_id": id, "text": "x" })),
        ("resize_terminal", json!({ "terminal_id": id, "cols": 80, "rows": 24 })),
    ] {
        let error = client.call(tool, arguments).await.expect_error();
        assert_eq!(error["code"], "TERMINAL_ENDED", "{tool}");
        assert!(error["message"].as_str().unwrap().contains("has already ended: exit code 7"), "{error}");
    }
    let error =
        client.call("read_terminal", json!({ "terminal_id": "term_aaaaaaaaaaaa" })).await.expect_error();
    assert_eq!(error["code"], "TERMINAL_NOT_FOUND");
}

#[tokio::test(flavor = "multi_thread")]
async fn pty_19_no_state_is_guessed() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let echo = client.open(&workspace, "echo hi").await;
    let seen = client.terminal_ended(&echo).await;
    assert_eq!((&seen["status"], &seen["exit_code"], shown(&seen)), (&json!("exited"), &json!(0), "hi"));
    let python = client.open(&workspace, "python3 -q").await;
    let seen = client.enter(&python, "print(6*7)", "(?m)^42$").await;
    assert_eq!(seen["status"], "running");
    let shell = client.open_with(&workspace, json!({})).await;
    let seen = client.enter(&shell, "cat <<E", "> $").await;
    assert_eq!(seen["status"], "running");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_is_known_by_its_name_while_it_lives() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let first = client.open_with(&workspace, json!({ "name": "build", "command": "cat" })).await;
    let again = json!({ "workspace_id": workspace, "name": "build" });
    let error = client.call("open_terminal", again).await.expect_error();
    assert_eq!(error["code"], "TERMINAL_EXISTS");
    assert!(error["next"].as_str().unwrap().contains(first["terminal_id"].as_str().unwrap()), "{error}");
    let seen = client.call("read_terminal", json!({ "terminal_id": "build" })).await.expect();
    assert_eq!(seen["terminal_id"], first["terminal_id"]);
    client.call("close_terminal", json!({ "terminal_id": "build" })).await.expect();
    let error = client.call("read_terminal", json!({ "terminal_id": "build" })).await.expect_error();
    assert_eq!(error["code"], "TERMINAL_NOT_FOUND");
    let second = client.open_with(&workspace, json!({ "name": "build", "command": "cat" })).await;
    assert_ne!(second["terminal_id"], first["terminal_id"]);
    let listed = client.call("list_terminals", json!({ "workspace_id": workspace })).await.expect();
    let states: Vec<_> =
        listed["terminals"].as_array().unwrap().iter().map(|row| row["status"].clone()).collect();
    assert_eq!(states, [json!("running"), json!("killed")]);
}
