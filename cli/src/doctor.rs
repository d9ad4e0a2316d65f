//! `runlet doctor`: what this machine offers, and what each lack costs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::Args;

use crate::say;

/// Check what this machine offers, and say what each lack costs.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Directory of all data
    #[arg(long, env = "SANDBOX_ROOT", default_value = "./var")]
    root: PathBuf,
}

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Good,
    /// Something is not to be had; the rest works.
    Lack,
    /// Runlet can't work without it.
    Missing,
}

struct Check {
    name: &'static str,
    verdict: Verdict,
    /// What was found, or what the lack costs and how to mend it.
    text: String,
}

impl Check {
    fn good(name: &'static str, text: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Good, text: text.into() }
    }

    fn lack(name: &'static str, text: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Lack, text: text.into() }
    }

    fn missing(name: &'static str, text: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Missing, text: text.into() }
    }
}

impl Doctor {
    pub(crate) fn run(self) -> ExitCode {
        let checks = [
            programs(),
            isolation(&self.root),
            vec![job_user(), namespaces(), cgroups(), proc_children()],
            vec![open_files(), disk(&self.root)],
        ];
        let mut unusable = false;
        for check in checks.iter().flatten() {
            let sign = match check.verdict {
                Verdict::Good => "ok     ",
                Verdict::Lack => "lack   ",
                Verdict::Missing => "MISSING",
            };
            unusable |= check.verdict == Verdict::Missing;
            say(&format!("{sign}  {:<22}  {}", check.name, check.text));
        }
        if unusable { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}

fn programs() -> Vec<Check> {
    vec![
        match version("/bin/bash", &["--version"]) {
            Some(version) => Check::good("bash", version),
            None => Check::missing("bash", "every command runs in /bin/bash; install it"),
        },
        match version("git", &["--version"]) {
            Some(version) => Check::good("git", version),
            None => Check::lack("git", "workspaces can't be cloned from repositories; install git"),
        },
        match version("python3", &["--version"]) {
            Some(version) => Check::good("python3", version),
            None => Check::lack(
                "python3",
                "workspaces get no Python environment; install python3 and python3-venv",
            ),
        },
        match version("python3", &["-c", "import ensurepip, venv; print('venv and pip can be made')"]) {
            Some(text) => Check::good("python3-venv", text),
            None => Check::lack("python3-venv", "workspaces get no Python environment; install python3-venv"),
        },
        match version("node", &["--version"]) {
            Some(version) => Check::good("node", version),
            None => {
                Check::lack("node", "jobs can't run JavaScript; install nodejs and npm if agents need it")
            }
        },
    ]
}

/// The first line that the program prints, if it runs.
fn version(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then(|| text.lines().next().unwrap_or_default().to_owned())
}

fn job_user() -> Check {
    let own = rustix::process::geteuid();
    if !own.is_root() {
        return Check::lack(
            "user of jobs",
            "jobs run as your own user (SSH keys, tokens in your home); start the executor as root, or in a container, to \
             have them run as another user",
        );
    }
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    match passwd.lines().find(|line| line.starts_with("runlet-job:")) {
        Some(_) => Check::good("user of jobs", "jobs run as runlet-job"),
        None => Check::lack(
            "user of jobs",
            "jobs run as user 20000, which has no name, so that ssh refuses to run in them; `useradd --system runlet-job` \
             gives it one",
        ),
    }
}

fn namespaces() -> Check {
    let unshared = Command::new("unshare")
        .args(["--user", "--map-current-user", "--mount", "true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match unshared {
        Ok(status) if status.success() => {
            Check::good("user namespaces", "the data root can be hidden from jobs")
        }
        Ok(_) => Check::lack(
            "user namespaces",
            "refused by this kernel or container: where jobs run as the executor's own user, the data root is hidden from \
             them by Landlock alone",
        ),
        Err(_) => Check::lack("user namespaces", "not checked: the program unshare (util-linux) is missing"),
    }
}

/// What the executor itself finds, since it is the one that knows. A line names the isolation, the next says why sandboxes
/// have no root of their own, each further one is a gap.
fn isolation(root: &Path) -> Vec<Check> {
    const NAME: &str = "jobs and the executor";
    let executor = match std::env::current_exe() {
        Ok(own) => own.with_file_name("runlet-executor"),
        Err(error) => return vec![Check::lack(NAME, format!("not checked: {error}"))],
    };
    let mut probe = Command::new(&executor);
    probe.args(["--probe-isolation", "--root"]).arg(root).stdin(Stdio::null());
    let output = match probe.output() {
        Ok(output) => output,
        Err(error) => {
            let text =
                format!("not checked: {}: {error}; install it beside this program", executor.display());
            return vec![Check::missing(NAME, text)];
        }
    };
    if !output.status.success() {
        return vec![Check::missing(NAME, String::from_utf8_lossy(&output.stderr).trim().to_owned())];
    }
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines = told.lines();
    let isolation = lines.next();
    let sandboxes = match lines.next().unwrap_or_default() {
        "" => Check::good("sandboxes", "each has a root of its own"),
        why => Check::lack("sandboxes", format!("they are plain directories: {why}")),
    };
    let first = match isolation {
        Some("user") => Check::good(
            NAME,
            "jobs run as another user than the executor, which hides its files and memory from them",
        ),
        Some("namespaces") => Check::good(NAME, "a mount namespace hides the executor's files from jobs"),
        Some("landlock") => Check::good(NAME, "Landlock hides the content of the executor's files from jobs"),
        _ => Check::lack(NAME, "nothing hides the executor's files from jobs"),
    };
    let open = lines.map(|gap| Check::lack("stays open", gap));
    [first, sandboxes].into_iter().chain(open).collect()
}

fn cgroups() -> Check {
    if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        Check::good("cgroups", "version 2")
    } else {
        Check::lack("cgroups", "no unified hierarchy: memory and processor limits can't be set for jobs")
    }
}

fn proc_children() -> Check {
    let own = std::process::id();
    if Path::new(&format!("/proc/{own}/task/{own}/children")).exists() {
        Check::good("lists of children", "the kernel keeps them")
    } else {
        Check::lack(
            "lists of children",
            "the kernel keeps none: ending a job walks over all processes, which is slower",
        )
    }
}

fn open_files() -> Check {
    // What the executor needs for its default of 256 jobs.
    const WANTED: u64 = 2048;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    match limit {
        Some(limit) if limit < WANTED => Check::lack(
            "open files",
            format!(
                "the hard limit is {limit}: fewer jobs than 256 can live at once; raise it (ulimit -Hn, LimitNOFILE=)"
            ),
        ),
        Some(limit) => Check::good("open files", format!("up to {limit}")),
        None => Check::good("open files", "no limit"),
    }
}

fn disk(root: &Path) -> Check {
    // Below it the file tools write nothing.
    const RESERVE: u64 = 256 << 20;
    let existing = root.ancestors().find(|path| path.exists()).unwrap_or(Path::new("."));
    let existing = if existing.as_os_str().is_empty() { Path::new(".") } else { existing };
    match rustix::fs::statvfs(existing) {
        Ok(stat) => {
            let free = stat.f_bavail.saturating_mul(stat.f_frsize);
            let text = format!("{} MiB free for {}", free >> 20, root.display());
            if free > 4 * RESERVE {
                Check::good("disk", text)
            } else {
                Check::lack("disk", text + "; agents need more")
            }
        }
        Err(error) => Check::missing("disk", format!("can't look at {}: {error}", existing.display())),
    }
}
