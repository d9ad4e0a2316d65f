//! Names of files.

use serde_json::json;

use crate::desk::Desk;

#[tokio::test(flavor = "multi_thread")]
async fn fed_28_names_that_are_no_text_work_as_the_listing_gives_them() {
    let desk = Desk::new().await;
    desk.run(
        r"number=0
          for name in $'bad\xff.txt' $'nl\nx' $'\x1b[31m' '-rf' ' lead' 'back\slash' 'literal \xff' 'caf€'; do
              number=$((number + 1)); echo content $number > ./$name
          done
          mkdir $'dir\xfe'; echo content 9 > $'dir\xfe/in'"
            .replace("./$name", "\"./$name\"")
            .as_str(),
    )
    .await;
    let listed = desk.call("list_files", json!({ "include_ignored": true })).await.expect();
    let paths: Vec<&str> = listed["entries"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["kind"] == json!("file"))
        .map(|entry| entry["path"].as_str().unwrap())
        .collect();
    assert_eq!(paths.len(), 9, "{paths:?}");
    let mut contents = Vec::new();
    for path in &paths {
        contents.push(desk.read(path).await.expect()["content"].as_str().unwrap().to_owned());
        desk.edit(path, "content", "edited").await.expect();
    }
    contents.sort();
    let expected: Vec<String> = (1..=9).map(|number| format!("content {number}\n")).collect();
    assert_eq!(contents, expected);
    let found = desk.call("search_files", json!({ "pattern": "^edited [1-9]$" })).await.expect();
    let mut found: Vec<&str> =
        found["lines"].as_array().unwrap().iter().map(|line| line["path"].as_str().unwrap()).collect();
    found.sort_unstable();
    let mut paths = paths.clone();
    paths.sort_unstable();
    assert_eq!(found, paths);
    assert_eq!(desk.run("find . -type f | grep -c .").await, "10\n", "nothing new came of it");
}

#[tokio::test(flavor = "multi_thread")]
async fn fed_30_names_that_differ_in_case_are_two_files() {
    let desk = Desk::new().await;
    desk.put("README.md", b"upper\n").await;
    desk.put("readme.md", b"lower\n").await;
    desk.edit("README.md", "upper", "UPPER").await.expect();
    assert_eq!(
        (desk.bytes("README.md"), desk.bytes("readme.md")),
        (b"UPPER\n".to_vec(), b"lower\n".to_vec())
    );
}
