//! The Python environment of a workspace.

use std::time::{Duration, Instant};

use serde_json::json;
use support::{World, wait};

#[tokio::test(flavor = "multi_thread")]
async fn each_workspace_has_a_python_of_its_own_at_once() {
    let world = World::start().await;
    let client = world.client();
    client.call("create_workspace", json!({ "name": "first" })).await.expect();
    let start = Instant::now();
    let made = client.call("create_workspace", json!({ "name": "second" })).await.expect();
    println!("a workspace with Python was made in {:?}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    let venv = made["python"]["venv"].as_str().unwrap();
    let version = made["python"]["version"].as_str().unwrap();

    let run = async |workspace: &str, command: &str| {
        let job = client.run(workspace, command).await;
        assert_eq!(job["exit_code"], json!(0), "{job}");
        job["output"].as_str().unwrap().to_owned()
    };
    assert_eq!(run("second", "command -v python python3 pip").await.matches(venv).count(), 3);
    assert_eq!(run("second", "python -c 'import sys; print(sys.prefix)'").await, format!("{venv}\n"));
    assert_eq!(run("second", "python --version").await, format!("Python {version}\n"));
    let pip = run("second", "pip --version && head -1 $(command -v pip)").await;
    assert_eq!(pip.matches(venv).count(), 2, "{pip}");

    // What is installed in one is not in the other.
    let install = "touch \"$(python -c 'import site; print(site.getsitepackages()[0])')/runlet_sample.py\"
                   python -c 'import runlet_sample; print(\"there\")'";
    assert_eq!(run("second", install).await, "there\n");
    assert_ne!(client.run("first", "python -c 'import runlet_sample'").await["exit_code"], json!(0));

    let without = client.call("create_workspace", json!({ "name": "third", "python": false })).await.expect();
    assert_eq!(without["python"], json!(null));
    assert!(!std::path::Path::new(without["path"].as_str().unwrap()).with_file_name("venv").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn many_workspaces_are_made_at_once_while_the_template_is_built() {
    let world = World::start().await;
    let client = world.client();
    let making = (0..4).map(|_| client.call("create_workspace", json!({})));
    for made in futures::future::join_all(making).await {
        let made = made.expect();
        let job = client.run(made["workspace_id"].as_str().unwrap(), "python -m pip --version").await;
        assert_eq!(job["exit_code"], json!(0), "{job}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_is_kept_in_stock_for_the_next_workspace() {
    let mut world = World::builder().executor("RUNLET_PREPARE_PYTHON", "true").start().await;
    let client = world.client();
    let stock = world.root().join("stock");
    let in_stock = || -> Vec<String> {
        let entries = std::fs::read_dir(&stock).unwrap().flatten();
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
    };
    let full = async || {
        wait::until(
            "the stock to be full",
            Duration::from_secs(60),
            async || matches!(in_stock().as_slice(), [one] if one.starts_with("python-")),
        )
        .await;
    };
    full().await;
    // What an earlier executor left is not used: a copy that a crash has cut short, one of a Python that is no longer
    // installed, one that was made for another user of jobs.
    world.kill_executor().await;
    std::fs::write(stock.join(&in_stock()[0]).join("stale"), "").unwrap();
    for stale in ["making/venv/bin", "python-2.7.18/bin"] {
        std::fs::create_dir_all(stock.join(stale)).unwrap();
    }
    world.start_executor().await;
    full().await;
    assert!(!stock.join(&in_stock()[0]).join("stale").exists());
    for name in ["first", "second"] {
        let made = client.call("create_workspace", json!({ "name": name })).await.expect();
        let venv = made["python"]["venv"].as_str().unwrap();
        let job = client
            .run(name, "command -v python pip; head -1 $(command -v pip); touch \"$VIRTUAL_ENV/mine\"")
            .await;
        assert_eq!(job["output"].as_str().unwrap().matches(venv).count(), 3, "{job}");
        assert_eq!(job["exit_code"], json!(0), "{job}");
        full().await;
    }
}
