//! Many jobs: each with its own output, the programs alive meanwhile, and nothing kept afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use support::jobs::{end, id};
use support::{World, probe, wait};

/// Inits that are kept for later jobs, at most; each is a descriptor of the executor and one of the spawner.
const IDLE_INITS: usize = 64;

/// Asks for `/healthz` again and again until `over`, on a thread of its own, and returns how long each answer took, the
/// shortest time first.
fn watch_health(base: &str, over: Arc<AtomicBool>) -> std::thread::JoinHandle<Vec<Duration>> {
    let url = format!("{base}/healthz");
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let http = reqwest::Client::builder().no_proxy().build().unwrap();
            let mut times = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let asked = Instant::now();
                assert_eq!(http.get(&url).send().await.unwrap().status(), 200);
                times.push(asked.elapsed());
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            times.sort_unstable();
            times
        })
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_jobs_in_five_workspaces_each_have_their_own_output() {
    let world = World::start().await;
    let client = world.client();
    let mut workspaces = Vec::new();
    for _ in 0..5 {
        workspaces.push(client.workspace().await);
    }
    let over = Arc::new(AtomicBool::new(false));
    let health = watch_health(world.base(), Arc::clone(&over));
    let jobs: Vec<_> = (0..100_usize)
        .map(|number| {
            let command =
                format!("echo $RUNLET_WORKSPACE_ID; seq {number} {}; sleep 3; exit {number}", number + 2000);
            let start =
                json!({ "workspace_id": workspaces[number % 5], "command": command, "wait_seconds": 0 });
            tokio::spawn(client.call("run_command", start))
        })
        .collect();
    let mut ids = Vec::new();
    for job in jobs {
        ids.push(id(&job.await.unwrap().expect()).to_owned());
    }
    for (number, job_id) in ids.iter().enumerate() {
        let job = client.ended(job_id).await;
        assert_eq!(end(&job), (Some("exited"), Some(i64::try_from(number).unwrap())));
        let numbers: String = (number..=number + 2000).map(|line| format!("{line}\n")).collect();
        assert_eq!(client.output(job_id).await, format!("{}\n{numbers}", workspaces[number % 5]));
    }
    over.store(true, Ordering::Relaxed);
    let times = health.join().unwrap();
    let (usual, worst) = (times[times.len() * 95 / 100], *times.last().unwrap());
    println!(
        "{} answers of healthz with 100 jobs: 95 of 100 within {usual:?}, the slowest in {worst:?}",
        times.len()
    );
    // The slowest depends on what else the machine does while a hundred shells start.
    assert!(usual < Duration::from_millis(250) && worst < Duration::from_secs(2), "{usual:?} {worst:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn exe_29_past_the_limit_of_descriptors_jobs_are_refused_and_the_others_are_right() {
    let world = World::builder().executor_through(&["prlimit", "--nofile=256"]).start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let _warm = client.run(&workspace, "true").await;
    let before = settled_descriptors(world.executor_pid()).await;
    let mut calls = Vec::new();
    for number in 0..300 {
        let command = format!("sleep 6; echo {number}");
        let start = json!({ "workspace_id": workspace, "command": command, "wait_seconds": 0 });
        calls.push(tokio::spawn(client.call("run_command", start)));
        if number % 50 == 49 {
            // Lets the client send what it has to before it connects again.
            let _answer = client.call("list_jobs", json!({ "page_size": 1 })).await.expect();
        }
    }
    let (mut started, mut refused) = (Vec::new(), 0);
    for (number, call) in calls.into_iter().enumerate() {
        let answer = call.await.unwrap();
        if answer.is_error() {
            let error = answer.expect_error();
            assert_eq!(error["code"], json!("TOO_MANY_JOBS"), "{error}");
            let message = error["message"].as_str().unwrap();
            assert!(message.contains("too many jobs (limit ") && message.contains("job_"), "{message}");
            refused += 1;
        } else {
            started.push((number, id(&answer.expect()).to_owned()));
        }
    }
    let asked = Instant::now();
    let health = reqwest::get(format!("{}/readyz", world.base())).await.unwrap().status();
    assert!(health == 200 && asked.elapsed() < Duration::from_secs(1), "{health} {:?}", asked.elapsed());
    println!("{} jobs started, {refused} refused", started.len());
    assert!(started.len() >= 20 && refused > 0, "{}", started.len());
    for (number, job_id) in &started {
        assert_eq!(end(&client.ended(job_id).await), (Some("exited"), Some(0)));
        assert_eq!(client.output(job_id).await, format!("{number}\n"));
    }
    assert_eq!(client.run(&workspace, "echo one more").await["output"], json!("one more\n"));
    wait::until("the descriptors to be closed", Duration::from_secs(10), async || {
        probe::descriptors(world.executor_pid()) <= before + 2 + IDLE_INITS
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exe_16_no_zombie_descriptor_or_thread_is_left() {
    let world = World::start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let pid = world.executor_pid();
    for _ in 0..20 {
        let _warm = client.run(&workspace, "true").await;
    }
    let (descriptors, threads) = (settled_descriptors(pid).await, probe::threads(pid));
    let spawner = world.spawner_pid();
    let spawner_descriptors = probe::descriptors(spawner);
    for round in 0..30 {
        let jobs: Vec<_> = (0..10)
            .map(|number| {
                let command = if number == 0 { "(setsid sleep 1 &)" } else { "true" };
                let wait_seconds = if number == 1 { 0 } else { 20 };
                let call =
                    json!({ "workspace_id": workspace, "command": command, "wait_seconds": wait_seconds });
                tokio::spawn(client.call("run_command", call))
            })
            .collect();
        for job in jobs {
            assert!(!job.await.unwrap().is_error(), "round {round}");
        }
    }
    for _ in 0..20 {
        let call = client.call("run_command", json!({ "workspace_id": workspace, "command": "sleep .2" }));
        assert!(tokio::time::timeout(Duration::from_millis(20), call).await.is_err());
    }
    wait::until("everything to be given back", Duration::from_secs(15), async || {
        probe::zombies(pid).is_empty()
            && probe::zombies(spawner).is_empty()
            && probe::descriptors(pid) <= descriptors + 2 + IDLE_INITS
            && probe::descriptors(spawner) <= spawner_descriptors + IDLE_INITS
    })
    .await;
    // Threads for blocking work go after ten seconds without any.
    wait::until("threads to end", Duration::from_secs(30), async || probe::threads(pid) <= threads + 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inits_that_no_job_needs_are_ended() {
    let world = World::builder().executor("RUNLET_CLEANING_SECONDS", "1").start().await;
    let client = world.client();
    let workspace = client.workspace().await;
    let command = json!({ "workspace_id": workspace, "command": "sleep 1", "wait_seconds": 20 });
    let jobs = (0..12).map(|_| client.call("run_command", command.clone()));
    for job in futures::future::join_all(jobs).await {
        assert_eq!(job.expect()["exit_code"], json!(0));
    }
    assert!(probe::children(world.spawner_pid()).len() >= 12, "each is kept for a later job");
    wait::until("all but two inits to end", Duration::from_secs(10), async || {
        probe::children(world.spawner_pid()).len() == 2 && probe::zombies(world.spawner_pid()).is_empty()
    })
    .await;
    assert_eq!(client.run(&workspace, "echo goes on").await["output"], json!("goes on\n"));
}

/// Descriptors of a program once what it does at its start is over.
async fn settled_descriptors(pid: u32) -> usize {
    let (mut last, mut same) = (0, 0);
    wait::until("the descriptors to settle", Duration::from_secs(20), async || {
        let now = probe::descriptors(pid);
        same = if now == last { same + 1 } else { 0 };
        last = now;
        same > 25
    })
    .await;
    last
}
