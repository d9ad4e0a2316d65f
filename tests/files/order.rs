//! Several who change one file.

use futures::future::join_all;
use serde_json::json;

use crate::desk::{Desk, code, edit};

#[tokio::test(flavor = "multi_thread")]
async fn fed_16_parallel_edits_of_one_file_all_land() {
    let mut desk = Desk::new().await;
    let second = desk.world.start_gateway().await;
    let clients = [desk.client.clone(), desk.world.client_of(second)];
    desk.run("seq -f L%g 100 > f; mkdir d; ln -s f soft; ln f hard").await;
    let names = ["f", "./d/../f", "soft", "hard"];
    let edits = (1..=20).map(|number| {
        let mut edit = edit(names[number % 4], &format!("L{}\n", number * 5), &format!("X{}\n", number * 5));
        edit["workspace_id"] = json!(desk.id);
        clients[number / 4 % 2].call("edit_file", edit)
    });
    for answer in join_all(edits).await {
        answer.expect();
    }
    let expected: String =
        (1..=100).map(|number| format!("{}{number}\n", if number % 5 == 0 { 'X' } else { 'L' })).collect();
    for name in ["f", "soft", "hard"] {
        assert_eq!(String::from_utf8(desk.bytes(name)).unwrap(), expected, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fed_17_18_25_a_condition_tells_of_changes_and_of_nothing_else() {
    let desk = Desk::new().await;
    desk.put("f", b"v1\n").await;
    let seen = desk.read("f").await.expect()["sha256"].clone();
    desk.run("touch -r f stamp; echo v2 > f; touch -r stamp f").await;
    let write = json!({ "path": "f", "content": "mine\n", "if_match": seen });
    assert_eq!(code(desk.call("write_file", write.clone()).await), "FILE_CHANGED");
    let mut stale = edit("f", "v2", "mine");
    stale["if_match"] = seen.clone();
    assert_eq!(code(desk.call("edit_file", stale).await), "FILE_CHANGED");
    assert_eq!(desk.bytes("f"), b"v2\n");

    desk.run("echo v1 > f; touch f").await;
    let mut fresh = edit("f", "v1", "v3");
    fresh["if_match"] = seen;
    desk.call("edit_file", fresh).await.expect();
    assert_eq!(desk.bytes("f"), b"v3\n");

    let create = json!({ "path": "f", "content": "mine\n", "if_match": "absent" });
    assert!(matches!(code(desk.call("write_file", create).await).as_str(), "PATH_EXISTS" | "FILE_CHANGED"));
    assert_eq!(desk.bytes("f"), b"v3\n");
}
