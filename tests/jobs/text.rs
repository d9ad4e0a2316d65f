//! Output as text: cut, cleaned, put together again.

use serde_json::{Value, json};
use support::World;
use support::jobs::{end, id};

const REPLACEMENT: char = '\u{fffd}';

#[tokio::test(flavor = "multi_thread")]
async fn out_01_no_cut_splits_a_character() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    for cap in 297..=303_u64 {
        for length in 297..=303_u64 {
            let command = format!("python3 -c \"print('a'*({length}-1)+'€'*10)\"");
            let job = client.run_with(&workspace, &command, json!({ "max_output_bytes": cap })).await;
            let text = job["output"].as_str().unwrap();
            assert!(text.len() as u64 <= cap && !text.contains(REPLACEMENT), "{cap} {length}: {text}");
            assert_eq!((&job["total_bytes"], &job["truncated"]), (&json!(length + 30), &json!(true)));
            let mut rest = String::new();
            let mut cursor = 0;
            while cursor < length + 30 {
                let read = json!({ "job_id": job["job_id"], "cursor": cursor, "max_output_bytes": 256 });
                let piece = client.call("read_output", read).await.expect();
                rest += piece["output"].as_str().unwrap();
                cursor = piece["next_cursor"].as_u64().unwrap();
            }
            assert_eq!(rest, "a".repeat(usize::try_from(length).unwrap() - 1) + &"€".repeat(10) + "\n");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn out_01_names_commands_and_errors_are_cut_at_characters() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    for filler in 0..4 {
        let long = "a".repeat(filler) + &"€".repeat(5000);
        let job = client.run(&workspace, &format!(": {long}")).await;
        assert_eq!(end(&job), (Some("exited"), Some(0)));
        let listed = client.call("list_jobs", json!({})).await.expect();
        let command = listed["jobs"][0]["command"].as_str().unwrap().to_owned();
        assert!(command.starts_with(": ") && command.ends_with("€…"), "{command}");
        for (tool, arguments) in [
            ("run_command", json!({ "workspace_id": long, "command": "true" })),
            ("run_command", json!({ "workspace_id": workspace, "command": "true", "cwd": long })),
            ("run_command", json!({ "workspace_id": workspace, "command": "true", "request_id": long })),
            ("run_command", json!({ "workspace_id": workspace, "command": "true", "env": { "A=": long } })),
            ("read_output", json!({ "job_id": long })),
            ("read_output", json!({ "job_id": job["job_id"], "until": format!("({long}") })),
            ("cancel_job", json!({ "job_id": job["job_id"], "signal": long })),
            ("read_file", json!({ "workspace_id": workspace, "path": long })),
            ("list_jobs", json!({ "page_token": long })),
        ] {
            let answer = client.call(tool, arguments).await;
            assert!(answer.is_error(), "{tool}: {}", answer.text());
            assert!(!answer.text().contains(REPLACEMENT), "{tool}: {}", answer.text());
            assert!(answer.text().chars().count() <= 8000, "{tool}: {}", answer.text().len());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn out_02_a_character_split_between_two_writes_stays_whole() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let split = "python3 -c \"import os,time; os.write(1,b'cleanup \\xe2'); time.sleep(.4); \
                 os.write(1,b'\\x80\\x94 end\\n')\"";
    assert_eq!(client.run(&workspace, split).await["output"], json!("cleanup — end\n"));

    let job = client.start(&workspace, split).await;
    let (mut text, mut cursor) = (String::new(), 0);
    loop {
        let read = json!({ "job_id": job["job_id"], "cursor": cursor });
        let piece = client.call("read_output", read).await.expect();
        text += piece["output"].as_str().unwrap();
        cursor = piece["next_cursor"].as_u64().unwrap();
        if piece["end"] == json!(true) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(text, "cleanup — end\n");

    let wide = client
        .run_with(
            &workspace,
            "python3 -c \"print('你'*50000,end='')\"",
            json!({ "max_output_bytes": 524_288 }),
        )
        .await;
    let text = wide["output"].as_str().unwrap();
    assert_eq!((text.chars().count(), &wide["total_bytes"]), (50_000, &json!(150_000)));
    assert!(text.chars().all(|character| character == '你'));

    let ended = client.run(&workspace, r"printf 'x\xe2\x82'").await;
    assert_eq!((&ended["output"], &ended["total_bytes"]), (&json!(r"x\xe2\x82"), &json!(3)));
}

#[tokio::test(flavor = "multi_thread")]
async fn out_08_nul_bytes_are_made_visible() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let job = client.run(&workspace, r"printf 'a\0b\n'").await;
    assert_eq!((&job["output"], &job["total_bytes"]), (&json!("a\\x00b\n"), &json!(4)));
    assert_eq!(end(&job), (Some("exited"), Some(0)));
    for command in ["head -c 4096 /bin/ls", "head -c 65536 /dev/zero", r"printf 'x\0%.0s' $(seq 40)"] {
        let call = json!({ "workspace_id": workspace, "command": command });
        let answer = client.call("run_command", call).await;
        assert!(!answer.result.to_string().contains("\\u0000"), "{command}");
    }
    let _copied = client.run(&workspace, "head -c 4096 /bin/ls > ls").await;
    let answer = client.call("read_file", json!({ "workspace_id": workspace, "path": "ls" })).await;
    assert!(!answer.result.to_string().contains("\\u0000"));
}

#[tokio::test(flavor = "multi_thread")]
async fn out_10_redrawn_lines_show_what_a_terminal_would() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let job = client.run(&workspace, r"printf 'first\rsecond\nthird\n'").await;
    assert_eq!(job["output"], json!("second\nthird\n"));

    let bar = r"for i in $(seq 5000); do printf '\rP %05d' $i; done; echo; echo DONE";
    let job = client.run_with(&workspace, bar, json!({ "max_output_bytes": 256 })).await;
    assert_eq!(job["output"], json!("P 05000\nDONE\n"));
    assert_eq!((&job["total_bytes"], &job["truncated"]), (&json!(40_006), &json!(false)));
    let raw = json!({ "job_id": job["job_id"], "raw": true, "max_output_bytes": 524_288 });
    let raw = client.call("read_output", raw).await.expect();
    assert_eq!(raw["output_base64"].as_str().unwrap().len(), 40_006_usize.div_ceil(3) * 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn out_11_escape_sequences_go_and_nothing_else() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    for (command, text) in [
        (r"printf 'a\r\nb\r\n'", "a\nb\n"),
        (r"printf '\033[?25lx\033[?25h\n'", "x\n"),
        (r"printf '\033]0;title\007y\033]8;;http://h\033\\z\033]8;;\033\\\n'", "yz\n"),
        (r"printf '\033[31'; sleep .3; printf 'mred\033[0m\n'", "red\n"),
    ] {
        assert_eq!(client.run(&workspace, command).await["output"], json!(text), "{command}");
    }
    // The same when it is read while it is written.
    let job = client
        .start(&workspace, r"printf 'a\033[31'; sleep .6; printf 'mred\033[0m\r'; sleep .6; printf '\nb\n'")
        .await;
    let (mut text, mut cursor) = (String::new(), json!(0));
    loop {
        let read = json!({ "job_id": id(&job), "cursor": cursor, "wait_seconds": 5 });
        let piece = client.call("read_output", read).await.expect();
        text += piece["output"].as_str().unwrap();
        cursor = piece["next_cursor"].clone();
        if piece["end"] == json!(true) {
            break;
        }
    }
    assert_eq!(text, "ared\nb\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_gap_leads_to_the_rest() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let call = json!({ "workspace_id": workspace, "command": "seq 1 20000", "max_output_bytes": 3000 });
    let answer = client.call("run_command", call).await;
    let text = answer.text();
    let job = answer.expect();
    assert_eq!((&job["truncated"], &job["total_bytes"]), (&Value::Bool(true), &json!(108_894)));
    assert!(text.contains("1\n2\n3\n") && text.contains("\n19999\n20000\n"), "{text}");
    let cursor = text.split("cursor=").nth(1).unwrap().split(')').next().unwrap().parse::<u64>().unwrap();
    let read = json!({ "job_id": id(&job), "cursor": cursor, "max_output_bytes": 524_288 });
    let rest = client.call("read_output", read).await.expect();
    let head = text.split_once('\n').unwrap().1.split("[…").next().unwrap();
    let all: String = (1..=20_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(head.to_owned() + rest["output"].as_str().unwrap(), all);
}
