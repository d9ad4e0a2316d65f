//! What a terminal looks like: its size, its screens, its views.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use serde_json::{Value, json};
use support::{
    World, probe,
    terminals::{shell, shown},
};

#[tokio::test(flavor = "multi_thread")]
async fn pty_13_a_new_size_reaches_the_program() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let command =
        "stty size; tty; ps -o tty= -p $$; trap 'stty size' WINCH; for i in $(seq 100); do sleep .1; done";
    let terminal = client.open_with(&workspace, json!({ "command": command, "cols": 120, "rows": 40 })).await;
    let seen = client.look(&terminal, json!({ "until": "pts/[0-9]+\n.*pts", "wait_seconds": 5 })).await;
    assert!(shown(&seen).starts_with("40 120\n/dev/pts/"), "{}", shown(&seen));
    let size = json!({ "terminal_id": terminal["terminal_id"], "cols": 132, "rows": 50 });
    let resized = client.call("resize_terminal", size).await.expect();
    assert_eq!((&resized["cols"], &resized["rows"]), (&json!(132), &json!(50)));
    let seen = client.look(&terminal, json!({ "until": "(?m)^50 132$", "wait_seconds": 1 })).await;
    assert_eq!(seen["matched"], true, "{}", shown(&seen));
}

#[tokio::test(flavor = "multi_thread")]
async fn pty_14_odd_sizes_are_refused_or_work() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let before = probe::resident_bytes(world.executor_pid());
    for (cols, rows) in [
        (json!(0), json!(0)),
        (json!(0), json!(80)),
        (json!(1), json!(1)),
        (json!(65_535), json!(65_535)),
        (json!(-1), json!(24)),
        (json!(1e9), json!(24)),
    ] {
        let arguments =
            json!({ "workspace_id": workspace, "command": "stty size", "cols": cols, "rows": rows });
        let error = client.call("open_terminal", arguments).await.expect_error();
        assert_eq!(error["code"], "INVALID_ARGUMENT", "{cols}×{rows}");
        assert!(error["message"].as_str().unwrap().contains("cols"), "{error}");
    }
    for (cols, rows) in [(2, 1), (500, 300), (80, 24)] {
        let arguments = json!({ "command": "stty size; seq 5000", "cols": cols, "rows": rows });
        let terminal = client.open_with(&workspace, arguments).await;
        client.terminal_ended(&terminal).await;
        let written = client.written(&terminal).await;
        assert!(written.starts_with(&format!("{rows} {cols}\n")), "{}", &written[..20]);
    }
    let plain = client.open(&workspace, "stty size").await;
    assert_eq!(shown(&client.terminal_ended(&plain).await), "32 120");
    let grown = probe::resident_bytes(world.executor_pid()).saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn pty_16_the_alternate_screen_is_kept_apart() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let work = world.root().join("workspaces").join(&workspace).join("work");
    let shell = shell(&client, &workspace).await;
    client.enter(&shell, "echo MARK", "(?m)^MARK$").await;
    let vim = client.enter(&shell, "vim -u NONE -N f", "(?s)~\n~\n.*\\[New\\]").await;
    assert!(!shown(&vim).contains("MARK") && shown(&vim).contains("~\n~"), "{}", shown(&vim));
    assert_eq!(vim["alternate_screen"], true);
    client.send(&shell, json!({ "text": "ihello", "keys": ["Escape"], "until": "hello" })).await;
    let back = client.enter(&shell, ":wq", "% $").await;
    assert!(shown(&back).contains("MARK") && !shown(&back).contains('~'), "{}", shown(&back));
    assert_eq!(back["alternate_screen"], false);
    assert_eq!(std::fs::read_to_string(work.join("f")).unwrap(), "hello\n");
    let less = client.enter(&shell, "less /etc/services", "Network services").await;
    assert!(!shown(&less).contains("MARK"), "{}", shown(&less));
    let back = client.press(&shell, &["q"], "% $").await;
    assert!(shown(&back).contains("MARK") && !shown(&back).contains("Network services"), "{}", shown(&back));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_shows_the_screen() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let terminal = client.open(&workspace, r"printf '\033[41m          \033[0m\n'; sleep 60").await;
    let arguments = json!({ "terminal_id": terminal["terminal_id"], "view": "image" });
    let answer = client.call("read_terminal", arguments).await;
    let blocks = answer.result["content"].as_array().unwrap().clone();
    assert_eq!((&blocks[0]["type"], &blocks[1]["type"]), (&json!("text"), &json!("image")));
    assert_eq!(blocks[1]["mimeType"], "image/png");
    assert_eq!(answer.result["structuredContent"], Value::Null);
    let png = BASE64.decode(blocks[1]["data"].as_str().unwrap()).unwrap();
    assert!(!answer.object().to_string().contains(&BASE64.encode(&png[..60])));
    let mut reader = png::Decoder::new(std::io::Cursor::new(png)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    assert_eq!((info.width, info.height), (960, 512));
    assert_eq!(pixels[..3], [0xcd, 0x31, 0x31]);
    assert_eq!(pixels[3 * 90..3 * 91], [0x12, 0x12, 0x12]);
}

#[tokio::test(flavor = "multi_thread")]
async fn scrollback_goes_further_back_than_the_screen() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let terminal = client.open(&workspace, "seq 1 100; sleep 60").await;
    client.look(&terminal, json!({ "until": "(?m)^100$", "wait_seconds": 5 })).await;
    let screen = client.look(&terminal, json!({})).await;
    assert!(shown(&screen).starts_with("70\n71\n"), "{}", shown(&screen));
    let scrollback = client.look(&terminal, json!({ "view": "scrollback" })).await;
    let expected: Vec<String> = (1..=100).map(|line| line.to_string()).collect();
    assert_eq!(shown(&scrollback).lines().collect::<Vec<_>>(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn out_04_a_flood_in_a_terminal_takes_no_memory_and_no_time_of_others() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let before = probe::resident_bytes(world.executor_pid());
    let line = "a line of some length that is printed again and again\n";
    let lines = 1 << 20;
    let command = format!("yes '{}' | head -n {lines}", line.trim_end());
    let terminal = client.open(&workspace, &command).await;
    let mut slowest = Duration::ZERO;
    let seen = loop {
        let begun = std::time::Instant::now();
        client.call("list_files", json!({ "workspace_id": workspace })).await.expect();
        slowest = slowest.max(begun.elapsed());
        let seen = client.look(&terminal, json!({})).await;
        if seen["status"] != "running" {
            break seen;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let grown = probe::resident_bytes(world.executor_pid()).saturating_sub(before);
    // Every line feed becomes two bytes on its way through a terminal.
    assert_eq!(seen["total_bytes"], json!((line.len() + 1) * lines));
    assert_eq!((&seen["status"], &seen["exit_code"]), (&json!("exited"), &json!(0)));
    println!("grown {grown} bytes, slowest other call {slowest:?}");
    assert!(grown < 64 << 20, "{grown} bytes");
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
}
