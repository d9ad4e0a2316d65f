//! Terminals: how soon a key shows, and how fast output is drawn.

use std::process::Command;
use std::time::Instant;

use serde_json::json;

use crate::Bench;
use crate::peer::succeeds;
use crate::table::{Figure, Row, Target, Unit};
use crate::wire::{Call, Connection};

const BLOCKS: usize = 10;
const KEYS_PER_BLOCK: usize = 200;
const RUNS: usize = 3;

/// Bytes that are drawn; a terminal makes two of every line feed.
const DRAWN_BYTES: usize = 100_000_000;

/// A line as builds print them, with colours.
const LINE: &str =
    r"\e[1;32m   Compiling\e[0m something v1.2.3 (\e[36m/home/user/work/something\e[0m) [12/345] 漢字";

/// A key to a program that prints what it reads, and the screen with what it printed.
pub(crate) async fn echo(bench: &Bench) -> Vec<Row> {
    let client = bench.programs.client();
    let terminal = client.open(&bench.workspace, "stty raw -echo; exec cat").await;
    let id = &terminal["terminal_id"];
    let call =
        Call::tool("send_input", &json!({ "terminal_id": id, "text": "a", "until": "a" }), "until matched");
    let mut ours = Connection::open(bench.programs.address).await;
    let mut times = Vec::new();
    for block in 0..=BLOCKS {
        let time = ours.median(&call, KEYS_PER_BLOCK).await;
        // The first block warms up.
        if block > 0 {
            times.push(time);
        }
    }
    client.close(&terminal).await;
    let ours = Figure::of(Unit::Milliseconds, times);
    vec![Row::new("send_input and its echo, p50", &ours).target(Target::AtMost(2.0))]
}

/// Coloured lines through a terminal and its screen, and through script(1), which draws nothing, in turn.
pub(crate) async fn drawing(bench: &Bench) -> Vec<Row> {
    let client = bench.programs.client();
    let make = format!("yes \"$(printf '{LINE}')\" | head -c {DRAWN_BYTES} > drawn");
    client.run(&bench.workspace, &make).await;
    let file = bench.directory.path().join("var/workspaces").join(&bench.workspace).join("work/drawn");
    let (mut own_rates, mut script_rates) = (Vec::new(), Vec::new());
    let rate =
        |start: Instant| f64::from(u32::try_from(DRAWN_BYTES).unwrap()) / 1e6 / start.elapsed().as_secs_f64();
    for _ in 0..RUNS {
        let start = Instant::now();
        let terminal = client.open(&bench.workspace, "cat drawn").await;
        client.terminal_ended(&terminal).await;
        own_rates.push(rate(start));
        let start = Instant::now();
        let cat = format!("cat {}", file.display());
        assert!(succeeds(
            Command::new("script").args(["-qc", &cat, "/dev/null"]).stdout(std::process::Stdio::null())
        ));
        script_rates.push(rate(start));
    }
    let ours = Figure::of(Unit::MegabytesPerSecond, own_rates);
    let what = "100 MB of terminal output, logged and drawn";
    vec![
        Row::new(what, &ours)
            .beside("script(1), not drawn", Figure::of(Unit::MegabytesPerSecond, script_rates)),
    ]
}
