//! Folders as archives, read back by the programs that people unpack them with.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::desk::{Desk, names, url};

/// Makes an archive of `arguments` and unpacks it in a directory of its own.
async fn unpacked(desk: &Desk, arguments: Value) -> (PathBuf, Value) {
    let made = desk.call("create_download", arguments).await.expect();
    let (_, content) = desk.fetch(&url(&made)).await;
    assert_eq!(json!(content.len()), made["size"]);
    let directory = desk.world.directory().join(made["download_id"].as_str().unwrap());
    std::fs::create_dir(&directory).unwrap();
    let name = made["name"].as_str().unwrap();
    let file = desk.world.directory().join(format!("{}-archive", made["download_id"].as_str().unwrap()));
    std::fs::write(&file, content).unwrap();
    let mut command = Command::new(if name.ends_with(".zip") { "unzip" } else { "tar" });
    if name.ends_with(".zip") {
        command.arg("-q").arg(&file).arg("-d").arg(&directory);
    } else {
        command.arg("-xzf").arg(&file).arg("-C").arg(&directory);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    (directory, made)
}

/// What stands where: kind, mode, time of change, size or target, name.
fn listing(directory: &Path) -> String {
    let script = "cd \"$0\" && find . -mindepth 1 -printf '%y %m %Ts %s %l %P\\0' | sort -z | tr '\\0' '|'";
    let output = Command::new("bash").args(["-c", script]).arg(directory).output().unwrap();
    assert!(output.status.success());
    // The size of a directory is its file system's matter, and times of links are not kept by unzip.
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.trim_end_matches('|').split('|').map(normal).collect::<Vec<_>>().join("\n")
}

fn normal(line: &str) -> String {
    let fields: Vec<&str> = line.splitn(6, ' ').collect();
    match fields[..] {
        ["d", mode, _, _, _, name] => format!("d {mode} {name}"),
        ["l", _, _, _, target, name] => format!("l {target} {name}"),
        _ => line.to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn folder_comes_out_of_both_kinds_as_it_was() {
    let desk = Desk::new().await;
    desk.run(
        "mkdir -p t/deep/er t/empty t/.git && cd t && echo text > a.txt && chmod 755 a.txt && : > zero && \
         head -c 300000 /dev/urandom > deep/er/noise && echo x > .git/HEAD && ln -s /etc/passwd leak && ln -s ./a.txt near && \
         ln -s \"$(printf 'y%.0s' {1..150})\" longlink && echo long > \"$(printf 'x%.0s' {1..200})\" && \
         chmod 600 zero && touch -d 2020-02-03T04:05:07Z a.txt deep/er/noise && mkfifo pipe && umask 077 && mkdir private",
    )
    .await;
    let right = listing(&desk.at("t"));
    let right: String = right.lines().filter(|line| !line.starts_with('p')).collect::<Vec<_>>().join("\n");
    for archive in ["tar.gz", "zip"] {
        let (directory, made) = unpacked(&desk, json!({ "path": "t", "archive": archive })).await;
        assert_eq!(made["name"], json!(format!("t.{archive}")));
        assert_eq!(names(&directory), ["t"]);
        assert_eq!(listing(&directory.join("t")), right, "{archive}");
        let noise = |root: &Path| std::fs::read(root.join("deep/er/noise")).unwrap();
        assert!(noise(&directory.join("t")) == noise(&desk.at("t")));
        // FED-19 and FED-22: the link is there, its target is not; the pipe is left out and told of.
        assert_eq!(std::fs::read_link(directory.join("t/leak")).unwrap(), Path::new("/etc/passwd"));
        assert_eq!(made["notes"], json!(["1 pipes, sockets or devices were left out"]));
    }
    let (directory, made) = unpacked(&desk, json!({ "path": "t/empty" })).await;
    assert_eq!((made["name"].clone(), made["entries"].clone()), (json!("empty.tar.gz"), json!(1)));
    assert_eq!(names(&directory), ["empty"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn fed_28_names_of_any_bytes_survive() {
    let desk = Desk::new().await;
    desk.run(
        r#"mkdir n; cd n; for f in $'bad\xff.txt' $'nl\nx' $'\x1b[31m' -rf ' lead' 'café €' 'back\slash' "$(printf '\xff%.0s' {1..180})"; do
           echo in > "./$f"; done; ln -s $'bad\xff.txt' $'ln\xfe'"#,
    )
    .await;
    let right = names_raw(&desk.at("n"));
    assert_eq!(right.len(), 9);
    let (directory, _) = unpacked(&desk, json!({ "path": "n" })).await;
    assert_eq!(names_raw(&directory.join("n")), right);
    // Python shows a zip file's names byte by byte, in the code page of old ones where they are not marked as UTF-8.
    let made = desk.call("create_download", json!({ "path": "n", "archive": "zip" })).await.expect();
    let file = desk.world.directory().join("n.zip");
    std::fs::write(&file, desk.fetch(&url(&made)).await.1).unwrap();
    let script = "import sys, zipfile\n\
                  archive = zipfile.ZipFile(sys.argv[1])\n\
                  assert archive.testzip() is None\n\
                  for info in archive.infolist():\n    \
                      raw = info.orig_filename.encode('utf-8' if info.flag_bits & 0x800 else 'cp437')\n    \
                      print(raw[2:].hex())\n";
    let output = Command::new("python3").args(["-c", script]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut found: Vec<String> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect();
    found.sort();
    let mut hex: Vec<String> =
        right.iter().map(|name| name.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
    hex.sort();
    assert_eq!(found, hex);
}

fn names_raw(directory: &Path) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_encoded_bytes()).collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn several_paths_lie_in_the_archive_as_they_lie_in_the_workspace() {
    let desk = Desk::new().await;
    desk.run("mkdir -p a/b c; echo 1 > a/b/one; echo 2 > c/two; echo 3 > three; echo 4 > ~/four").await;
    let paths = json!({ "paths": ["a/b", "c/two", "a/b/one", "c/two", "three", "~/four"] });
    let (directory, made) = unpacked(&desk, paths).await;
    assert_eq!(made["name"], json!(format!("{}.tar.gz", desk.id)));
    assert_eq!(made["entries"], json!(5));
    let output =
        Command::new("find").arg(&directory).args(["-type", "f", "-printf", "%P "]).output().unwrap();
    let mut found: Vec<&str> = std::str::from_utf8(&output.stdout).unwrap().split_whitespace().collect();
    found.sort_unstable();
    assert_eq!(found, ["a/b/one", "c/two", "home/four", "three"]);
    let (directory, made) = unpacked(&desk, json!({ "path": "three", "archive": "zip" })).await;
    assert_eq!((names(&directory), &made["name"]), (vec!["three".to_owned()], &json!("three.zip")));
    let (directory, _) = unpacked(&desk, json!({ "path": ".", "filename": "all.tgz" })).await;
    assert_eq!(names(&directory), ["work"]);
}
