//! Settings: read once from flags and the environment, then passed down.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

use clap::Parser;

use crate::process::cgroup::{Group, Limits, Memory, Quotas};

/// Owns the processes, terminals, files and records of one data root, and serves gateways over gRPC.
#[derive(Debug, Clone, Parser)]
#[command(name = "runlet-executor", version, about)]
pub struct Config {
    /// Directory of all data. One executor at a time.
    #[arg(long, env = "SANDBOX_ROOT", default_value = "./var")]
    pub root: PathBuf,

    /// Unix socket on which gateways are served. It and the secret beside it are readable for the gateway's user only.
    #[arg(long, env = "RUNLET_SOCKET", default_value = "/run/runlet/executor.sock")]
    pub socket: PathBuf,

    /// User of the gateway, a name or a number, if it is not the executor's own.
    #[arg(long, env = "RUNLET_GATEWAY_USER")]
    pub gateway_user: Option<String>,

    /// User that jobs run as, a name or a number. Default: `runlet-job` or number 20000 where the executor is root,
    /// otherwise its own user.
    #[arg(long, env = "RUNLET_JOB_USER")]
    pub job_user: Option<String>,

    /// What keeps sandboxes apart: `namespaces`, which bubblewrap makes, `none`, or `auto`, whatever can be had. With
    /// `namespaces` the executor does not start where they can't.
    #[arg(long, env = "RUNLET_ISOLATION", default_value = "auto", value_parser = ["auto", "none", "namespaces"])]
    pub isolation: String,

    /// Keep workspaces apart in the same way: their processes see the machine's system, which they may change for themselves,
    /// and of the data only their own.
    #[arg(long, env = "RUNLET_ISOLATE_WORKSPACES", default_value_t = false, action = clap::ArgAction::Set)]
    pub isolate_workspaces: bool,

    /// Bytes of memory that all jobs, terminals and sandboxes together leave to the rest of the machine, which is an eighth of
    /// it at most.
    #[arg(long, env = "RUNLET_FREE_MEMORY_BYTES", default_value_t = 256 << 20)]
    pub free_memory_bytes: u64,

    /// Bytes of memory that one job or terminal may use. Default: what the others leave.
    #[arg(long, env = "RUNLET_JOB_MEMORY_BYTES")]
    pub job_memory_bytes: Option<u64>,

    /// Processors that one job or terminal may use, such as `1.5`. Default: all.
    #[arg(long, env = "RUNLET_JOB_CPUS", value_parser = processors)]
    pub job_cpus: Option<f64>,

    /// Processes and threads that one job or terminal may have.
    #[arg(long, env = "RUNLET_JOB_PROCESSES", default_value_t = 8192)]
    pub job_processes: u64,

    /// Bytes of memory that one sandbox may use. Default: half of the machine's.
    #[arg(long, env = "RUNLET_SANDBOX_MEMORY_BYTES")]
    pub sandbox_memory_bytes: Option<u64>,

    /// Processors that one sandbox may use, such as `1.5`. Default: all.
    #[arg(long, env = "RUNLET_SANDBOX_CPUS", value_parser = processors)]
    pub sandbox_cpus: Option<f64>,

    /// Processes and threads that one sandbox may have.
    #[arg(long, env = "RUNLET_SANDBOX_PROCESSES", default_value_t = 4096)]
    pub sandbox_processes: u64,

    /// Jobs and terminals that may live at once.
    #[arg(long, env = "RUNLET_MAX_JOBS", default_value_t = 256)]
    pub max_jobs: usize,

    /// Bytes kept of the log of one job: an eighth of it from the start, the rest from the end.
    #[arg(long, env = "RUNLET_JOB_LOG_BYTES", default_value_t = 64 << 20)]
    pub job_log_bytes: u64,

    /// Bytes kept of all logs; the oldest ended jobs go first.
    #[arg(long, env = "RUNLET_LOGS_BYTES", default_value_t = 2 << 30)]
    pub logs_bytes: u64,

    /// Seconds that ended jobs are kept.
    #[arg(long, env = "RUNLET_RETENTION_SECONDS", default_value_t = 7 * 86_400)]
    pub retention_seconds: u64,

    /// Seconds between two looks for ended jobs that are past their time or too much.
    #[arg(long, env = "RUNLET_CLEANING_SECONDS", default_value_t = 60, hide = true)]
    pub cleaning_seconds: u64,

    /// Largest file read or edited at once, in bytes.
    #[arg(long, env = "RUNLET_MAX_FILE_BYTES", default_value_t = 16 << 20)]
    pub max_file_bytes: u64,

    /// Free bytes of the disk that no file tool uses.
    #[arg(long, env = "RUNLET_FREE_DISK_BYTES", default_value_t = 256 << 20)]
    pub free_disk_bytes: u64,

    /// Bytes that downloads, and uploads on their way, may take of the disk.
    #[arg(long, env = "RUNLET_LINKS_BYTES", default_value_t = 8 << 30)]
    pub links_bytes: u64,

    /// Longest time for making the snapshot or archive of a download, in seconds. A call waits for it.
    #[arg(long, env = "RUNLET_SNAPSHOT_SECONDS", default_value_t = 40, hide = true)]
    pub snapshot_seconds: u64,

    /// Longest time for cloning a repository, in seconds.
    #[arg(long, env = "RUNLET_CLONE_SECONDS", default_value_t = 600)]
    pub clone_seconds: u64,

    /// Seconds that a call waits for a workspace to be made, before it answers that it is being made.
    #[arg(long, env = "RUNLET_CREATE_WAIT_SECONDS", default_value_t = 40, hide = true)]
    pub create_wait_seconds: u64,

    /// Make the template of Python environments at the start, so that the first workspace need not wait for it.
    #[arg(long, env = "RUNLET_PREPARE_PYTHON", default_value_t = true, action = clap::ArgAction::Set)]
    pub prepare_python: bool,

    /// Seconds between TERM and KILL for jobs when the executor stops.
    #[arg(long, env = "RUNLET_STOP_GRACE_SECONDS", default_value_t = 5)]
    pub stop_grace_seconds: u64,

    /// What is logged: a level, or levels by module as in `info,runlet_executor=debug`.
    #[arg(long, env = "RUNLET_LOG", default_value = "info")]
    pub log: String,

    /// How it is logged.
    #[arg(long, env = "RUNLET_LOG_FORMAT", default_value = "text", value_parser = ["text", "json"])]
    pub log_format: String,

    /// Stop when standard input ends, as it does when the program that holds its other end is gone.
    #[arg(long, hide = true)]
    pub stop_with_stdin: bool,

    /// Print what keeps jobs from the executor on this machine, why sandboxes would have no root of their own, an empty line
    /// if they would, and what stays open, a line each; then stop.
    #[arg(long, hide = true)]
    pub probe_isolation: bool,

    /// Make a preview, its longest edge at most so many pixels, of the image on standard input; then stop. The executor
    /// starts itself with it.
    #[arg(long, hide = true)]
    pub draw_preview: Option<u32>,

    /// Enter a sandbox, of which this is the plan. The executor starts itself with it.
    #[arg(long, hide = true)]
    pub enter_sandbox: Option<String>,

    /// Be process 1 of a sandbox.
    #[arg(long, hide = true)]
    pub sandbox_init: bool,

    /// The executor's own search path, from which jobs get what their user can use.
    #[arg(long, env = "PATH", default_value = "", hide = true)]
    pub search_path: String,

    /// File of certificate authorities for cloning, for hosts that the system does not trust.
    #[arg(long, env = "GIT_SSL_CAINFO")]
    pub git_ca_file: Option<String>,

    /// Proxy for cloning.
    #[arg(long, env = "HTTPS_PROXY")]
    pub https_proxy: Option<String>,

    /// Hosts that are cloned from without the proxy.
    #[arg(long, env = "NO_PROXY")]
    pub no_proxy: Option<String>,
}

fn processors(text: &str) -> Result<f64, String> {
    // Less than a hundredth is more than the kernel can count off.
    match text.parse::<f64>() {
        Ok(number) if (0.01..=100_000.0).contains(&number) => Ok(number),
        _ => Err("expected a number of processors from 0.01 on, such as 1.5".to_owned()),
    }
}

impl Config {
    /// What processes may use. A control group named after the data root is made for that, where one can be.
    pub fn quotas(&self, root: &Path) -> Quotas {
        let machine = Memory::find().limit().bytes;
        let left = self.free_memory_bytes.min(machine / 8);
        let all = Limits { memory_bytes: Some(machine - left), ..Limits::default() };
        let mut hasher = std::hash::DefaultHasher::new();
        root.hash(&mut hasher);
        Quotas {
            group: Group::of_executor(&format!("runlet-{:016x}", hasher.finish()), &all),
            job: Limits {
                memory_bytes: self.job_memory_bytes,
                cpus: self.job_cpus,
                processes: Some(self.job_processes),
            },
            sandbox: Limits {
                memory_bytes: Some(self.sandbox_memory_bytes.unwrap_or(machine / 2)),
                cpus: self.sandbox_cpus,
                processes: Some(self.sandbox_processes),
            },
        }
    }

    /// Variables that git gets from the settings.
    pub fn git_env(&self) -> BTreeMap<String, String> {
        [
            ("GIT_SSL_CAINFO", &self.git_ca_file),
            ("HTTPS_PROXY", &self.https_proxy),
            ("NO_PROXY", &self.no_proxy),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value.clone()?)))
        .collect()
    }
}
