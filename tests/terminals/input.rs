//! What is typed arrives as it was typed, or it is said that it did not.

use std::time::{Duration, Instant};

use serde_json::json;
use sha2::{Digest, Sha256};
use support::{
    World,
    terminals::{shell, shown},
};

const RAW_BYTE: &str = "import tty,sys;tty.setraw(0);print('RDY',flush=True);print(repr(sys.stdin.buffer.read(1)),flush=True);\
                        import select;print('more' if select.select([0],[],[],.3)[0] else 'no more')";

#[tokio::test(flavor = "multi_thread")]
async fn pty_07_enter_is_a_carriage_return_and_text_is_as_it_is() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    for (input, expected) in [
        (json!({ "keys": ["Enter"] }), r"b'\r'"),
        (json!({ "text": "\n" }), r"b'\n'"),
        (json!({ "text": "\r" }), r"b'\r'"),
        (json!({ "keys": ["C-c"] }), r"b'\x03'"),
    ] {
        let terminal = client.open(&workspace, &format!("python3 -c \"{RAW_BYTE}\"")).await;
        client.look(&terminal, json!({ "until": "RDY", "wait_seconds": 10 })).await;
        client.send(&terminal, input).await;
        let seen = client.terminal_ended(&terminal).await;
        let rows: Vec<&str> = shown(&seen).split_whitespace().collect();
        assert_eq!(rows, ["RDY", expected, "no", "more"], "{}", shown(&seen));
    }
    let terminal = client.open(&workspace, "cat -v").await;
    let seen = client.enter(&terminal, r"a\rb\x03", "(?s)rb.*rb").await;
    assert_eq!(shown(&seen).lines().collect::<Vec<_>>(), [r"a\rb\x03", r"a\rb\x03"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn pty_08_control_c_interrupts() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let shell = shell(&client, &workspace).await;
    client.send(&shell, json!({ "text": "sleep 100", "keys": ["Enter"] })).await;
    let begun = Instant::now();
    let seen = client.press(&shell, &["C-c"], r"\^C\n% $").await;
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert!(shown(&seen).contains("^C"), "{}", shown(&seen));
    client.enter(&shell, "echo $?", "(?m)^130$").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pty_09_a_line_that_the_kernel_would_cut_is_refused() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let terminal = client.open(&workspace, "stty -echo; wc -c").await;
    let input = json!({ "terminal_id": terminal["terminal_id"], "text": format!("{}\n", "x".repeat(5_000)) });
    let error = client.call("send_input", input).await.expect_error();
    assert_eq!(error["code"], "INVALID_ARGUMENT");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("a line of 5000 bytes") && message.contains("4095"), "{message}");
    // What fits arrives whole: 4,095 and a line feed, and many lines after one another.
    let lines = format!("{}\n", "y".repeat(4_095)) + &"z\n".repeat(20_000);
    client.send(&terminal, json!({ "text": lines })).await;
    client.send(&terminal, json!({ "keys": ["C-d"] })).await;
    let seen = client.terminal_ended(&terminal).await;
    assert_eq!(shown(&seen).trim(), (4_096 + 40_000).to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn pty_09_half_lines_are_counted_together() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let terminal = client.open(&workspace, "stty -echo; wc -c").await;
    let half = json!({ "text": "x".repeat(3_000), "wait_seconds": 0 });
    client.send(&terminal, half.clone()).await;
    let mut again = half;
    again["terminal_id"] = terminal["terminal_id"].clone();
    let error = client.call("send_input", again).await.expect_error();
    assert!(error["message"].as_str().unwrap().contains("a line of 6000 bytes"), "{error}");
    client.send(&terminal, json!({ "keys": ["Enter"], "wait_seconds": 0 })).await;
    client.send(&terminal, json!({ "keys": ["C-d"] })).await;
    assert_eq!(shown(&client.terminal_ended(&terminal).await).trim(), "3001");
}

#[tokio::test(flavor = "multi_thread")]
async fn pty_09_a_here_document_of_64_kib_arrives_whole() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let work = world.root().join("workspaces").join(&workspace).join("work");
    let body: String =
        (0..1_024).map(|line| format!("{line:05} {}\n", "abcdefghi ".repeat(6).trim_end())).collect();
    assert!(body.len() >= 64 << 10, "{}", body.len());
    let shell = shell(&client, &workspace).await;
    for (name, way) in [("pasted", "paste"), ("typed", "text")] {
        let mut input = json!({ "keys": ["Enter"], "until": "% $", "wait_seconds": 40 });
        input[way] = json!(format!("cat > {name} <<'END'\n{body}END"));
        client.send(&shell, input).await;
        client.enter(&shell, &format!("echo done {name}"), &format!("(?m)^done {name}$")).await;
        let written = std::fs::read(work.join(name)).unwrap();
        assert_eq!(Sha256::digest(&written), Sha256::digest(&body), "{name}: {} bytes", written.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pty_09_two_hundred_lines_of_python_are_run_as_they_are() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let lines: String = (0..100).map(|n| format!("    if n == {n}:\n        total += n * {n}\n")).collect();
    let program = format!(
        "def work(n):\n    total = 0\n{lines}    return total\n\nprint('sum', sum(work(n) for n in range(100)))\n"
    );
    let expected = format!("sum {}", (0..100).map(|n| n * n).sum::<u32>());
    let python = client.open(&workspace, "python3 -q").await;
    let input = json!({ "paste": program, "keys": ["Enter"], "until": format!("(?m)^{expected}$"), "wait_seconds": 20 });
    let seen = client.send(&python, input).await;
    assert_eq!(seen["matched"], true, "{}", shown(&seen));
    let shell = shell(&client, &workspace).await;
    let command = format!("python3 - <<'END'\n{program}END");
    let input = json!({ "paste": command, "keys": ["Enter"], "until": format!("(?m)^{expected}$"), "wait_seconds": 20 });
    let seen = client.send(&shell, input).await;
    assert_eq!(seen["matched"], true, "{}", shown(&seen));
}

#[tokio::test(flavor = "multi_thread")]
async fn pty_11_a_program_that_does_not_read_holds_up_nobody() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let deaf = client
        .open(&workspace, "python3 -c 'import tty,time;tty.setraw(0);print(\"RDY\");time.sleep(300)'")
        .await;
    client.look(&deaf, json!({ "until": "RDY", "wait_seconds": 10 })).await;
    let typing = tokio::spawn({
        let (client, deaf) = (client.clone(), deaf.clone());
        async move {
            let begun = Instant::now();
            let arguments = json!({ "terminal_id": deaf["terminal_id"], "text": "x".repeat(1 << 20) });
            (client.call("send_input", arguments).await, begun.elapsed())
        }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let quick = Instant::now();
    client
        .call("resize_terminal", json!({ "terminal_id": deaf["terminal_id"], "cols": 100, "rows": 20 }))
        .await
        .expect();
    let other = client.open(&workspace, "echo fine").await;
    client.terminal_ended(&other).await;
    assert!(quick.elapsed() < Duration::from_secs(2), "{:?}", quick.elapsed());
    let (answer, took) = typing.await.unwrap();
    let text = answer.text();
    let seen = answer.expect();
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert_eq!(seen["truncated_input"], true);
    assert!(seen["accepted_bytes"].as_u64().unwrap() < 1 << 20, "{seen}");
    assert!(text.contains("of 1,048,576 bytes: the program does not read"), "{text}");
    let begun = Instant::now();
    assert_eq!(client.close(&deaf).await["status"], "killed");
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn pty_12_programs_get_answers_to_what_they_ask_their_terminal() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let ask = |printed: &str, end: &str| {
        // Without an echo, which an answer that comes before the reading would have.
        format!(
            "stty -echo; printf '{printed}'; IFS= read -rs -t 3 -d '{end}' x; printf 'rc=%s %q\\n' $? \"$x\""
        )
    };
    for (command, expected) in [
        (ask(r"\033[6n", "R"), r"rc=0 $'\E[1;1'"),
        (ask(r"abc\033[6n", "R"), r"abcrc=0 $'\E[1;4'"),
        (ask(r"\033[5n", "n"), r"rc=0 $'\E[0'"),
        (ask(r"\033[c", "c"), r"rc=0 $'\E[?6'"),
        (ask(r"\033]11;?\033\\", "\\"), r"rc=0 $'\E]11;rgb:1212/1212/1212\E'"),
    ] {
        let terminal = client.open(&workspace, &command).await;
        let seen = client.terminal_ended(&terminal).await;
        assert_eq!(shown(&seen), expected, "{command}");
    }
    let halves = "stty -echo; printf '\\033['; sleep .3; printf '6n'; IFS= read -rs -t 3 -d R x; printf 'rc=%s %q\\n' $? \"$x\"";
    let terminal = client.open(&workspace, halves).await;
    assert_eq!(shown(&client.terminal_ended(&terminal).await), r"rc=0 $'\E[1;1'");
}

#[tokio::test(flavor = "multi_thread")]
async fn pty_20_end_of_file_can_be_typed() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let cat = client.open(&workspace, "cat").await;
    client.send(&cat, json!({ "text": "abc" })).await;
    client.send(&cat, json!({ "keys": ["C-d", "C-d"] })).await;
    let seen = client.terminal_ended(&cat).await;
    assert_eq!((&seen["exit_code"], shown(&seen)), (&json!(0), "abcabc"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_none_types_nothing_of_the_call() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let cat = client.open(&workspace, "cat").await;
    let input = json!({ "terminal_id": cat["terminal_id"], "text": "abc", "keys": ["Enter", "Hyper-x"] });
    let error = client.call("send_input", input).await.expect_error();
    assert!(error["message"].as_str().unwrap().starts_with("keys: 'Hyper-x' is no key"), "{error}");
    assert_eq!(shown(&client.look(&cat, json!({})).await), "");
}
