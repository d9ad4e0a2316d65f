//! What a job can see of the executor, the gateway and their secrets: nothing, whoever the executor runs as.

use serde_json::json;
use support::world::TOKEN;
use support::{Builder, Client, World, probe};

/// An ordinary user for tests that start the programs as one.
const USER: u32 = 23_456;

/// The attack that Landlock does not stop; the secret does.
const CONNECT: &str = "connect to a socket";

/// Attacks of a job, one a line: a name, and a command that prints LEAK when it gets what it should not.
fn attacks(world: &World) -> Vec<(&'static str, String)> {
    let (executor, gateway) = (world.executor_pid(), world.gateway_pid());
    let (root, socket) = (world.root(), world.socket());
    let (root, socket) = (root.display(), socket.display());
    let mut attacks = vec![
        ("read the secret", format!("cat {socket}.secret")),
        (CONNECT, connecting(&format!("{socket}"))),
        (CONNECT, connecting(&format!("{socket}.files"))),
        ("replace the socket", format!("mv {socket} {socket}.old && echo LEAK")),
        ("read the records", format!("head -c 16 {root}/runlet.db")),
        ("write the records", format!("echo x >> {root}/runlet.db && echo LEAK")),
        ("list the logs", format!("ls {root}/logs/* && echo LEAK")),
        ("read the lock", format!("cat {root}/.lock")),
        (
            "find the token",
            "grep -l -a '[t]est-token-0123456789' /proc/[0-9]*/environ /proc/[0-9]*/cmdline && echo LEAK"
                .to_owned(),
        ),
    ];
    for pid in [executor, gateway] {
        attacks.extend([
            ("read an environment", format!("tr '\\0' '\\n' < /proc/{pid}/environ | grep . ")),
            (
                "read memory",
                format!("head -c 1 /proc/{pid}/mem && echo LEAK; head -1 /proc/{pid}/maps | grep ."),
            ),
            ("list descriptors", format!("ls /proc/{pid}/fd | grep .")),
            ("follow a root", format!("ls /proc/{pid}/root/ | grep .")),
            ("signal", format!("kill -0 {pid} && echo LEAK")),
        ]);
    }
    attacks
}

fn connecting(socket: &str) -> String {
    let program = format!("import socket; socket.socket(socket.AF_UNIX).connect('{socket}')");
    format!("/usr/bin/python3 -c \"{program}\" && echo LEAK")
}

async fn nothing_leaks(world: &World, client: &Client) {
    nothing_leaks_but(world, client, &[]).await;
}

async fn nothing_leaks_but(world: &World, client: &Client, open: &[&str]) {
    let workspace = client.workspace().await;
    for (name, attack) in attacks(world).into_iter().filter(|(name, _)| !open.contains(name)) {
        let command = format!("exec 2>/dev/null; out=$({attack}); [ -z \"$out\" ] || echo \"LEAK: $out\"");
        let job = client.run(&workspace, &command).await;
        assert_eq!(job["output"], json!(""), "{name}: {attack}: {job}");
    }
    let after = client.run(&workspace, "echo the executor lives").await;
    assert_eq!(after["output"], json!("the executor lives\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn exe_22_jobs_of_a_root_executor_run_as_another_user_and_see_nothing_of_it() {
    let world = World::builder().executor("CANARY", "executor-canary").start().await;
    let client = world.client();
    nothing_leaks(&world, &client).await;
    let workspace = client.workspace().await;
    let job = client.run(&workspace, "id -u; env | grep -c -i -E 'canary|sandbox_token'").await;
    assert_eq!(job["output"], json!("20000\n0\n"));
    let overview = client.call("get_overview", json!({})).await.expect();
    assert_eq!(overview["executor"]["isolation"], json!("user"), "{overview}");
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_an_ordinary_users_executor_see_nothing_of_it_either() {
    let world = World::builder().user(USER).start().await;
    let client = world.client();
    nothing_leaks(&world, &client).await;
    let workspace = client.workspace().await;
    let job = client
        .run(&workspace, "id -u; touch ~/a /tmp/runlet-probe-$$ && echo ok; rm -f /tmp/runlet-probe-$$")
        .await;
    assert_eq!(job["output"], json!(format!("{USER}\nok\n")));
    let overview = client.call("get_overview", json!({})).await.expect();
    assert_eq!(overview["executor"]["isolation"], json!("namespaces"), "{overview}");
    assert!(overview["executor"]["gaps"].to_string().contains("the executor's own user"), "{overview}");
}

/// Where the kernel grants no user namespaces, as in many containers.
#[tokio::test(flavor = "multi_thread")]
async fn without_namespaces_landlock_hides_what_is_the_executors() {
    let limit = "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --ambient-caps=-all --inh-caps=-all -- \"$@\"";
    let forbid = ["unshare", "--user", "--map-current-user", "--keep-caps", "--", "sh", "-c", limit, "sh"];
    let world = World::builder().user(USER).executor_further_through(&forbid).start().await;
    let client = world.client();
    let overview = client.call("get_overview", json!({})).await.expect();
    assert_eq!(overview["executor"]["isolation"], json!("landlock"), "{overview}");
    assert!(overview["executor"]["gaps"].to_string().contains("connect to the socket"), "{overview}");
    nothing_leaks_but(&world, &client, &[CONNECT]).await;
    let workspace = client.workspace().await;
    let job = client.run(&workspace, "echo a > a && cat a && echo b > ~/b && python3 -c 'print(1)'").await;
    assert_eq!(job["output"], json!("a\n1\n"), "{job}");
}

/// A job of the executor's own user may signal its init; it gains nothing by that.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_stops_its_init_is_ended() {
    let world = World::builder().user(USER).start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let run = json!({ "workspace_id": workspace, "command": "sleep 0.3; kill -STOP $PPID; sleep 31417.301", "wait_seconds": 20 });
    let job = client.call("run_command", run).await.expect();
    assert_eq!((&job["status"], &job["exit_code"]), (&json!("killed"), &json!(137)), "{job}");
    assert_eq!(probe::marked("31417.301"), Vec::<u32>::new());
    assert_eq!(client.run(&workspace, "echo on").await["output"], json!("on\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_one_user_can_signal_each_other() {
    let world = World::builder().user(USER).start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let server =
        json!({ "workspace_id": workspace, "command": "echo $$ > pid; exec sleep 600", "wait_seconds": 0 });
    let job = client.call("run_command", server).await.expect();
    let ended = client
        .run(&workspace, "until [ -s pid ]; do sleep 0.05; done; kill \"$(cat pid)\" && echo sent")
        .await;
    assert_eq!(ended["output"], json!("sent\n"));
    let read = json!({ "job_id": job["job_id"], "wait_seconds": 20 });
    assert_eq!(client.call("read_output", read).await.expect()["status"], json!("killed"));
}

/// As where somebody clones the repository below root's home, which no other user may enter.
#[tokio::test(flavor = "multi_thread")]
async fn a_data_root_below_a_closed_directory_works() {
    let world = World::builder().root_mode(0o700).start().await;
    let client = world.client();
    let made = client.call("create_workspace", json!({})).await.expect();
    let workspace = made["workspace_id"].as_str().unwrap();
    let job = client
        .run(workspace, "cd ~ && cd \"$OLDPWD\" && pwd && python3 -c 'print(1)' && pip --version | cut -c1-3")
        .await;
    assert_eq!(job["output"], json!(format!("{}\n1\npip\n", made["path"].as_str().unwrap())), "{job}");
    let write = json!({ "workspace_id": workspace, "path": "a/b.txt", "content": "x" });
    client.call("write_file", write).await.expect();
    assert_eq!(client.run(workspace, "cat a/b.txt").await["output"], json!("x"));
    nothing_leaks(&world, &client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exe_23_values_of_variables_are_on_no_command_line() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let run = json!({
        "workspace_id": workspace, "command": "sleep 31416.201", "env": { "SECRET": "env-canary" }, "wait_seconds": 0,
    });
    let job = client.call("run_command", run).await.expect();
    let look = client
        .run(&workspace, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'env-[c]anary'")
        .await;
    assert_eq!(look["output"], json!("0\n"));
    client.call("cancel_job", json!({ "job_id": job["job_id"] })).await.expect();
    assert_eq!(probe::marked("31416.201"), Vec::<u32>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_hold_no_token_command_or_variable() {
    let world = World::builder().executor("RUNLET_LOG", "debug").gateway("RUNLET_LOG", "debug").start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let run = json!({
        "workspace_id": workspace, "command": "echo command-canary", "env": { "A": "variable-canary" },
    });
    client.call("run_command", run).await.expect();
    let write = json!({ "workspace_id": workspace, "path": "a", "content": "body-canary" });
    client.call("write_file", write).await.expect();
    let wrong = Client::new(world.base(), "wrong-token-canary-0123456789-0123456789");
    assert_eq!(wrong.post(&json!({})).await.unwrap().status(), 401);
    let logs = world.logs();
    assert!(logs.contains("run_command"), "the gateway names the tool: {logs}");
    for canary in [TOKEN, "command-canary", "variable-canary", "body-canary", "wrong-token-canary"] {
        assert!(
            !logs.contains(canary),
            "{canary}: {}",
            logs.lines().find(|line| line.contains(canary)).unwrap()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_without_the_secret_is_refused() {
    let world = Builder::default().start().await;
    let client = world.client();
    std::fs::write(format!("{}.secret", world.socket().display()), "0".repeat(64)).unwrap();
    let mut world = world;
    let second = Box::pin(world.try_gateway()).await;
    let error = second.call("list_workspaces", json!({})).await.expect_error();
    assert_eq!(error["code"], json!("UNAUTHENTICATED"), "{error}");
    // The first gateway proved itself before.
    client.call("list_workspaces", json!({})).await.expect();
    let workspace = client.workspace().await;
    client.run(&workspace, "echo x > f").await;
    let offer = json!({ "workspace_id": workspace, "path": "f" });
    let made = client.call("create_download", offer).await.expect();
    let path = made["url"].as_str().unwrap().split_once("/downloads/").unwrap().1.to_owned();
    let secret_link = path.split('/').next().unwrap().to_owned();
    let files = runlet_proto::handover::socket_path(&world.socket());
    let asking = runlet_proto::handover::Request { secret: "0".repeat(64), secret_link };
    let refused = asking.send(&files).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::UnexpectedEof);
}
