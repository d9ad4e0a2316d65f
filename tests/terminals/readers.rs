//! Any number may look at a terminal, from anywhere, each from where it was.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{
    World,
    terminals::{shell, shown},
};

#[tokio::test(flavor = "multi_thread")]
async fn two_readers_each_have_their_own_cursor() {
    let mut world = World::start().await;
    world.start_gateway().await;
    let (one, other) = (world.client_of(0), world.client_of(1));
    let workspace = one.workspace().await;
    let terminal = one.open(&workspace, "for i in $(seq 1 40); do echo line $i; sleep .05; done").await;
    let follow = async |client: &support::Client, pause: u64| {
        let (mut text, mut cursor) = (String::new(), json!(0));
        loop {
            let look = json!({ "view": "output", "cursor": cursor, "wait_seconds": 5 });
            let read = client.look(&terminal, look).await;
            text.push_str(read["output"].as_str().unwrap());
            cursor = read["next_cursor"].clone();
            if read["end"] == true {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    };
    let (first, second) = tokio::join!(follow(&one, 0), follow(&other, 130));
    let expected: String = (1..=40).map(|line| format!("line {line}\n")).collect();
    assert_eq!((first.as_str(), second.as_str()), (expected.as_str(), expected.as_str()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_outlives_whoever_opened_it() {
    let mut world = World::start().await;
    let opener = world.client();
    let workspace = opener.workspace().await;
    let terminal = shell(&opener, &workspace).await;
    opener.enter(&terminal, "x=kept", "% $").await;
    world.signal_gateway(0, rustix::process::Signal::KILL);
    world.gateway_ended(0).await;
    let number = world.start_gateway().await;
    let client = world.client_of(number);
    let seen = client.enter(&terminal, "echo $x", "(?m)^kept$").await;
    assert!(shown(&seen).contains("% x=kept"), "{}", shown(&seen));
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_ends_when_there_is_something_to_see() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let terminal = client.open(&workspace, "sleep 3; echo now; sleep 60").await;
    let begun = Instant::now();
    let seen = client.look(&terminal, json!({ "wait_seconds": 30 })).await;
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    assert_eq!(shown(&seen), "now");
    let begun = Instant::now();
    let look = json!({ "cursor": seen["next_cursor"], "wait_seconds": 1 });
    let same = client.look(&terminal, look).await;
    assert!(begun.elapsed() >= Duration::from_millis(900), "{:?}", begun.elapsed());
    assert_eq!(shown(&same), "now");
    let past = json!({ "terminal_id": terminal["terminal_id"], "cursor": 1_000_000 });
    let error = client.call("read_terminal", past).await.expect_error();
    assert_eq!(error["code"], "CURSOR_OUT_OF_RANGE");
    assert!(error["next"].as_str().unwrap().starts_with("read_terminal("), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn until_waits_for_the_screen_or_for_the_output() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let terminal = client.open(&workspace, "sleep 1; printf '\\033[5;10Hready'; sleep 60").await;
    let seen = client.look(&terminal, json!({ "until": "ready$", "wait_seconds": 20 })).await;
    assert_eq!((&seen["matched"], shown(&seen)), (&json!(true), "\n\n\n\n         ready"));
    let shell = client.open(&workspace, "cat").await;
    let send = json!({ "text": "seen", "keys": ["Enter"], "view": "output", "until": "seen\nseen\n", "wait_seconds": 10 });
    let seen = client.send(&shell, send).await;
    assert_eq!((&seen["matched"], &seen["output"]), (&json!(true), &json!("seen\nseen\n")));
    let bad = json!({ "terminal_id": shell["terminal_id"], "until": "(" });
    let error = client.call("read_terminal", bad).await.expect_error();
    assert!(
        error["message"].as_str().unwrap().starts_with("until: expected a regular expression"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn raw_and_drawn_views_are_for_programs() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let terminal = client.open(&workspace, "printf '\\033[31mred\\033[0m'; sleep 60").await;
    client.look(&terminal, json!({ "until": "red", "wait_seconds": 5 })).await;
    let raw: Value = client.look(&terminal, json!({ "view": "raw", "cursor": 0 })).await;
    assert_eq!(raw["output_base64"], "G1szMW1yZWQbWzBt");
    let drawn = client.look(&terminal, json!({ "view": "drawn" })).await;
    assert!(shown(&drawn).contains("\u{1b}[0;31mred"), "{:?}", shown(&drawn));
}
