//! The way into a sandbox: lays out what bubblewrap can't reach by itself, becomes the jobs' user, and hands over to it.

use std::ffi::CString;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::{MountFlags, mount, mount_bind};

use super::{HOME, Plan, TMP};
use crate::error::{Error, Result};
use crate::process::veil::enter_mount_namespace;

/// Directories one of which is covered, in this process's mount namespace alone, to lay things out there.
const BENCHES: [&str; 4] = ["/mnt", "/media", "/srv", "/run"];

/// What the sandbox is to see as it is outside, though it may be mounted into a container, or a link into `/run`.
const KEPT: [&str; 2] = ["/etc/resolv.conf", "/etc/hosts"];

/// Covered in every sandbox: the machine's devices and groups of processes, what was started since boot, people's homes.
const COVERED: [&str; 3] = ["/sys", "/run", "/home"];

/// The executor's program, as the sandbox sees it.
const INIT: &str = "/run/runlet/init";

/// Search path of process 1 of the sandbox; the variables of jobs are made for each.
const SEARCH_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Where things lie outside.
struct Layout {
    /// An overlay over the machine's root; none where that is shown as it is, to be read only.
    overlay: Option<PathBuf>,
    init: PathBuf,
    home: PathBuf,
    tmp: PathBuf,
}

/// Turns this process, which has one thread, into bubblewrap with the sandbox below it. Returns only why it can't.
pub fn enter(plan: &str) -> Result<()> {
    let failed = |what: &str, error: io::Error| Error::internal(format!("starting a sandbox: {what}"), error);
    let plan: Plan = serde_json::from_str(plan).map_err(|error| failed("reading its plan", error.into()))?;
    let program = std::env::current_exe().map_err(|error| failed("finding the executor's program", error))?;
    let layout = match plan.outside {
        Some((user, group)) => {
            enter_mount_namespace(false).map_err(|error| failed("entering a mount namespace", error))?;
            let layout = lay_out(&plan, &program).map_err(|error| failed("mounting its root", error))?;
            become_user(user, group).map_err(|error| failed("becoming the jobs' user", error))?;
            layout
        }
        // Another user's root can't be changed even in an overlay, so that there is no use for one.
        None => Layout { overlay: None, init: program, home: plan.home.clone(), tmp: plan.tmp.clone() },
    };
    Err(failed("running bubblewrap", bubblewrap(&plan, &layout).exec()))
}

/// The only place that decides what bubblewrap is told.
fn bubblewrap(plan: &Plan, layout: &Layout) -> Command {
    let mut command = Command::new(&plan.bubblewrap);
    command.env_clear().env("PATH", SEARCH_PATH);
    command.args(["--unshare-user", "--uid", "0", "--gid", "0"]);
    command.args(["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]);
    if !plan.network {
        command.arg("--unshare-net");
    }
    // No terminal of the executor's to type into; process 1 is ours, and can be neither killed nor stopped from inside.
    command.args(["--new-session", "--as-pid-1", "--hostname", &plan.hostname]);
    let root = match &layout.overlay {
        Some(overlay) => {
            command.arg("--bind").arg(overlay);
            overlay
        }
        None => {
            command.args(["--ro-bind", "/"]);
            Path::new("/")
        }
    };
    command.arg("/").args(["--proc", "/proc", "--dev", "/dev"]);
    let hidden = plan.hidden.iter().map(PathBuf::as_path).filter(|path| root.join(relative(path)).is_dir());
    for covered in hidden.chain(COVERED.iter().map(Path::new)) {
        command.arg("--tmpfs").arg(covered);
    }
    for (how, outside, inside) in
        [("--ro-bind", &layout.init, INIT), ("--bind", &layout.home, HOME), ("--bind", &layout.tmp, TMP)]
    {
        command.arg(how).arg(outside).arg(inside);
    }
    for kept in KEPT.iter().filter_map(|name| kept(Path::new(name))) {
        command.arg("--ro-bind-try").arg(&kept).arg(&kept);
    }
    command.args(["--chdir", "/", "--", INIT, "--sandbox-init"]);
    command
}

/// Mounts the overlay, and puts everything else where the jobs' user may pass.
fn lay_out(plan: &Plan, program: &Path) -> io::Result<Layout> {
    let needed = [&plan.bubblewrap, &plan.upper, &plan.scratch, &plan.home, &plan.tmp];
    let is_free = |bench: &&Path| bench.is_dir() && !needed.iter().any(|path| path.starts_with(bench));
    let bench = BENCHES.iter().map(Path::new).find(is_free);
    let bench = bench.ok_or_else(|| io::Error::other(format!("none of {BENCHES:?} can be covered")))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("runlet-sandbox", bench, "tmpfs", flags, c"mode=755")?;
    let [overlay, init, home, tmp] = ["root", "init", "home", "tmp"].map(|name| bench.join(name));
    for directory in [&overlay, &home, &tmp] {
        fs::create_dir(directory)?;
    }
    let options = [("lowerdir", Path::new("/")), ("upperdir", &plan.upper), ("workdir", &plan.scratch)]
        .map(|(name, path)| format!("{name}={}", escaped(path)));
    let options = CString::new(options.join(","))?;
    mount("runlet-sandbox", &overlay, "overlay", flags, &*options)?;
    for covered in COVERED.iter().chain([&TMP]) {
        fs::create_dir_all(overlay.join(relative(Path::new(covered))))?;
    }
    mount_bind(&plan.home, &home)?;
    mount_bind(&plan.tmp, &tmp)?;
    put_program(program, &init)?;
    Ok(Layout { overlay: Some(overlay), init, home, tmp })
}

/// Puts this program there; as a copy where an update has replaced the file that it was started from.
fn put_program(path: &Path, init: &Path) -> io::Result<()> {
    const OWN: &str = "/proc/self/exe";
    let (own, found) = (fs::metadata(OWN)?, fs::metadata(path));
    if found.is_ok_and(|found| (found.dev(), found.ino()) == (own.dev(), own.ino())) {
        fs::write(init, "")?;
        Ok(mount_bind(path, init)?)
    } else {
        fs::copy(OWN, init)?;
        fs::set_permissions(init, Permissions::from_mode(0o755))
    }
}

/// The path, without links, of a file that is on another file system than the root, or would be covered.
fn kept(name: &Path) -> Option<PathBuf> {
    let path = name.canonicalize().ok()?;
    let elsewhere = fs::metadata(&path).ok()?.dev() != fs::metadata("/").ok()?.dev();
    (elsewhere || COVERED.iter().any(|covered| path.starts_with(covered))).then_some(path)
}

fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

/// A path within the options of an overlay, where `,`, `:` and `\` mean something.
fn escaped(path: &Path) -> String {
    let mut text = String::new();
    for char in path.to_string_lossy().chars() {
        if matches!(char, ',' | ':' | '\\') {
            text.push('\\');
        }
        text.push(char);
    }
    text
}

fn become_user(user: u32, group: u32) -> io::Result<()> {
    use rustix::process::{Gid, Uid};
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(group, group, group)?;
    Ok(rustix::thread::set_thread_res_uid(user, user, user)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_paths_are_escaped_in_options() {
        assert_eq!(escaped(Path::new("/a,b:c\\d e")), "/a\\,b\\:c\\\\d e");
    }
}
