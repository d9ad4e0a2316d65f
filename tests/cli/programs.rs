//! Programs that a person takes over, and what they are typed.

use std::time::Duration;

use alacritty_terminal::term::TermMode;
use serde_json::json;
use sha2::{Digest, Sha256};
use support::wait;

use crate::attach::{attached, desk};

#[tokio::test(flavor = "multi_thread")]
async fn vim_gets_the_cursor_keys_in_the_mode_that_it_asked_for() {
    let desk = desk().await;
    let file = json!({ "workspace_id": desk.workspace, "path": "notes.txt", "content": "one\ntwo\nthree\n" });
    desk.client.call("write_file", file).await.expect();
    let vim = desk.client.open(&desk.workspace, "TERM=xterm-256color vim -u NONE -N notes.txt").await;
    let mut person = attached(&desk, &vim, &[]).await;
    person.sees("one\ntwo\nthree\n~").await;
    wait::until("the mode of the keys", Duration::from_secs(5), async || {
        person.mode().contains(TermMode::APP_CURSOR)
    })
    .await;
    // What a terminal in this mode sends for Down and End, within an insertion.
    person.types("i\x1bOB\x1bOF!\x1b");
    person.sees("one\ntwo!\nthree").await;
    person.types(":wq\r");
    assert_eq!(person.ended().await, 0);
    person.is_restored();
    let work = desk.world.root().join("workspaces").join(&desk.workspace).join("work");
    assert_eq!(std::fs::read_to_string(work.join("notes.txt")).unwrap(), "one\ntwo!\nthree\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paste_arrives_as_one() {
    let desk = desk().await;
    let command = "PS1='% ' exec bash --norc -i";
    let terminal = desk.client.open(&desk.workspace, command).await;
    let mut person = attached(&desk, &terminal, &[]).await;
    wait::until("bracketed paste", Duration::from_secs(5), async || {
        person.mode().contains(TermMode::BRACKETED_PASTE)
    })
    .await;
    person.types("\x1b[200~echo o\"\"ne\necho tw\"\"o\x1b[201~");
    person.sees("% echo o\"\"ne\necho tw\"\"o").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!person.screen().contains("\none\n"), "{}", person.screen());
    person.types("\r");
    person.sees("\none\ntwo\n%").await;
    // Much, and more than one call carries: nothing is lost and the order is kept.
    person.types("stty -icanon -echo; head -c 200000 | sha256sum\r");
    tokio::time::sleep(Duration::from_millis(500)).await;
    let lines = (0..20_000).map(|number| format!("{number} 日本語\n"));
    let mut much = lines.collect::<String>();
    much.truncate(much.floor_char_boundary(200_000));
    much += &".".repeat(200_000 - much.len());
    let sum: String = Sha256::digest(much.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    person.types(&much);
    person.sees(&sum).await;
}
