//! The way into a sandbox: lays out what bubblewrap can't reach by itself, becomes the jobs' user, and hands over to it.

use std::ffi::CString;
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use rustix::process::{Resource, Rlimit, setrlimit};

use super::{Disk, Fence, HOME, Overlay, Plan, Preparation, TMP, Users, cover};
use crate::error::{Error, Result};
use crate::process::cgroup;
use crate::process::veil::enter_mount_namespace;

/// Directories one of which is covered, in this process's mount namespace alone, to lay things out there.
const BENCHES: [&str; 4] = ["/mnt", "/media", "/srv", "/run"];

/// Nothing that a sandbox makes is to be a device, or to run with the rights of who owns it.
const FLAGS: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);

/// What the sandbox is to see as it is outside, though it may be mounted into a container, or a link into `/run`.
const KEPT: [&str; 2] = ["/etc/resolv.conf", "/etc/hosts"];

/// Covered where the sandbox sees the machine's root: its devices and groups of processes, what was started since boot,
/// people's homes.
const COVERED: [&str; 3] = ["/sys", "/run", "/home"];

/// The executor's program, as the sandbox sees it.
const INIT: &str = "/run/runlet/init";

/// Longest plan in bytes. The longest part of it are paths, of which there are some dozens.
const MAX_PLAN_BYTES: usize = 128 << 10;

/// Search path of process 1 of the sandbox; the variables of jobs are made for each.
const SEARCH_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// What root inside may do beyond its own files where there are more users: what installing packages and becoming one of
/// those users takes, and nothing that mounts, loads or configures.
const CAPABILITIES: [&str; 11] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_NET_BIND_SERVICE",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
];

/// What is laid out for bubblewrap.
struct Bench {
    /// The directory that it lies in.
    place: &'static Path,
    /// The overlay.
    root: PathBuf,
    /// This program.
    init: PathBuf,
    /// Directories of its own: where they are laid out, and where they are to be.
    own: Vec<(PathBuf, PathBuf)>,
}

/// Turns this process, which has one thread, into bubblewrap with the sandbox below it. Returns only why it can't.
///
/// What takes no plan is done before that comes, which may be never.
pub fn enter(preparation: &str) -> Result<()> {
    let failed = |what: &str, error: io::Error| Error::internal(format!("starting a sandbox: {what}"), error);
    let preparation: Preparation = serde_json::from_str(preparation)
        .map_err(|error| failed("reading what is known before", error.into()))?;
    let program = std::env::current_exe().map_err(|error| failed("finding the executor's program", error))?;
    fence(&preparation.fence).map_err(|error| failed("limiting it", error))?;
    let mut namespace = None;
    if let Some(users) = preparation.users {
        let own = users.many.then(|| users.namespace()).transpose();
        namespace = own.map_err(|error| failed("mapping its users", error))?;
        enter_mount_namespace(false).map_err(|error| failed("entering a mount namespace", error))?;
    }
    let Some(plan) = receive_plan().map_err(|error| failed("reading its plan", error))? else {
        return Ok(());
    };
    let mut bubblewrap = match (&plan.disk, preparation.users) {
        (Disk::Overlay(overlay), Some(users)) => {
            let bench = lay_out(&plan, overlay, users, &program, namespace.as_ref())
                .map_err(|error| failed("mounting its root", error))?;
            users.become_root().map_err(|error| failed("becoming the jobs' user", error))?;
            on_overlay(&plan, &bench, namespace)
                .map_err(|error| failed("looking at the machine's root", error))?
        }
        (Disk::ReadOnly { home, tmp }, None) => on_machine(&plan, &program, home, tmp),
        _ => return Err(failed("reading its plan", io::Error::other("it was prepared for another disk"))),
    };
    if matches!(preparation.fence, Fence::Processes { .. }) {
        // With a control group it is ended by that, however it was stopped.
        bubblewrap.arg("--die-with-parent");
    }
    bubblewrap.args(["--chdir", "/", "--", INIT, "--sandbox-init"]);
    Err(failed("running bubblewrap", bubblewrap.exec()))
}

/// The plan, as soon as the executor sends it; nothing when that has ended instead.
fn receive_plan() -> io::Result<Option<Plan>> {
    let mut packet = vec![0; MAX_PLAN_BYTES];
    let (length, _) = rustix::io::retry_on_intr(|| {
        rustix::net::recv(io::stdin(), &mut packet[..], rustix::net::RecvFlags::empty())
    })?;
    if length == 0 { Ok(None) } else { Ok(Some(serde_json::from_slice(&packet[..length])?)) }
}

/// Limits this process and all that it will start.
fn fence(fence: &Fence) -> io::Result<()> {
    match fence {
        Fence::Group(entrances) => cgroup::enter(entrances),
        Fence::Processes { data, count } => {
            for (resource, most) in [(Resource::Data, data), (Resource::Nproc, count)] {
                if most.is_some() {
                    setrlimit(resource, Rlimit { current: *most, maximum: *most })?;
                }
            }
            Ok(())
        }
    }
}

/// bubblewrap for a sandbox with a system of its own.
fn on_overlay(plan: &Plan, bench: &Bench, namespace: Option<OwnedFd>) -> io::Result<Command> {
    let mut command = bubblewrap(plan);
    match namespace {
        None => drop(command.args(["--unshare-user", "--uid", "0", "--gid", "0"])),
        Some(namespace) => {
            rustix::io::fcntl_setfd(&namespace, rustix::io::FdFlags::empty())?;
            command.arg("--userns").arg(namespace.as_raw_fd().to_string());
            command.args(CAPABILITIES.iter().flat_map(|capability| ["--cap-add", capability]));
            // bubblewrap is to find it open, in this process or the next.
            std::mem::forget(namespace);
        }
    }
    command.arg("--bind").arg(&bench.root).arg("/").args(["--proc", "/proc", "--dev", "/dev"]);
    let shown = cover::shown_as_they_are()?;
    let shown: Vec<&PathBuf> = shown.iter().filter(|path| *path != bench.place).collect();
    for path in &shown {
        command.arg("--ro-bind").arg(path).arg(path);
    }
    let is_there = |hidden: &&PathBuf| {
        let is_shown = shown.iter().any(|path| hidden.starts_with(path));
        if is_shown { hidden.is_dir() } else { bench.root.join(relative(hidden)).is_dir() }
    };
    empty(&mut command, plan.hidden.iter().filter(is_there).map(PathBuf::as_path));
    empty(&mut command, ["/sys", "/run"].iter().map(Path::new));
    for (laid_out, own) in &bench.own {
        command.arg("--bind").arg(laid_out).arg(own);
    }
    furnish(&mut command, &bench.init);
    Ok(command)
}

/// bubblewrap for a sandbox that sees the machine's root.
fn on_machine(plan: &Plan, program: &Path, home: &Path, tmp: &Path) -> Command {
    let mut command = bubblewrap(plan);
    command.args(["--unshare-user", "--uid", "0", "--gid", "0"]);
    command.args(["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]);
    empty(&mut command, plan.hidden.iter().map(PathBuf::as_path).filter(|path| path.is_dir()));
    empty(&mut command, COVERED.iter().map(Path::new));
    for (from, to) in [(home, Path::new(HOME)), (tmp, Path::new(TMP))] {
        command.arg("--bind").arg(from).arg(to);
    }
    for own in &plan.own {
        command.arg("--bind").arg(own).arg(own);
    }
    furnish(&mut command, program);
    command
}

/// bubblewrap with what it is told of every sandbox.
fn bubblewrap(plan: &Plan) -> Command {
    let mut command = Command::new(&plan.bubblewrap);
    command.env_clear().env("PATH", SEARCH_PATH);
    command.args(["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]);
    if !plan.network {
        command.arg("--unshare-net");
    }
    // No terminal of the executor's to type into; process 1 is ours, and can be neither killed nor stopped from inside.
    command.args(["--new-session", "--as-pid-1", "--hostname", &plan.hostname]);
    command
}

fn empty<'a>(command: &mut Command, directories: impl Iterator<Item = &'a Path>) {
    for directory in directories {
        command.arg("--tmpfs").arg(directory);
    }
}

/// The last mounts, upon all others.
fn furnish(command: &mut Command, init: &Path) {
    command.arg("--ro-bind").arg(init).arg(INIT);
    for kept in KEPT.iter().filter_map(|name| kept(Path::new(name))) {
        command.arg("--ro-bind-try").arg(&kept).arg(&kept);
    }
}

/// Mounts the overlay, and puts this program where the jobs' user may pass.
fn lay_out(
    plan: &Plan,
    overlay: &Overlay,
    users: Users,
    program: &Path,
    namespace: Option<&OwnedFd>,
) -> io::Result<Bench> {
    let needed: Vec<&PathBuf> =
        [&plan.bubblewrap, &overlay.upper, &overlay.scratch].into_iter().chain(&overlay.layers).collect();
    let is_free = |bench: &&Path| bench.is_dir() && !needed.iter().any(|path| path.starts_with(bench));
    let place = BENCHES.into_iter().map(Path::new).find(is_free);
    let place = place.ok_or_else(|| io::Error::other(format!("none of {BENCHES:?} can be covered")))?;
    mount("runlet-sandbox", place, "tmpfs", FLAGS, c"mode=755")?;
    let own = plan.own.iter().enumerate();
    let own = own.map(|(number, own)| (place.join(format!("own-{number}")), own.clone())).collect();
    let bench = Bench { place, root: place.join("root"), init: place.join("init"), own };
    // What the overlay is made of is for nobody else: bubblewrap stays here as the jobs' user, to whom the machine's files
    // belong in there, and whom that user's jobs can follow to (proc_pid_root(5)).
    let parts = place.join("parts");
    fs::create_dir(&parts)?;
    fs::set_permissions(&parts, Permissions::from_mode(0o700))?;
    fs::create_dir(&bench.root)?;
    for (laid_out, own) in &bench.own {
        fs::create_dir(laid_out)?;
        mount_bind(own, laid_out)?;
    }
    let mut lower = stack(overlay, &parts)?;
    let (machine, beneath) = lower_machine(overlay, users, &parts, namespace)?;
    lower.extend(machine);
    let changes = format!(",upperdir={},workdir={}", escaped(&overlay.upper), escaped(&overlay.scratch));
    mount_overlay(&lower, &changes, &bench.root)?;
    // The overlay has them all for itself.
    for part in lower.iter().chain(&beneath) {
        match unmount(part, UnmountFlags::DETACH) {
            // A directory of this bench.
            Err(Errno::INVAL) => {}
            other => other?,
        }
    }
    put_program(program, &bench.init)?;
    Ok(bench)
}

/// The machine's files as the sandbox may see them, the uppermost layer first; and what else is mounted for that.
fn lower_machine(
    overlay: &Overlay,
    users: Users,
    parts: &Path,
    namespace: Option<&OwnedFd>,
) -> io::Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let [covered, cover, machine] = ["covered", "cover", "machine"].map(|name| parts.join(name));
    for directory in [&covered, &cover, &machine] {
        fs::create_dir(directory)?;
    }
    cover::draw(&cover, users)?;
    match namespace {
        Some(namespace) => super::users::mount_mapped(Path::new("/"), &machine, namespace)?,
        None => mount_bind("/", &machine)?,
    }
    // The kernel refuses a layer that lies within another one (ELOOP), so that the machine's are one by themselves. It
    // refuses as well an overlay on an overlay on an overlay, as the machine's root may be; its disk is another one then.
    if fs::metadata(&overlay.upper)?.dev() == fs::metadata("/")?.dev() {
        mount_overlay(&[cover, machine.clone()], "", &covered)?;
        return Ok((vec![covered], vec![machine]));
    }
    Ok((vec![cover, machine], Vec::new()))
}

/// What other sandboxes left, the uppermost first. Each gets a short name: the kernel takes a page of options.
fn stack(overlay: &Overlay, parts: &Path) -> io::Result<Vec<PathBuf>> {
    let mut stacked = Vec::new();
    for (number, layer) in overlay.layers.iter().enumerate().rev() {
        let name = parts.join(number.to_string());
        fs::create_dir(&name)?;
        mount_bind(layer, &name)?;
        stacked.push(name);
    }
    Ok(stacked)
}

fn mount_overlay(lower: &[PathBuf], changes: &str, to: &Path) -> io::Result<()> {
    let lower: Vec<String> = lower.iter().map(|path| escaped(path)).collect();
    let options = CString::new(format!("lowerdir={}{changes}", lower.join(":")))?;
    Ok(mount("runlet-sandbox", to, "overlay", FLAGS, &*options)?)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_paths_are_escaped_in_options() {
        assert_eq!(escaped(Path::new("/a,b:c\\d e")), "/a\\,b\\:c\\\\d e");
    }
}
