//! Clones that succeed or are refused.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use support::git::GitServer;
use support::{Answer, Client, World};

pub(crate) const LOGIN: &str = "canary-user:CANARY-p%40ss";
pub(crate) const SECRETS: [&str; 3] = ["CANARY", "p%40ss", "p@ss"];

/// A repository with two commits on `main`, a branch and a tag on the first.
const PLAIN: &str = "echo one > a; git add .; git commit -qm one; git tag v1; git branch feature
                     echo two > a; git commit -qam two; git rev-parse HEAD~1 HEAD";

pub(crate) async fn server_and_world() -> (GitServer, World) {
    let server = GitServer::start(LOGIN, "http://127.0.0.1:1").await;
    let world = World::builder().executor("GIT_SSL_CAINFO", server.ca_file()).start().await;
    (server, world)
}

pub(crate) async fn clone(client: &Client, name: &str, url: &str, more: Value) -> Answer {
    let mut arguments = json!({ "name": name, "git_url": url, "python": false });
    arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    client.call("create_workspace", arguments).await
}

async fn output(client: &Client, workspace: &str, command: &str) -> String {
    let job = client.run(workspace, command).await;
    assert_eq!(job["exit_code"], json!(0), "{command}: {job}");
    job["output"].as_str().unwrap().trim_end().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn git_08_09_branch_tag_commit_and_depth_give_the_right_tree() {
    let (server, world) = server_and_world().await;
    let client = world.client();
    let ids = server.repository("r.git", PLAIN).await;
    let (first, second) = ids.split_once('\n').unwrap();
    let url = server.url("open", "r.git");
    for (name, more, commit, reference, count) in [
        ("whole", json!({}), second, json!("main"), "2"),
        ("branch", json!({ "git_ref": "feature", "git_depth": 1 }), first, json!("feature"), "1"),
        ("tag", json!({ "git_ref": "v1" }), first, json!("v1"), "1"),
        ("commit", json!({ "git_ref": first, "git_depth": 1 }), first, Value::Null, "1"),
        ("shallow", json!({ "git_depth": 1 }), second, json!("main"), "1"),
    ] {
        let made = clone(&client, name, &url, more).await.expect();
        assert_eq!(made["git"], json!({ "url": url, "ref": reference, "commit": commit }), "{name}");
        assert_eq!((&made["status"], &made["notes"]), (&json!("ready"), &Value::Null), "{made}");
        assert_eq!(output(&client, name, "git rev-parse HEAD").await, commit);
        assert_eq!(output(&client, name, "git rev-list --count HEAD").await, count, "{name}");
        // The tree is the jobs' own: no word of dubious ownership, and nothing changed.
        assert_eq!(output(&client, name, "git status --porcelain").await, "");
        let shown = client.call("get_workspace", json!({ "workspace_id": name })).await.expect();
        assert_eq!(shown["git_status"]["changed_paths"], json!(0));
        assert_eq!(shown["git_status"]["commit"], json!(commit));
    }
    assert_eq!(
        output(&client, "whole", "git remote get-url origin; git branch -r --list 'origin/f*'").await,
        format!("{url}\n  origin/feature")
    );
    for (reference, depth) in [("absent", 1), ("0123456789012345678901234567890123456789", 1)] {
        let more = json!({ "git_ref": reference, "git_depth": depth });
        let error = clone(&client, "none", &url, more).await.expect_error();
        assert_eq!(error["code"], json!("CLONE_FAILED"), "{error}");
        assert!(error["message"].as_str().unwrap().contains("localhost"), "{error}");
    }
    let error = clone(&client, "none", &server.url("open", "absent.git"), json!({})).await.expect_error();
    assert_eq!(error["code"], json!("CLONE_FAILED"), "{error}");
    clone(&client, "none", &url, json!({})).await.expect();
}

#[tokio::test(flavor = "multi_thread")]
async fn git_09_10_what_a_clone_lacks_is_noted() {
    let (server, world) = server_and_world().await;
    let client = world.client();
    server.repository("empty.git", "true").await;
    server.repository("trunk.git", "git checkout -qb trunk; git commit -q --allow-empty -m one").await;
    server
        .repository(
            "headless.git",
            "echo x > x; git add .; git commit -qm one; git symbolic-ref HEAD refs/heads/gone",
        )
        .await;
    let module = "git commit -q --allow-empty -m one
        printf '[submodule \"s\"]\n\tpath = s\n\turl = ext::sh -c touch%% /tmp/runlet-pwned\n' > .gitmodules
        git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),s; git add .gitmodules; git commit -qm two";
    server.repository("module.git", module).await;
    let lfs = "printf '*.bin filter=lfs diff=lfs merge=lfs -text\n' > .gitattributes
        printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 5000000\n' 1 > big.bin
        git add .; git commit -qm one";
    server.repository("lfs.git", lfs).await;
    for (name, note, commit) in [
        ("empty", Some("no commit"), false),
        ("trunk", None, true),
        ("headless", Some("no commit"), false),
        ("module", Some("submodules not fetched"), true),
        ("lfs", Some("1 LFS file not fetched"), true),
    ] {
        let made =
            clone(&client, name, &server.url("open", &format!("{name}.git")), json!({})).await.expect();
        assert_eq!(made["status"], json!("ready"), "{made}");
        assert_eq!(made["git"]["commit"].is_string(), commit, "{made}");
        let notes = made["notes"].as_array().cloned().unwrap_or_default();
        assert_eq!(notes.len(), usize::from(note.is_some()), "{made}");
        assert!(notes.iter().all(|text| text.as_str().unwrap().contains(note.unwrap())), "{made}");
    }
    let trunk = client.call("get_workspace", json!({ "workspace_id": "trunk" })).await.expect();
    assert_eq!((&trunk["git"]["ref"], &trunk["git_status"]["branch"]), (&json!("trunk"), &json!("trunk")));
    assert!(!Path::new("/tmp/runlet-pwned").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn git_01_02_a_credential_clones_and_stays_nowhere() {
    let (server, world) = server_and_world().await;
    let client = world.client();
    server.repository("r.git", PLAIN).await;
    let url = server.url("private", "r.git");
    // What runs while the clone does is looked through too: the process list from inside and outside.
    let watch =
        "while :; do cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ; done 2>/dev/null | tr '\\0' '\\n' > seen";
    let spy = client.workspace().await;
    let spying = json!({ "workspace_id": spy, "command": watch, "wait_seconds": 0, "timeout_seconds": 600 });
    let spying = client.call("run_command", spying).await.expect();
    let done = Arc::new(AtomicBool::new(false));
    let watching = tokio::task::spawn_blocking({
        let done = Arc::clone(&done);
        move || watch_processes(&done)
    });
    let made = clone(&client, "w", &url, json!({ "git_credential": LOGIN })).await;
    done.store(true, Ordering::Relaxed);
    let (looks, exposed) = watching.await.unwrap();
    assert!(looks > 2 && exposed.is_empty(), "{looks} looks: {exposed:?}");
    let mut said = made.text();
    assert_eq!(made.expect()["status"], json!("ready"));
    assert!(server.seen().iter().any(|seen| seen.credential.as_deref() == Some(LOGIN)));
    let wrong = json!({ "git_credential": "canary-user:CANARY-wrong" });
    for (name, url, more) in [
        ("wrong", url.clone(), wrong),
        ("none", url.clone(), json!({})),
        ("token", url.clone(), json!({ "git_credential": "CANARY-token" })),
        ("inside", url.replace("https://", "https://u:CANARY@"), json!({})),
        ("refused", "https://127.0.0.1:1/r.git".to_owned(), json!({ "git_credential": LOGIN })),
        ("branch", url.clone(), json!({ "git_credential": LOGIN, "git_ref": "absent" })),
    ] {
        let answer = clone(&client, name, &url, more).await;
        said += &answer.text();
        let error = answer.expect_error();
        let code = match name {
            "inside" => "INVALID_ARGUMENT",
            "refused" | "branch" => "CLONE_FAILED",
            _ => "CLONE_AUTHENTICATION_REQUIRED",
        };
        assert_eq!(error["code"], json!(code), "{name}: {error}");
        let host = if name == "refused" { "127.0.0.1:1" } else { "localhost" };
        assert!(name == "inside" || error["message"].as_str().unwrap().contains(host), "{error}");
    }
    assert!(
        server.seen().iter().any(|seen| seen.credential.as_deref() == Some("x-access-token:CANARY-token"))
    );
    client.call("cancel_job", json!({ "job_id": spying["job_id"] })).await.expect();
    let seen = output(&client, &spy, "cat seen").await;
    assert!(seen.len() > 100, "the spy saw nothing");

    // No place keeps it: tool results, logs, the workspace with its home and .git, records, everything else on disk.
    let kept = "git remote -v; git config -l --show-origin; cat .git/FETCH_HEAD .git/logs/HEAD; env; true";
    said += &output(&client, "w", kept).await;
    said += &client.call("list_jobs", json!({})).await.text();
    said += &client.call("get_overview", json!({})).await.text();
    said += &world.logs();
    for secret in SECRETS {
        assert!(!said.contains(secret), "{secret} in {said}");
        assert!(
            !std::fs::read(world.root().join("workspaces").join(&spy).join("work/seen"))
                .unwrap()
                .windows(secret.len())
                .any(|window| window == secret.as_bytes()),
            "{secret} was seen by a job"
        );
        assert_eq!(files_with(&world.root(), secret.as_bytes()), Vec::<PathBuf>::new());
    }
    // A later fetch by a job has no credential and fails at once.
    let fetch = client.run("w", "git fetch origin 2>&1").await;
    assert_ne!(fetch["exit_code"], json!(0), "{fetch}");
}

/// Looks at the arguments and variables of all processes until `done`: how often, and those that hold a secret.
fn watch_processes(done: &AtomicBool) -> (usize, Vec<String>) {
    let (mut looks, mut exposed) = (0, Vec::new());
    while !done.load(Ordering::Relaxed) {
        looks += 1;
        for process in std::fs::read_dir("/proc").unwrap().flatten() {
            for file in ["cmdline", "environ"] {
                let text = std::fs::read(process.path().join(file)).unwrap_or_default();
                let text = String::from_utf8_lossy(&text).into_owned();
                exposed.extend(SECRETS.iter().any(|secret| text.contains(secret)).then_some(text));
            }
        }
    }
    (looks, exposed)
}

/// Files below `directory` that hold `text`.
fn files_with(directory: &Path, text: &[u8]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(files_with(&entry.path(), text));
        } else if kind.is_file() {
            let content = std::fs::read(entry.path()).unwrap_or_default();
            if content.windows(text.len()).any(|window| window == text) {
                found.push(entry.path());
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn git_03_04_06_other_transports_and_places_are_refused() {
    let plain = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", plain.local_addr().unwrap());
    let server = GitServer::start(LOGIN, &address).await;
    let world = World::builder().executor("GIT_SSL_CAINFO", server.ca_file()).start().await;
    let client = world.client();
    server.repository("r.git", PLAIN).await;
    for url in [
        "ext::sh -c touch% /tmp/runlet-pwned",
        "EXT::sh -c touch% /tmp/runlet-pwned",
        "fd::17",
        "file::/srv/r.git",
        "file:///srv/r.git",
        "/srv/r.git",
        "../../other",
        &format!("{address}/open/r.git"),
        "ssh://localhost/r.git",
        "git@localhost:r.git",
        "git://localhost/r.git",
        "--upload-pack=touch /tmp/runlet-pwned",
        "",
    ] {
        let error = clone(&client, "w", url, json!({})).await.expect_error();
        assert_eq!(error["code"], json!("INVALID_ARGUMENT"), "{url}: {error}");
        assert!(error["message"].as_str().unwrap().starts_with("git_url: "), "{url}: {error}");
    }
    let reference = json!({ "git_ref": "--upload-pack=touch /tmp/runlet-pwned" });
    let error = clone(&client, "w", &server.url("open", "r.git"), reference).await.expect_error();
    assert!(error["message"].as_str().unwrap().starts_with("git_ref: "), "{error}");
    // A redirect out of HTTPS is not followed, and one to another host does not get the credential.
    let more = json!({ "git_credential": LOGIN });
    let error = clone(&client, "w", &server.url("to-plain", "r.git"), more.clone()).await.expect_error();
    assert_eq!(error["code"], json!("CLONE_FAILED"), "{error}");
    let touched = tokio::time::timeout(std::time::Duration::from_millis(200), plain.accept()).await;
    assert!(touched.is_err(), "the plain server was asked");
    let error = clone(&client, "w", &server.url("to-other", "r.git"), more).await.expect_error();
    assert_eq!(error["code"], json!("CLONE_AUTHENTICATION_REQUIRED"), "{error}");
    let strangers: Vec<_> =
        server.seen().into_iter().filter(|seen| seen.host.starts_with("127.0.0.1")).collect();
    assert!(!strangers.is_empty() && strangers.iter().all(|seen| seen.credential.is_none()), "{strangers:?}");
    assert!(!Path::new("/tmp/runlet-pwned").exists());
    // A certificate that nobody signed is not trusted.
    let stranger = GitServer::start(LOGIN, &address).await;
    stranger.repository("r.git", PLAIN).await;
    let error = clone(&client, "w", &stranger.url("open", "r.git"), json!({})).await.expect_error();
    assert_eq!(error["code"], json!("CLONE_FAILED"), "{error}");
    let listed = client.call("list_workspaces", json!({})).await.expect();
    assert_eq!(listed["workspaces"], json!([]), "a refused clone leaves nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn git_04_hooks_and_templates_of_the_machine_do_nothing() {
    let server = GitServer::start(LOGIN, "http://127.0.0.1:1").await;
    // The executor's own home and environment tell git to run things; the clone's git sees none of it.
    let home = tempfile::tempdir().unwrap();
    let hook = home.path().join("template/hooks/post-checkout");
    std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
    let ran = home.path().join("ran");
    std::fs::write(&hook, format!("#!/bin/sh\ntouch {}\n", ran.display())).unwrap();
    let settings = format!(
        "[init]\n\ttemplateDir = {0}/template\n[core]\n\thooksPath = {0}/template/hooks\n\
         [url \"ext::sh -c touch% {1} \"]\n\tinsteadOf = https://\n",
        home.path().display(),
        ran.display()
    );
    std::fs::write(home.path().join(".gitconfig"), settings).unwrap();
    for path in [hook.as_path(), home.path()] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    let home_text = home.path().to_str().unwrap();
    let world = World::builder()
        .executor("GIT_SSL_CAINFO", server.ca_file())
        .executor("HOME", home_text)
        .executor("GIT_TEMPLATE_DIR", format!("{home_text}/template"))
        .executor("GIT_ASKPASS", "sleep 999")
        .executor("SSH_ASKPASS", "sleep 999")
        .start()
        .await;
    let client = world.client();
    server.repository("r.git", PLAIN).await;
    clone(&client, "w", &server.url("open", "r.git"), json!({})).await.expect();
    assert!(!ran.exists());
    assert_eq!(output(&client, "w", "ls -A .git/hooks 2>/dev/null; ls").await, "a");
    let error = clone(&client, "p", &server.url("private", "r.git"), json!({})).await.expect_error();
    assert_eq!(error["code"], json!("CLONE_AUTHENTICATION_REQUIRED"), "{error}");
    assert!(error["message"].as_str().unwrap().contains("authentication required"), "{error}");
}
