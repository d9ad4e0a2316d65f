//! What bash is given and what comes back: standard input, quoting, length, exit codes.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::World;
use support::jobs::{end, id};

#[tokio::test(flavor = "multi_thread")]
async fn exe_01_commands_that_read_standard_input_find_it_empty() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    for (command, output, code) in [
        ("cat", "", 0),
        ("read x; echo \"[$x]\"", "[]\n", 0),
        ("python3 -", "", 0),
        ("grep foo", "", 1),
        ("echo > file; rg foo", "", 1),
    ] {
        let job = client.run_with(&workspace, command, json!({ "timeout_seconds": 10 })).await;
        assert_eq!((&job["output"], end(&job)), (&json!(output), (Some("exited"), Some(code))), "{command}");
    }
    let began = Instant::now();
    let job = client.run(&workspace, "ssh -T git@localhost").await;
    assert!(began.elapsed() < Duration::from_secs(10) && job["status"] == json!("exited"), "{job}");
}

#[tokio::test(flavor = "multi_thread")]
async fn exe_01_standard_input_is_what_was_given() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let given = "ä\n".repeat(200_000);
    let job = client.run_with(&workspace, "cat > f; wc -c < f", json!({ "stdin": given })).await;
    assert_eq!(job["output"], json!("600000\n"));
    // A program that never reads what it is given ends all the same.
    let job = client.run_with(&workspace, "sleep .2; echo done", json!({ "stdin": given })).await;
    assert_eq!((&job["output"], end(&job)), (&json!("done\n"), (Some("exited"), Some(0))));

    let open = json!({ "keep_stdin_open": true, "wait_seconds": 0, "stdin": "one\n" });
    let job = client.run_with(&workspace, "cat; echo over; sleep 600", open).await;
    let write = |text: &str, close: bool| json!({ "job_id": id(&job), "text": text, "close": close });
    let written = client.call("write_stdin", write("two\n", false)).await.expect();
    assert_eq!((&written["accepted_bytes"], &written["closed"]), (&json!(4), &json!(false)));
    let _closed = client.call("write_stdin", write("three\n", true)).await.expect();
    let read = json!({ "job_id": id(&job), "until": "over", "wait_seconds": 10 });
    let read = client.call("read_output", read).await.expect();
    assert_eq!(read["output"], json!("one\ntwo\nthree\nover\n"));
    let error = client.call("write_stdin", write("four", false)).await.expect_error();
    assert_eq!(error["code"], json!("STDIN_CLOSED"), "{error}");
    let _cancelled = client.cancel(id(&job)).await;
    let error = client.call("write_stdin", write("five", false)).await.expect_error();
    assert_eq!(error["code"], json!("JOB_ENDED"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_three_streams_can_be_opened_by_name() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let command = "echo out > /dev/stdout; echo err > /dev/stderr; cat /dev/stdin | tee /dev/stderr >/dev/null; \
                   echo fd > /proc/self/fd/1";
    for (more, errors) in
        [(json!({ "stdin": "in\n" }), ""), (json!({ "stdin": "in\n", "separate_stderr": true }), "err\nin\n")]
    {
        let job = client.run_with(&workspace, command, more).await;
        let output = if errors.is_empty() { "out\nerr\nin\nfd\n" } else { "out\nfd\n" };
        assert_eq!((&job["output"], end(&job)), (&json!(output), (Some("exited"), Some(0))), "{job}");
        assert_eq!(job["stderr"].as_str().unwrap_or_default(), errors);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exe_02_a_prompt_finds_no_terminal() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let job = client.run(&workspace, "read -p pw: x </dev/tty; echo rc=$?").await;
    let text = job["output"].as_str().unwrap();
    assert!(text.contains("/dev/tty: No such device or address") && text.ends_with("rc=1\n"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn exe_03_commands_after_a_here_document_run() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let job = client.run(&workspace, "python3 - <<'PY'\nprint('first')\nPY\necho second").await;
    assert_eq!((&job["output"], end(&job)), (&json!("first\nsecond\n"), (Some("exited"), Some(0))));
}

#[tokio::test(flavor = "multi_thread")]
async fn exe_05_nothing_is_altered_on_the_way_to_bash() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let command = r#"printf '%s\n' "p \$HOME" '$HOME' "a\"b" 'it'"'"'s' 'x\ny' '!!' '%d' '*'"#;
    let expected = "p $HOME\n$HOME\na\"b\nit's\nx\\ny\n!!\n%d\n*\n";
    assert_eq!(client.run(&workspace, command).await["output"], json!(expected));
    let windows = "for i in 1 2; do\r\n  echo $i\r\ndone\r\ncat <<E\r\nx\r\nE\r\n";
    assert_eq!(client.run(&workspace, windows).await["output"], json!("1\n2\nx\n"));
    let strange = client.run(&workspace, "printf '%s|' 'tab\there' $'\\x01' 'é€😀'").await;
    assert_eq!(strange["output"], json!("tab\there|\\x01|é€😀|"));
}

#[tokio::test(flavor = "multi_thread")]
async fn exe_06_a_command_may_have_any_length() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    for length in [131_068, 131_069, 131_070, 131_071, 1_000_000] {
        let command = format!(": {}", "a".repeat(length));
        assert_eq!(end(&client.run(&workspace, &command).await), (Some("exited"), Some(0)), "{length}");
    }
    let document = format!("cat > f <<'END'\n{}\nEND\nwc -c < f\necho ok", "x".repeat(199_999));
    assert_eq!(client.run(&workspace, &document).await["output"], json!("200000\nok\n"));
    // Such a command is still one command: its exit code, its standard input and `$0` are as ever.
    let reading = format!("cat; : {}; exit 7", "a".repeat(200_000));
    let job = client.run_with(&workspace, &reading, json!({ "stdin": "given" })).await;
    assert_eq!((&job["output"], end(&job)), (&json!("given"), (Some("exited"), Some(7))));
    let error = client.refused(&workspace, "true", json!({ "env": { "BIG": "x".repeat(200_000) } })).await;
    assert_eq!(error["code"], json!("INVALID_ARGUMENT"));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("env: BIG has 200004 bytes") && message.contains("131071"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn exe_15_every_way_to_end_has_its_exit_code() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    for (command, code, signal) in [
        ("kill -9 $$", 137, Some("KILL")),
        ("kill -TERM $$", 143, Some("TERM")),
        ("kill -INT $$", 130, Some("INT")),
        ("kill -SEGV $$", 139, Some("SEGV")),
        ("exit 300", 44, None),
        ("exit 3", 3, None),
        ("nosuchcmd_x", 127, None),
        ("echo true > noexec; ./noexec", 126, None),
        ("/tmp", 126, None),
        ("bash -c 'kill -9 $$'; exit $?", 137, None),
    ] {
        let status = if signal.is_some() { "killed" } else { "exited" };
        for wait_seconds in [0, 20] {
            let job = client.run_with(&workspace, command, json!({ "wait_seconds": wait_seconds })).await;
            let job = client.ended(id(&job)).await;
            assert_eq!(end(&job), (Some(status), Some(code)), "{command}");
            assert_eq!(job["signal"], signal.map_or(Value::Null, Into::into), "{command}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exe_20_output_and_exit_code_are_taken_as_they_are() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let job = client.run(&workspace, "printf 'no newline'").await;
    assert_eq!((&job["output"], end(&job)), (&json!("no newline"), (Some("exited"), Some(0))));
    assert_eq!(end(&client.run(&workspace, "false").await), (Some("exited"), Some(1)));
    let job = client.run(&workspace, "tr '\\0' '\\n' < /proc/self/cmdline; exit 4").await;
    assert_eq!((&job["output"], end(&job)), (&json!("tr\n\\0\n\\n\n"), (Some("exited"), Some(4))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_cannot_start_says_why() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    for (command, more, word) in [
        ("   ", json!({}), "command"),
        ("echo a\0b", json!({}), "NUL"),
        ("true", json!({ "cwd": "nowhere" }), "nowhere"),
        ("true", json!({ "cwd": "/etc" }), "/etc"),
        ("true", json!({ "env": { "A": "x\0y" } }), "env"),
    ] {
        let error = client.refused(&workspace, command, more).await;
        assert!(error["message"].as_str().unwrap().contains(word), "{word}: {error}");
    }
    let _file = client.run(&workspace, "echo > file; mkdir dir").await;
    let error = client.refused(&workspace, "true", json!({ "cwd": "file" })).await;
    assert!(error["message"].as_str().unwrap().contains("file"), "{error}");
    let job = client.run_with(&workspace, "pwd", json!({ "cwd": "dir" })).await;
    assert!(job["output"].as_str().unwrap().ends_with("/work/dir\n"), "{job}");
    // What was refused is not on the list of jobs.
    let listed = client.call("list_jobs", json!({})).await.expect();
    assert_eq!(listed["jobs"].as_array().unwrap().len(), 2);
}
