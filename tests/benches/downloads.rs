//! A gibibyte by a link, and from nginx.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use support::probe::resident_bytes;
use tokio::process::{Child, Command};

use crate::Bench;
use crate::memory::mebibytes;
use crate::programs::free_address;
use crate::table::{Figure, Row, Target, Unit};

const RUNS: usize = 5;
const BYTES: u64 = 1 << 30;
const BUFFER_BYTES: usize = 256 << 10;

/// The same file through the gateway, and from nginx with sendfile, in turn; a client that throws it away.
pub(crate) async fn one_gibibyte(bench: &Bench) -> Vec<Row> {
    let client = bench.programs.client();
    client.run(&bench.workspace, &format!("head -c {BYTES} /dev/urandom > big")).await;
    let offer = json!({ "workspace_id": bench.workspace, "path": "big" });
    let made = client.call("create_download", offer).await.expect();
    let url = made["url"].as_str().unwrap();
    let target = url.split_once("/downloads").map(|(_, rest)| format!("/downloads{rest}")).unwrap();
    let nginx = Nginx::start(bench.directory.path()).await;
    if nginx.is_some() {
        let id = made["download_id"].as_str().unwrap();
        let snapshot = bench.directory.path().join("var/links").join(id);
        std::fs::copy(snapshot, bench.directory.path().join("nginx/big")).unwrap();
    }
    let (mut own_times, mut growths, mut peer_times) = (Vec::new(), [Vec::new(), Vec::new()], Vec::new());
    for _ in 0..RUNS {
        let before = bench.programs.pids().map(resident_bytes);
        let fetching = fetch(bench.programs.address, target.clone());
        tokio::pin!(fetching);
        let mut most = before;
        let time = loop {
            tokio::select! {
                time = &mut fetching => break time,
                () = tokio::time::sleep(Duration::from_millis(20)) => {
                    for (most, pid) in most.iter_mut().zip(bench.programs.pids()) {
                        *most = (*most).max(resident_bytes(pid));
                    }
                }
            }
        };
        own_times.push(time);
        for ((growths, most), before) in growths.iter_mut().zip(most).zip(before) {
            growths.push(mebibytes(most - before));
        }
        if let Some(nginx) = &nginx {
            peer_times.push(fetch(nginx.address, "/big".to_owned()).await);
        }
    }
    client.run(&bench.workspace, "rm big").await;
    let revoke = json!({ "download_id": made["download_id"] });
    client.call("revoke_download", revoke).await.expect();
    let row = Row::new("1 GiB download", &Figure::of(Unit::Seconds, own_times));
    let [executor, gateway] = growths;
    let growth = |name: &str, growths| {
        let what = format!("growth of the {name} meanwhile");
        Row::new(what, &Figure::of(Unit::Mebibytes, growths)).target(Target::AtMost(16.0))
    };
    // Half of the peer's rate is twice its time.
    let row = match nginx {
        Some(_) => {
            row.beside("nginx", Figure::of(Unit::Seconds, peer_times)).target(Target::RatioAtMost(2.0))
        }
        None => row,
    };
    vec![row, growth("executor", executor), growth("gateway", gateway)]
}

/// Seconds that it takes to fetch the whole.
async fn fetch(address: SocketAddr, target: String) -> f64 {
    let fetched = tokio::task::spawn_blocking(move || {
        let start = Instant::now();
        let mut stream = TcpStream::connect(address).unwrap();
        let request = format!("GET {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut received = 0;
        loop {
            match stream.read(&mut buffer).unwrap() {
                0 => break,
                read => received += u64::try_from(read).unwrap(),
            }
        }
        assert!(received > BYTES, "{received} bytes came");
        start.elapsed().as_secs_f64()
    });
    fetched.await.unwrap()
}

struct Nginx {
    address: SocketAddr,
    _program: Child,
}

impl Nginx {
    /// Starts it, where it can be had, on the directory `nginx` beside the data root.
    async fn start(directory: &Path) -> Option<Self> {
        let (directory, address) = (directory.join("nginx"), free_address());
        std::fs::create_dir_all(&directory).unwrap();
        let place = directory.display();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {place}/{name};\n"))
            .concat();
        let settings = format!(
            "daemon off; master_process off; pid {place}/pid; error_log stderr; events {{}}
             http {{ access_log off; sendfile on; {temporary}
             server {{ listen {address}; root {place}; }} }}"
        );
        let file = directory.join("nginx.conf");
        std::fs::write(&file, settings).unwrap();
        let mut command = Command::new("nginx");
        let program = command.arg("-c").arg(&file).arg("-p").arg(&directory).kill_on_drop(true).spawn();
        let program =
            program.inspect_err(|_| eprintln!("nginx is not installed; its cells stay empty")).ok()?;
        for _ in 0..500 {
            if TcpStream::connect(address).is_ok() {
                return Some(Self { address, _program: program });
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        eprintln!("nginx did not start; its cells stay empty");
        None
    }
}
