//! The executor: owns the processes, files and records of one data root and serves them over gRPC.
//!
//! Arrows go one way: `rpc` → `machine` → `sandbox` → `workspace`, `job`, `terminal`, `image`, `transfer` → `file` → `output`, `process`,
//! `store` → `error`, `id`. Only `rpc` knows the wire, only `process` starts processes, and `machine` is where the nouns meet.

mod build;
pub mod config;
pub mod data_root;
pub mod error;
pub mod file;
pub mod host;
pub mod id;
pub mod image;
pub mod job;
pub mod machine;
pub mod output;
pub mod process;
pub mod resources;
pub mod retention;
pub mod rpc;
pub mod sandbox;
pub mod store;
pub mod terminal;
mod timer;
mod timestamp;
pub mod transfer;
pub mod waiting;
pub mod workspace;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use config::Config;
use data_root::DataRoot;
use error::{Error, Result};
use machine::Machine;
use process::cgroup::Quotas;
use process::identity::Identity;
use process::lifetime;
use process::spawner::{SpawnerHandle, fork_spawner};
use process::veil::{Drawn, Veil};
use rpc::listen::Listener;

/// How long calls in progress may take to answer once everything they wait for has ended.
const DRAIN: Duration = Duration::from_secs(5);

/// Runs an executor until it is told to stop. The calling process must have one thread.
pub fn run(config: Config) -> Result<()> {
    lifetime::harden()?;
    let identity = Identity::resolve(config.job_user.as_deref())?;
    let root = Arc::new(DataRoot::open(&config.root, identity.switch)?);
    let veil = Veil {
        root: root.path.clone(),
        workspaces: root.workspaces.clone(),
        socket_directory: own_socket_directory(&config.socket, &root.path)?,
    };
    let quotas = Arc::new(config.quotas(&root.path));
    let spawner = fork_spawner(&identity, &veil, &quotas)?;
    let spawner_pid = spawner.pid;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("runlet-executor")
        .build()
        .map_err(|error| Error::internal("starting the runtime", error))?;
    let served = runtime.block_on(serve(config, root, identity, quotas, spawner));
    runtime.shutdown_timeout(Duration::from_secs(1));
    // The spawner's socket is closed now, so it ends what may be left and then itself.
    lifetime::await_own_spawner(spawner_pid);
    served
}

/// What would keep jobs from the executor on this machine, and what would stay open; and why sandboxes would have no root of
/// their own, if so. It is tried on a directory made for that where the data root is or would be. The calling process must
/// have one thread.
pub fn probe_isolation(config: &Config) -> Result<(Drawn, Option<String>)> {
    lifetime::harden()?;
    let identity = Identity::resolve(config.job_user.as_deref())?;
    let absolute = std::path::absolute(&config.root).unwrap_or_else(|_| config.root.clone());
    let name = format!(".runlet-probe-{}", std::process::id());
    // Not where something of that name is already: somebody may have put it there.
    let made =
        absolute.ancestors().map(|place| place.join(&name)).find(|root| std::fs::create_dir(root).is_ok());
    let root = made.ok_or_else(|| {
        let place = config.root.display();
        Error::invalid("SANDBOX_ROOT", format!("no directory can be made at {place}, nor above it"))
    })?;
    let workspaces = root.join("workspaces");
    let failed = |error| Error::internal(format!("making the directory {}", workspaces.display()), error);
    std::fs::create_dir(&workspaces).map_err(failed)?;
    let veil = Veil { root: root.clone(), workspaces, socket_directory: None };
    let quotas = Arc::new(config.quotas(&root));
    let probed = fork_spawner(&identity, &veil, &quotas).and_then(|spawner| {
        let gap = probe_sandboxes(config, identity, Arc::clone(&quotas), &root);
        let (pid, drawn) = (spawner.pid, spawner.drawn.clone());
        drop(spawner);
        lifetime::await_own_spawner(pid);
        Ok((drawn, gap?))
    });
    let _removed = std::fs::remove_dir_all(&root);
    probed
}

fn probe_sandboxes(
    config: &Config,
    identity: Identity,
    quotas: Arc<Quotas>,
    root: &Path,
) -> Result<Option<String>> {
    let root = Arc::new(DataRoot::open(root, identity.switch)?);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::internal("starting the runtime", error))?;
    let search_path = workspace::environment::search_path(&config.search_path, &identity);
    let enclosure = workspace::Enclosure::of_machine(config, root, identity, search_path, quotas);
    Ok(runtime.block_on(enclosure.usable()).err().map(str::to_owned))
}

async fn serve(
    config: Config,
    root: Arc<DataRoot>,
    identity: Identity,
    quotas: Arc<Quotas>,
    spawner: SpawnerHandle,
) -> Result<()> {
    let failed = |error: std::io::Error| Error::internal("listening for signals", error);
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate()).map_err(failed)?, signal(SignalKind::interrupt()).map_err(failed)?);
    let parent_gone = end_of_stdin(config.stop_with_stdin);
    let find = |user| Identity::find_user("RUNLET_GATEWAY_USER", user);
    let gateway = config.gateway_user.as_deref().map(find).transpose()?;
    let listener = Listener::bind(&config.socket, gateway)?;
    tracing::info!(
        socket = %config.socket.display(),
        root = %root.path.display(),
        job_user = identity.name,
        isolation = spawner.drawn.isolation,
        gaps = ?spawner.drawn.gaps,
        "runlet-executor {} is ready",
        env!("CARGO_PKG_VERSION"),
    );
    let machine = Arc::new(Machine::open(config, root, identity, quotas, spawner).await?);
    machine.start_background();
    let (told, stop) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(rpc::serve(Arc::clone(&machine), listener, async {
        let _told = stop.await;
    }));
    tokio::pin!(serving);
    tokio::select! {
        ended = &mut serving => return ended.map_err(|error| Error::internal("serving gateways", error))?,
        () = machine.spawner_gone() => {
            return Err(Error::internal("starting jobs", "the spawner was killed, and every job with it"));
        }
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = parent_gone => {}
    }
    tracing::info!("stopping; a second signal stops at once");
    let orderly = async {
        machine.stop().await?;
        let _gone = told.send(());
        let _late = tokio::time::timeout(DRAIN, &mut serving).await;
        Ok(())
    };
    let at_once = || {
        tracing::warn!("stopped at once; the spawner ends what is left");
        Ok(())
    };
    tokio::select! {
        stopped = orderly => stopped,
        _ = terminate.recv() => at_once(),
        _ = interrupt.recv() => at_once(),
    }
}

/// Resolves when standard input, a pipe, has ended; never, unless that is to be watched.
async fn end_of_stdin(watched: bool) {
    use std::os::fd::AsFd;
    if watched
        && let Ok(stdin) = std::io::stdin().as_fd().try_clone_to_owned()
        && let Ok(pipe) = tokio::net::unix::pipe::Receiver::from_owned_fd(stdin)
    {
        let mut buffer = [0; 64];
        while pipe.readable().await.is_ok() {
            match pipe.try_read(&mut buffer) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Ok(read) if read > 0 => {}
                _ => return,
            }
        }
        return;
    }
    std::future::pending().await
}

/// The socket's directory, if it lies outside of the data root and the executor makes it: one that was there may hold
/// what is not the executor's to hide.
fn own_socket_directory(socket: &Path, root: &Path) -> Result<Option<PathBuf>> {
    let Some(directory) = socket.parent().filter(|parent| !parent.as_os_str().is_empty()) else {
        return Ok(None);
    };
    let failed = |error| Error::internal(format!("making the directory {}", directory.display()), error);
    std::fs::create_dir_all(directory).map_err(failed)?;
    let directory = directory.canonicalize().map_err(failed)?;
    let empty = std::fs::read_dir(&directory).map_err(failed)?.flatten().all(|entry| {
        let name = entry.file_name();
        socket
            .file_name()
            .is_some_and(|socket| name.to_string_lossy().starts_with(&*socket.to_string_lossy()))
    });
    Ok((!directory.starts_with(root) && empty).then_some(directory))
}
