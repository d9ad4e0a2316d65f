//! Searching a tree as large as a big repository.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde_json::json;

use crate::Bench;
use crate::table::{Figure, Row, Target, Unit};
use crate::wire::milliseconds;

const DIRECTORIES: usize = 200;
const FILES_PER_DIRECTORY: usize = 100;
const LINES_PER_FILE: usize = 180;
const RUNS: usize = 7;
const WORDS: [&str; 16] = [
    "return", "buffer", "let", "value", "if", "stream", "self", "cursor", "match", "error", "into", "write",
    "state", "the", "while", "field",
];

/// A pattern with few hits and one with as many as a page holds, by us and by `rg`, in turn.
pub(crate) async fn beside_ripgrep(bench: &Bench) -> Vec<Row> {
    let client = bench.programs.client();
    let made = client.call("create_workspace", json!({ "python": false })).await.expect();
    let root = Path::new(made["path"].as_str().expect("a path"));
    grow(root);
    let has_ripgrep = Command::new("rg").arg("--version").output().is_ok();
    if !has_ripgrep {
        eprintln!("rg is missing (package ripgrep), so search_files stands alone");
    }
    let mut rows = Vec::new();
    for (what, pattern, hits) in
        [("20 hits", r"rare_\w+\(", 20), ("1,000 hits", r"common_\w+\(", 1000), ("no hit", r"absent_\w+", 0)]
    {
        let search = json!({
            "workspace_id": made["workspace_id"], "pattern": pattern, "page_size": 1000,
        });
        let (mut own_times, mut rg_times) = (Vec::new(), Vec::new());
        for run in 0..=RUNS {
            let start = Instant::now();
            let answer = client.call("search_files", search.clone()).await;
            let own_time = milliseconds(start.elapsed());
            let found = answer.text().lines().filter(|line| line.contains(".rs:")).count();
            assert!(!answer.is_error() && found == hits, "{found} of {hits} hits: {}", answer.text());
            let rg_time = has_ripgrep.then(|| ripgrep(root, pattern, hits));
            // The first run warms up.
            if run > 0 {
                own_times.push(own_time);
                rg_times.extend(rg_time);
            }
        }
        let row = Row::new(
            format!("search_files, 20,000 files, {what}"),
            &Figure::of(Unit::Milliseconds, own_times),
        );
        rows.push(match has_ripgrep {
            true => {
                row.beside("rg", Figure::of(Unit::Milliseconds, rg_times)).target(Target::RatioAtMost(1.3))
            }
            false => row,
        });
    }
    let _deleted =
        client.call("delete_workspace", json!({ "workspace_id": made["workspace_id"] })).await.expect();
    rows
}

/// Milliseconds that `rg` takes.
fn ripgrep(root: &Path, pattern: &str, hits: usize) -> f64 {
    let start = Instant::now();
    let output =
        Command::new("rg").args(["--line-number", "--no-heading", pattern, "."]).current_dir(root).output();
    let time = milliseconds(start.elapsed());
    assert_eq!(
        output.unwrap().stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).count(),
        hits
    );
    time
}

/// Makes 20,000 files of some 10 kB each: 20 have a line with the rare word, 1,000 one with the common word.
fn grow(root: &Path) {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for number in 0..DIRECTORIES * FILES_PER_DIRECTORY {
        let directory = root.join(format!("part{}", number / FILES_PER_DIRECTORY));
        if number.is_multiple_of(FILES_PER_DIRECTORY) {
            fs::create_dir(&directory).unwrap();
        }
        let mut text = String::new();
        for _ in 0..LINES_PER_FILE {
            for _ in 0..10 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                text += WORDS[usize::from(state.to_le_bytes()[0] % 16)];
                text.push(' ');
            }
            text.push('\n');
        }
        if number.is_multiple_of(1000) {
            text += "fn rare_word() {\n";
        }
        if number.is_multiple_of(20) {
            text += "fn common_word() {\n";
        }
        fs::write(directory.join(format!("file{number}.rs")), text).unwrap();
    }
}
