//! Whose files are: those of the tools and those of jobs are one user's.

use serde_json::json;

use crate::desk::Desk;

#[tokio::test(flavor = "multi_thread")]
async fn files_of_tools_and_of_jobs_belong_to_the_jobs_user() {
    let desk = Desk::new().await;
    let owner = desk.run("id -u; id -g").await.replace('\n', " ");
    desk.call("write_file", json!({ "path": "new/by-tool", "content": "tool\n" })).await.expect();
    desk.run("echo job >> new/by-tool; echo job > by-job; mkdir closed; chmod 700 closed; echo x > closed/x")
        .await;
    assert_eq!(desk.bytes("new/by-tool"), b"tool\njob\n");
    desk.edit("by-job", "job", "tool").await.expect();
    desk.edit("closed/x", "x", "y").await.expect();
    desk.run("echo job >> by-job").await;
    assert_eq!(desk.bytes("by-job"), b"tool\njob\n");
    let owners = desk.run("find . -printf '%U %G \n' | sort -u").await;
    assert_eq!(owners, format!("{owner}\n"));
    desk.run("chmod 000 by-job").await;
    if owner.starts_with("0 ") {
        return;
    }
    let error = desk.read("by-job").await.expect_error();
    assert_eq!(error["code"], json!("PERMISSION_DENIED"), "the tools can do what jobs can: {error}");
}
