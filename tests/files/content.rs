//! What edits and writes leave as it was.

use serde_json::json;

use crate::desk::{Desk, code, edit};

#[tokio::test(flavor = "multi_thread")]
async fn fed_01_to_04_line_ends_marks_and_final_newlines_stay() {
    let desk = Desk::new().await;
    for (before, old, new, after) in [
        ("a\r\nb\r\nc\r\n", "b", "B", "a\r\nB\r\nc\r\n"),
        ("a\r\nb\r\nc\r\n", "b", "B1\nB2", "a\r\nB1\r\nB2\r\nc\r\n"),
        ("a\r\nb\nc\r\n", "b", "B", "a\r\nB\nc\r\n"),
        ("a\r\nb\r\nc\r\n", "a\nb", "a\nX", "a\r\nX\r\nc\r\n"),
        ("\u{feff}x=1\n", "x=1", "x=2", "\u{feff}x=2\n"),
        ("a\nb", "a", "A", "A\nb"),
        ("a\nb\n", "b", "B", "a\nB\n"),
    ] {
        desk.put("f", before.as_bytes()).await;
        desk.edit("f", old, new).await.expect();
        assert_eq!(desk.bytes("f"), after.as_bytes(), "{before:?}: {old:?} to {new:?}");
    }
    desk.put("mark", "\u{feff}x=2\n".as_bytes()).await;
    let read = desk.read("mark").await;
    assert!(read.text().lines().next().unwrap().contains("byte order mark"), "{}", read.text());
    assert_eq!(read.expect()["content"], json!("x=2\n"));
    for content in ["", "x"] {
        desk.call("write_file", json!({ "path": "w", "content": content })).await.expect();
        assert_eq!(desk.bytes("w"), content.as_bytes());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fed_06_to_09_a_text_is_replaced_only_where_it_stands_exactly_and_once() {
    let desk = Desk::new().await;
    for (content, old, new, refusal) in [
        ("x\nx\n", "x", "y", "EDIT_NOT_UNIQUE"),
        ("x\nx\n", "zz", "y", "EDIT_NOT_FOUND"),
        ("aaa", "aa", "b", "EDIT_NOT_UNIQUE"),
        ("x\n", "x", "x", "EDIT_WITHOUT_EFFECT"),
        ("x\n", "", "y", "INVALID_ARGUMENT"),
        ("def foo():\n    x = 1\n    y = 2\n", "    x  =  1", "    x = 100", "EDIT_NOT_FOUND"),
        ("foo\nbar\n", "foo ", "baz ", "EDIT_NOT_FOUND"),
        ("a  b c\n", "a b", "Q", "EDIT_NOT_FOUND"),
        ("all:\n\tcc x\n", "    cc x", "    cc z", "EDIT_NOT_FOUND"),
    ] {
        desk.put("f", content.as_bytes()).await;
        let before = std::fs::metadata(desk.at("f")).unwrap().modified().unwrap();
        let error = desk.edit("f", old, new).await.expect_error();
        assert_eq!(error["code"], json!(refusal), "{content:?}: {old:?}: {error}");
        assert_eq!(desk.bytes("f"), content.as_bytes());
        assert_eq!(std::fs::metadata(desk.at("f")).unwrap().modified().unwrap(), before);
    }
    desk.put("f", b"x\nx\n").await;
    let error = desk.edit("f", "x", "y").await.expect_error();
    assert!(error["message"].as_str().unwrap().contains("2 matches"), "{error}");
    let all = json!({ "path": "f", "edits": [{ "old_text": "x", "new_text": "y", "replace_all": true }] });
    assert_eq!(desk.call("edit_file", all).await.expect()["replacements"], json!(2));
    assert_eq!(desk.bytes("f"), b"y\ny\n");
    // One that fails leaves the others undone.
    let two = json!({ "path": "f", "edits": [
        { "old_text": "y\ny", "new_text": "z" }, { "old_text": "absent", "new_text": "" },
    ] });
    let error = desk.call("edit_file", two).await.expect_error();
    assert!(error["message"].as_str().unwrap().contains("edit 2"), "{error}");
    assert_eq!(desk.bytes("f"), b"y\ny\n");

    desk.put("Makefile", b"all:\n\tcc x\n").await;
    desk.edit("Makefile", "cc x", "cc y").await.expect();
    assert_eq!(desk.bytes("Makefile"), b"all:\n\tcc y\n");
    assert!(desk.read("Makefile").await.text().ends_with("\nall:\n\tcc y\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn fed_10_bytes_that_are_not_text_stay() {
    let desk = Desk::new().await;
    let utf16: Vec<u8> = "x = 1\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (before, old, new, after) in [
        (&b"const x = 1;\n// caf\xe9 note\n"[..], "x = 1", "x = 2", &b"const x = 2;\n// caf\xe9 note\n"[..]),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "IHDR", "IDAT", b"\x89PNG\r\n\x1a\n\0\0\0\rIDAT"),
        (b"tail\xff", "tail", "TAIL", b"TAIL\xff"),
    ] {
        desk.put("f", before).await;
        desk.edit("f", old, new).await.expect();
        assert_eq!(desk.bytes("f"), after, "{old}");
    }
    desk.put("f", &utf16).await;
    assert_eq!(code(desk.edit("f", "x = 1", "x = 2").await), "EDIT_NOT_FOUND");
    assert_eq!(desk.bytes("f"), utf16);
    desk.put("s", b"// caf\xe9\n").await;
    let read = desk.read("s").await;
    assert!(read.text().contains("\n// caf\\xe9\n") && read.text().contains("base64"), "{}", read.text());
    assert_eq!(read.expect()["exact"], json!(false));
}

#[tokio::test(flavor = "multi_thread")]
async fn fed_12_13_modes_attributes_and_links_stay() {
    let desk = Desk::new().await;
    desk.run(
        "for f in run s u; do echo old > $f; done; chmod 755 run; chmod 640 s; chmod 4755 u
         ln -s run l; ln -s l l2; ln -s b a; ln -s a b
         python3 -c 'import os; os.setxattr(\"s\", \"user.a\", b\"b\")' || touch no-attributes",
    )
    .await;
    for path in ["run", "s", "u"] {
        desk.edit(path, "old", "edited").await.expect();
        desk.call("write_file", json!({ "path": path, "content": "new\n" })).await.expect();
    }
    // Whoever changes a program changes what runs with its owner's rights, so the kernel and we drop those.
    assert_eq!(desk.run("stat -c %a run s u").await, "755\n640\n755\n");
    if !desk.at("no-attributes").exists() {
        assert_eq!(desk.run("python3 -c 'import os; print(os.getxattr(\"s\", \"user.a\"))'").await, "b'b'\n");
    }
    desk.edit("l2", "new", "through two links").await.expect();
    assert_eq!(desk.bytes("run"), b"through two links\n");
    desk.call("write_file", json!({ "path": "l", "content": "through one" })).await.expect();
    assert_eq!(desk.bytes("run"), b"through one");
    assert_eq!(desk.run("readlink l l2").await, "run\nl\n");
    let error = desk.call("edit_file", edit("a", "x", "y")).await.expect_error();
    assert!(error["message"].as_str().unwrap().contains("ELOOP"), "{error}");
    desk.call("write_file", json!({ "path": "tool", "content": "", "executable": true })).await.expect();
    assert_eq!(desk.run("test -x tool && echo yes").await, "yes\n");
}
