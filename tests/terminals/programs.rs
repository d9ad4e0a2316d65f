//! Programs that agents use in terminals, driven for real, and what they show.

use serde_json::json;
use support::{
    World,
    terminals::{shell, shown},
    world::program,
};

#[tokio::test(flavor = "multi_thread")]
async fn vim_edits_a_file() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let work = world.root().join("workspaces").join(&workspace).join("work");
    let file = json!({ "workspace_id": workspace, "path": "notes.txt", "content": "one\ntwo\nthree\n" });
    client.call("write_file", file).await.expect();
    let vim = client
        .open_with(&workspace, json!({ "command": "vim -u NONE -N notes.txt", "cols": 40, "rows": 8 }))
        .await;
    let seen = client.look(&vim, json!({ "until": "three", "wait_seconds": 5 })).await;
    assert_eq!(shown(&seen), "one\ntwo\nthree\n~\n~\n~\n~\n\"notes.txt\" 3L, 14B");
    assert_eq!(seen["cursor"], json!({ "row": 1, "column": 1, "visible": true }));
    let seen = client.press(&vim, &["j", "d", "d"], "(?m)^one\nthree\n~").await;
    assert_eq!(seen["cursor"]["row"], 2);
    client.send(&vim, json!({ "text": "A!", "keys": ["Escape"], "until": "three!" })).await;
    client.send(&vim, json!({ "keys": ["Up", "End"], "text": "", "wait_seconds": 1 })).await;
    let seen = client
        .send(&vim, json!({ "text": ":wq", "keys": ["Enter"], "until": "written", "wait_seconds": 5 }))
        .await;
    assert_eq!(client.terminal_ended(&vim).await["exit_code"], 0, "{}", shown(&seen));
    assert_eq!(std::fs::read_to_string(work.join("notes.txt")).unwrap(), "one\nthree!\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn less_pages_through_a_file() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let less = client
        .open_with(&workspace, json!({ "command": "seq 1 200 > n; less n", "cols": 40, "rows": 10 }))
        .await;
    let seen = client.look(&less, json!({ "until": "(?m)^9$", "wait_seconds": 5 })).await;
    assert_eq!(shown(&seen), "1\n2\n3\n4\n5\n6\n7\n8\n9\nn");
    let seen = client.press(&less, &["Space"], "(?m)^18$").await;
    assert_eq!(shown(&seen), "10\n11\n12\n13\n14\n15\n16\n17\n18\n:");
    client.press(&less, &["G"], "\\(END\\)").await;
    let seen = client.enter(&less, "?^77", "(?m)^77$").await;
    assert!(shown(&seen).starts_with("77\n78\n"), "{}", shown(&seen));
    client.send(&less, json!({ "keys": ["q"] })).await;
    assert_eq!(client.terminal_ended(&less).await["exit_code"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn top_and_htop_draw_their_tables() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    for (command, heading) in [("top", "PID +USER"), ("htop", "PID.?USER")] {
        let terminal = client.open(&workspace, command).await;
        let seen = client.look(&terminal, json!({ "until": heading, "wait_seconds": 10 })).await;
        assert_eq!(seen["matched"], true, "{command}:\n{}", shown(&seen));
        client.send(&terminal, json!({ "keys": ["q"] })).await;
        assert_eq!(client.terminal_ended(&terminal).await["exit_code"], 0, "{command}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn python_is_talked_with() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let python = client.open(&workspace, "python3 -q").await;
    client.look(&python, json!({ "until": ">>> $", "wait_seconds": 10 })).await;
    client.enter(&python, "x = [n * n for n in range(5)]", ">>> $").await;
    let seen = client.enter(&python, "x", "(?s)16\\].*>>> $").await;
    assert!(shown(&seen).contains("\n[0, 1, 4, 9, 16]\n>>> "), "{}", shown(&seen));
    let seen = client.enter(&python, "1/0", "(?s)ZeroDivisionError.*>>> $").await;
    assert_eq!(seen["status"], "running");
    client.send(&python, json!({ "keys": ["C-d"] })).await;
    assert_eq!(client.terminal_ended(&python).await["exit_code"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn readline_edits_and_remembers_lines() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let shell = shell(&client, &workspace).await;
    client.enter(&shell, "echo world", "(?m)^world$").await;
    client.send(&shell, json!({ "keys": ["Up", "M-b", "Delete"], "until": "% echo orld" })).await;
    client.enter(&shell, "W", "(?m)^World$").await;
    client.send(&shell, json!({ "text": "rm everything", "until": "everything" })).await;
    let seen = client.press(&shell, &["C-u"], "% $").await;
    assert!(!shown(&seen).contains("rm everything"), "{}", shown(&seen));
    client.enter(&shell, "mkdir some_directory", "% $").await;
    client.send(&shell, json!({ "text": "cd some_", "keys": ["Tab"], "until": "cd some_directory/$" })).await;
    client.enter(&shell, "", "% $").await;
    client.enter(&shell, "pwd", "some_directory\n").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_screen_program_is_driven_by_its_keys() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let work = world.root().join("workspaces").join(&workspace).join("work");
    std::fs::copy(program("full-screen"), work.join("full-screen")).unwrap();
    let terminal =
        client.open_with(&workspace, json!({ "command": "./full-screen", "cols": 60, "rows": 10 })).await;
    let seen = client.look(&terminal, json!({ "until": "last none", "wait_seconds": 5 })).await;
    assert_eq!(
        shown(&seen),
        "┌──────────┐\n│> first   │\n│  second  │\n│  日本語  │\n└──────────┘\n60x10 last none"
    );
    assert_eq!((&seen["alternate_screen"], &seen["cursor"]["visible"]), (&json!(true), &json!(false)));
    let seen = client.press(&terminal, &["Down", "Down"], "last Down").await;
    assert!(shown(&seen).contains("│> 日本語  │"), "{}", shown(&seen));
    for (key, named) in [
        ("F5", "F\\(5\\)"),
        ("C-a", "CONTROL\\)-Char\\('a'\\)"),
        ("M-x", "ALT\\)-Char\\('x'\\)"),
        ("S-Tab", "BackTab"),
        ("PageDown", "PageDown"),
        ("Backspace", "Backspace"),
        ("C-Left", "CONTROL\\)-Left"),
        ("Escape", "Esc"),
        ("é", "Char\\('é'\\)"),
    ] {
        client.press(&terminal, &[key], &format!("last .*{named}")).await;
    }
    let size = json!({ "terminal_id": terminal["terminal_id"], "cols": 70, "rows": 12 });
    client.call("resize_terminal", size).await.expect();
    client.look(&terminal, json!({ "until": "70x12 last resize 70x12", "wait_seconds": 5 })).await;
    client.send(&terminal, json!({ "keys": ["q"] })).await;
    let seen = client.terminal_ended(&terminal).await;
    assert_eq!((&seen["exit_code"], shown(&seen)), (&json!(0), "chosen: 日本語"));
}
