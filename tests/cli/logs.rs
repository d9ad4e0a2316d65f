//! Following what a job or a terminal prints.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use sha2::{Digest, Sha256};
use support::{World, jobs::id, wait};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use crate::{printed, runlet};

/// A world whose gateway comes back at the same address.
async fn world_at_one_address() -> World {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    World::builder().gateway("RUNLET_LISTEN", free.to_string()).start().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_growing_job_is_followed_over_a_restart_of_the_gateway() {
    let mut world = world_at_one_address().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let command = "for i in $(seq 1 400); do echo \"line $i $RANDOM\"; sleep .01; done | tee all; exit 7";
    let job = client.start(&workspace, command).await;
    let mut follower = runlet(&world, &["logs", "-f", id(&job)]).spawn().unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let mut got = String::new();
    for _ in 0..30 {
        got += &(lines.next_line().await.unwrap().unwrap() + "\n");
    }
    world.signal_gateway(0, Signal::KILL);
    world.gateway_ended(0).await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let number = world.start_gateway().await;
    while let Some(line) = lines.next_line().await.unwrap() {
        got += &(line + "\n");
    }
    let status = follower.wait().await.unwrap();
    let mut said = String::new();
    follower.stderr.take().unwrap().read_to_string(&mut said).await.unwrap();
    let all = world.root().join("workspaces").join(&workspace).join("work/all");
    let expected = std::fs::read(all).unwrap();
    assert_eq!(expected.iter().filter(|&&byte| byte == b'\n').count(), 400);
    assert_eq!(Sha256::digest(got.as_bytes()), Sha256::digest(&expected), "{said}");
    assert_eq!(status.code(), Some(7), "{said}");
    assert!(said.lines().count() == 1 && said.contains("Waiting for it"), "{said}");
    assert_eq!(world.client_of(number).job(id(&job)).await["exit_code"], 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_goes_with_its_executor_is_told_to_be_lost() {
    let mut world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let job = client.start(&workspace, "echo begun; sleep 60").await;
    let mut follower = runlet(&world, &["logs", "-f", id(&job)]).spawn().unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("begun"));
    world.kill_executor().await;
    world.start_executor().await;
    assert_eq!(lines.next_line().await.unwrap(), None);
    assert_eq!(follower.wait().await.unwrap().code(), Some(1));
    let mut said = String::new();
    follower.stderr.take().unwrap().read_to_string(&mut said).await.unwrap();
    assert!(said.ends_with("was lost: the executor stopped while it ran\n"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_has_enough_ends_it_quietly() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    // The second job prints nothing more, so that no broken pipe would tell.
    for command in ["while sleep .01; do echo line; done", "echo line; sleep 60"] {
        let job = client.start(&workspace, command).await;
        let mut follower = runlet(&world, &["logs", "-f", id(&job)]).spawn().unwrap();
        let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
        assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("line"));
        drop(lines);
        let ended = tokio::time::timeout(Duration::from_secs(10), follower.wait()).await.unwrap().unwrap();
        assert_eq!(ended.code(), Some(0), "{command}");
        let mut said = String::new();
        follower.stderr.take().unwrap().read_to_string(&mut said).await.unwrap();
        assert_eq!(said, "", "{command}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_are_printed_cleaned_or_as_they_are() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let more = json!({ "separate_stderr": true });
    let job = client
        .run_with(&workspace, "printf '\\033[1mbold\\033[0m\\nend\\n'; echo bad >&2; exit 4", more)
        .await;
    let job = id(&job);
    for (arguments, expected, status) in [
        (&[job][..], "bold\nend\n", 0),
        (&["-f", job], "bold\nend\n", 4),
        (&["--raw", job], "\u{1b}[1mbold\u{1b}[0m\nend\n", 0),
        (&["--tail", "4", job], "end\n", 0),
        (&["--from", "13", job], "end\n", 0),
        (&["--stderr", job], "bad\n", 0),
        (&["--from", "17", "--follow", job], "", 4),
    ] {
        let all = [&["logs"], arguments].concat();
        let (shown, said, code) = printed(runlet(&world, &all)).await;
        assert_eq!((shown.as_str(), said.as_str(), code), (expected, "", Some(status)), "{arguments:?}");
    }
    let (_, said, code) = printed(runlet(&world, &["logs", "--from", "1000", job])).await;
    assert!(code == Some(2) && said.contains("expected 17 or less"), "{said}");
    let (_, said, code) = printed(runlet(&world, &["logs", "--stderr", "term_a"])).await;
    assert!(code == Some(2) && said.contains("--stderr"), "{said}");

    let terminal = client.open(&workspace, "printf '\\033[31mred\\033[0m\\n'; exit 5").await;
    client.terminal_ended(&terminal).await;
    let terminal = terminal["terminal_id"].as_str().unwrap();
    let (shown, _, code) = printed(runlet(&world, &["logs", "-f", terminal])).await;
    assert_eq!((shown.as_str(), code), ("red\n", Some(5)));
    let (shown, _, _) = printed(runlet(&world, &["logs", "--raw", terminal])).await;
    assert_eq!(shown, "\u{1b}[31mred\u{1b}[0m\r\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_longer_kept_is_told() {
    let world = World::builder().executor("RUNLET_JOB_LOG_BYTES", "1048576").start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let job = client.run(&workspace, "yes 0123456789abcdef | head -c 8388608").await;
    let mut printing = runlet(&world, &["logs", "--raw", id(&job)]).spawn().unwrap();
    let (mut bytes, mut said) = (Vec::new(), String::new());
    let (mut out, mut err) = (printing.stdout.take().unwrap(), printing.stderr.take().unwrap());
    let (out, err) = tokio::join!(out.read_to_end(&mut bytes), err.read_to_string(&mut said));
    out.unwrap();
    err.unwrap();
    let told: u64 = said.lines().map(|line| line.split(' ').nth(1).unwrap().parse::<u64>().unwrap()).sum();
    assert!(told > 0 && said.contains("no longer kept"), "{said}");
    assert_eq!(bytes.len() as u64 + told, 8_388_608, "{said}");
    wait::until("the end", Duration::from_secs(5), async || printing.wait().await.unwrap().success()).await;
}
