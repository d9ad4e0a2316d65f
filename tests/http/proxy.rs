//! Behind nginx with its defaults, which hold answers back unless told otherwise.

use std::time::Duration;

use serde_json::json;
use support::{World, wait};

use crate::wire::{Era, send};

#[tokio::test(flavor = "multi_thread")]
async fn http_11_nginx_with_its_defaults_passes_a_wait_on_as_it_goes() {
    if std::process::Command::new("nginx").arg("-v").output().is_err() {
        println!("skipped: nginx is not installed");
        return;
    }
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let directory = world.directory().join("nginx");
    std::fs::create_dir(&directory).unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let place = directory.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {place}/{name};\n"))
        .concat();
    let settings = format!(
        "daemon off; master_process off; pid {place}/pid; error_log stderr; events {{}}
         http {{ access_log off; {temporary}
         server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass {}; }} }} }}",
        world.base()
    );
    let file = directory.join("nginx.conf");
    std::fs::write(&file, settings).unwrap();
    let mut nginx = tokio::process::Command::new("nginx");
    let _nginx = nginx.arg("-c").arg(&file).arg("-p").arg(&directory).kill_on_drop(true).spawn().unwrap();
    let base = format!("http://127.0.0.1:{port}");
    wait::until("nginx", Duration::from_secs(10), async || {
        reqwest::get(format!("{base}/healthz")).await.is_ok_and(|answer| answer.status() == 200)
    })
    .await;
    let command = json!({ "workspace_id": workspace, "command": "sleep 11; echo done", "wait_seconds": 45 });
    for (era, progress) in [(Era::Until2025, true), (Era::From2026, false)] {
        let mut wait = send(&base, era, "run_command", command.clone(), progress).await;
        assert!(wait.more().await);
        assert!(wait.first.unwrap() < Duration::from_secs(5), "{:?}", wait.first);
        let result = wait.result().await;
        assert_eq!(result["_meta"]["runlet/result"]["output"], json!("done\n"), "{era:?}: {result}");
    }
}
