//! What a sandbox can't reach, tried as an attacker would.

use std::fs;

use serde_json::{Value, json};
use support::{Client, World, world::TOKEN};

use crate::sandbox;

async fn run(client: &Client, id: &str, command: &str) -> Value {
    client.call("execute_in_sandbox", json!({ "sandbox_id": id, "command": command })).await.expect()
}

async fn output(client: &Client, id: &str, command: &str) -> String {
    run(client, id, command).await["output"].as_str().unwrap().to_owned()
}

/// Attacks, each of which prints LEAK if it succeeds.
fn attacks(world: &World, other: &str) -> Vec<String> {
    let (root, socket) = (world.root(), world.socket());
    let (root, socket) = (root.display(), socket.display());
    let connect = |path: &str| {
        format!(
            "python3 -c \"import socket; socket.socket(socket.AF_UNIX).connect('{path}'); print('LEAK')\""
        )
    };
    vec![
        format!("ls -A {root} | grep . && echo LEAK"),
        format!("cat {root}/workspaces/{other}/work/secret && echo LEAK"),
        format!("head -c 16 {root}/runlet.db && echo LEAK"),
        format!("cat {socket}.secret && echo LEAK"),
        format!("echo x > {root}/x && echo LEAK"),
        connect(&format!("{socket}")),
        connect(&format!("{socket}.files")),
        format!(
            "grep -l -a '[{}]{}' /proc/[0-9]*/environ /proc/[0-9]*/cmdline && echo LEAK",
            &TOKEN[..1],
            &TOKEN[1..]
        ),
        "ps -e -o args | grep -v grep | grep -E 'runlet-(executor|gateway)$' && echo LEAK".to_owned(),
        format!("kill -0 {} && echo LEAK", world.executor_pid()),
        format!("kill -9 {}; kill -9 -1; true", world.gateway_pid()),
        "tr '\\0' '\\n' < /proc/1/environ | grep -i -E 'token|sandbox_|runlet' && echo LEAK".to_owned(),
        "ls -A /proc/1/root/root | grep . && echo LEAK".to_owned(),
        "head -c 1 /proc/1/maps | grep . && echo LEAK".to_owned(),
        "python3 -c \"import ctypes; print('LEAK' if ctypes.CDLL(None).ptrace(16, 1, 0, 0) == 0 else '')\""
            .to_owned(),
        "readlink /proc/1/fd/* /proc/1/cwd /proc/1/exe | grep . && echo LEAK".to_owned(),
        "cat /etc/shadow && echo LEAK".to_owned(),
        "echo x >> /etc/passwd && grep x$ /etc/passwd && false".to_owned(),
        "mount -t tmpfs none /mnt && echo LEAK".to_owned(),
        "mount --bind / /mnt && echo LEAK".to_owned(),
        "umount /home/user && echo LEAK".to_owned(),
        "umount -l /run && echo LEAK".to_owned(),
        "mknod /tmp/sda b 8 0 && echo LEAK".to_owned(),
        "echo 1 > /proc/sys/kernel/printk && echo LEAK".to_owned(),
        "echo b > /proc/sysrq-trigger && echo LEAK".to_owned(),
        "ls /sys/fs/cgroup/* && echo LEAK".to_owned(),
        "dmesg && echo LEAK".to_owned(),
        "python3 -c \"import os; os.setns(os.open('/proc/1/ns/mnt', 0), 0); print('LEAK')\"".to_owned(),
        "chroot /proc/1/cwd ls -A /root | grep . && echo LEAK".to_owned(),
        "chmod 644 /etc/shadow; cat /etc/shadow && echo LEAK".to_owned(),
        "ls -A /etc/ssl/private /root /home | grep -v -e : -e '^$' -e '^user$' && echo LEAK".to_owned(),
        "find / -xdev -type s -o -xdev -type b | grep . && echo LEAK".to_owned(),
        "nsenter -t 1 -a true && [ $(hostname) != $HOSTNAME ] && echo LEAK".to_owned(),
        "cp /bin/bash /tmp/b && chmod 4755 /tmp/b && /tmp/b -p -c 'cat /etc/shadow' && echo LEAK".to_owned(),
        "ln -s / root; cat root/etc/shadow && echo LEAK".to_owned(),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_the_machine_leaks_into_a_sandbox() {
    let world = World::start().await;
    nothing_leaks(&world).await;
    // What the machine wrote since it runs is not part of the system.
    let client = world.client();
    let id = sandbox(&client, json!({})).await;
    assert_eq!(output(&client, &id, "find /var/log /var/spool /var/backups -type f").await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_leaks_where_the_executor_is_an_ordinary_user() {
    let world = World::builder().user(31_418).start().await;
    nothing_leaks(&world).await;
}

async fn nothing_leaks(world: &World) {
    let client = world.client();
    let other = client.workspace().await;
    client.run(&other, "echo hidden > secret").await;
    let id = sandbox(&client, json!({})).await;
    for attack in attacks(world, &other) {
        let tried = output(&client, &id, &format!("exec 2>/dev/null; {attack}")).await;
        assert!(!tried.contains("LEAK"), "{attack}: {tried}");
    }
    // Both programs and the sandbox live on.
    assert_eq!(output(&client, &id, "echo on").await, "on\n");
    assert_eq!(client.run(&other, "cat secret").await["output"], json!("hidden\n"));
}

/// The process that waits for a sandbox outside is the jobs' user's, so that this user's jobs can look where it is.
#[tokio::test(flavor = "multi_thread")]
async fn what_sandboxes_are_made_of_is_closed_to_jobs() {
    let world = World::start().await;
    let client = world.client();
    let plain = client.workspace().await;
    client
        .call("create_blueprint", json!({ "name": "b", "setup_commands": ["echo x > mine"] }))
        .await
        .expect();
    let id = sandbox(&client, json!({ "blueprint": "b" })).await;
    run(&client, &id, "sleep 60 & echo up").await;
    let places = "/proc/[0-9]*/root/{mnt,media,srv,run}/{,*/}{,*/}";
    let name = format!("runlet-test-{}", std::process::id());
    let seen = client
        .run(
            &plain,
            &format!(
                "ls -d {places}root 2>/dev/null | wc -l; shopt -s nullglob; \
        for at in {places}; do cat $at/etc/shadow; touch $at/etc/{name}; echo x > $at/home/user/mine; \
        chmod 755 $at; done 2>/dev/null; true"
            ),
        )
        .await;
    let output_of = seen["output"].as_str().unwrap();
    assert!(!output_of.starts_with("0\n") && output_of.lines().count() == 1, "{seen}");
    assert!(!std::path::Path::new("/etc").join(&name).exists());
    let next = sandbox(&client, json!({ "blueprint": "b" })).await;
    assert_eq!(output(&client, &next, "cat mine; cat /etc/shadow 2>/dev/null").await, "x\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn file_tools_see_what_commands_see() {
    let world = World::start().await;
    let client = world.client();
    let id = sandbox(&client, json!({})).await;
    run(
        &client,
        &id,
        "ln -s /etc/shadow out; ln -s / all; ln -s /tmp/x in; echo x > /tmp/x; echo own > /etc/motd",
    )
    .await;
    let read = async |path: &str| client.call("read_file", json!({ "workspace_id": id, "path": path })).await;
    let records = world.root().join("runlet.db").display().to_string();
    for path in ["out", "all/etc/shadow", "/etc/shadow", "../../etc/shadow", "../../../etc/passwd", &records]
    {
        let error = read(path).await.expect_error();
        assert!(error["code"].as_str().unwrap().starts_with("PATH_"), "{path}: {error}");
    }
    assert_eq!(read("in").await.expect()["content"], json!("x\n"));
    assert_eq!(read("/etc/motd").await.expect()["content"], json!("own\n"));
    let hosts = json!({ "workspace_id": id, "path": "all/etc/issue", "content": "written\n" });
    client.call("write_file", hosts).await.expect();
    assert_eq!(output(&client, &id, "cat /etc/issue").await, "written\n");
    assert_ne!(fs::read_to_string("/etc/issue").unwrap(), "written\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_removed_inside_is_there_outside() {
    let world = World::start().await;
    let client = world.client();
    let other = client.workspace().await;
    client.run(&other, "echo hidden > secret").await;
    let id = sandbox(&client, json!({})).await;
    let before = fs::read_dir("/usr/bin").unwrap().count();
    let ended =
        run(&client, &id, "echo x > a; rm -rf --no-preserve-root / 2>/dev/null; ls -A /home/user | wc -l")
            .await;
    assert_eq!(ended["status"], json!("exited"), "{ended}");
    assert_eq!(fs::read_dir("/usr/bin").unwrap().count(), before);
    assert_eq!(client.run(&other, "cat secret").await["output"], json!("hidden\n"));
    let next = sandbox(&client, json!({})).await;
    assert_eq!(output(&client, &next, "ls -A; echo fresh").await, "fresh\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn sandboxes_do_not_see_each_other() {
    let world = World::start().await;
    let client = world.client();
    let (one, two) = (sandbox(&client, json!({})).await, sandbox(&client, json!({})).await);
    run(&client, &one, "echo 1 > /tmp/mine; echo 1 > mine; (sleep 33001.7 &) ; true").await;
    let seen =
        "ls /tmp/mine mine 2>&1 | grep -c 'No such'; ps -e -o args | grep -c '^sleep 33001.7'; hostname";
    let lines = output(&client, &two, seen).await;
    let hostname = two.replace('_', "-");
    assert_eq!(lines, format!("2\n0\n{hostname}\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_network_there_is_the_loopback_only() {
    let world = World::start().await;
    let client = world.client();
    let port = world.base().rsplit(':').next().unwrap().to_owned();
    let probe = format!(
        "python3 -c \"import socket; socket.create_connection(('127.0.0.1', {port}), 2); print('reached')\" 2>&1 | tail -1"
    );
    let open = sandbox(&client, json!({})).await;
    assert_eq!(output(&client, &open, &probe).await, "reached\n");
    let closed = sandbox(&client, json!({ "network": false })).await;
    assert!(output(&client, &closed, &probe).await.contains("refused"));
    let own = "python3 -m http.server 8000 --bind 127.0.0.1 >/dev/null 2>&1 & \
               for i in $(seq 50); do curl -s -o /dev/null http://127.0.0.1:8000/ && echo served && break; sleep 0.1; done; \
               ls /sys/class/net 2>/dev/null; tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '";
    assert_eq!(output(&client, &closed, own).await, "served\nlo\n");
}

/// Inside, every process is of one user.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_kills_all_inside_can_go_on() {
    let world = World::start().await;
    let client = world.client();
    let id = sandbox(&client, json!({})).await;
    for round in 0..20 {
        let killed = run(&client, &id, "kill -9 -1; sleep 5").await;
        assert_eq!(killed["status"], json!("killed"), "{round}: {killed}");
        assert_eq!(output(&client, &id, "echo on").await, "on\n", "{round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_repository_has_git_run_stays_inside() {
    let world = World::start().await;
    let client = world.client();
    let id = sandbox(&client, json!({})).await;
    let marker = format!("/tmp/runlet-escaped-{}", std::process::id());
    let trap = format!(
        "git init -q . && git config user.email a@b && git config user.name a && echo 'f filter=x' > .gitattributes && \
         echo 1 > f && git add . && git commit -qm 1 && git config filter.x.clean 'touch {marker}; cat' && \
         git config core.fsmonitor 'touch {marker}' && touch -d '1 hour ago' f && echo set"
    );
    assert_eq!(output(&client, &id, &trap).await, "set\n");
    let shown = client.call("get_workspace", json!({ "workspace_id": id })).await.expect();
    assert!(!shown["git"].is_null() || !shown["git_status"].is_null(), "{shown}");
    assert!(!fs::exists(&marker).unwrap(), "{marker}");
    assert_eq!(output(&client, &id, &format!("ls {marker}")).await.trim(), marker);
}
