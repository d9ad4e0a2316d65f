//! Hides the executor's own files from jobs. Where jobs run as another user, file modes do that, and the veil only opens
//! the way to workspaces below a directory that this user may not enter, such as root's home. Where they run as the same
//! user, a mount namespace covers the data root and the socket's directory; where the kernel grants none, Landlock
//! denies them. What stays open is told in plain sentences.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind_recursive, mount_change, mount_remount,
};
use rustix::thread::UnshareFlags;

use super::identity::Identity;

/// The Landlock rules asked for: those of Linux 6.12, which brought scopes.
const RULES: ABI = ABI::V6;

/// What is to be hidden.
#[derive(Debug, Clone)]
pub struct Veil {
    /// The data root.
    pub root: PathBuf,
    /// The only directory below it that jobs see.
    pub workspaces: PathBuf,
    /// Directory of the socket, when it is the executor's own and lies outside the data root.
    pub socket_directory: Option<PathBuf>,
}

/// What the veil achieved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drawn {
    /// What keeps jobs from the executor: `user`, `namespaces`, `landlock` or `none`.
    pub isolation: String,
    /// What stays open, a sentence each.
    pub gaps: Vec<String>,
}

impl Drawn {
    fn new(isolation: &str, gaps: Vec<String>) -> Self {
        Self { isolation: isolation.to_owned(), gaps }
    }
}

impl Veil {
    /// Draws the veil over this process and all that it will start; returns what stays open, or why jobs could not run
    /// at all. The process must have one thread.
    pub(super) fn draw(&self, identity: &Identity) -> Result<Drawn, String> {
        if identity.uid == 0 {
            let gap = "jobs run as root, by choice: they can read and change everything, the executor's own files and memory \
                       included";
            return Ok(Drawn::new("none", vec![gap.to_owned()]));
        }
        if !identity.switch {
            return Ok(self.draw_for_own_user());
        }
        let Some(barrier) = barrier(&self.workspaces, identity) else {
            return Ok(Drawn::new("user", Vec::new()));
        };
        self.cover(&barrier, false).map(|()| Drawn::new("user", Vec::new())).map_err(|error| {
            format!(
                "the jobs' user {} may not enter {} (mode {:o}), and a mount namespace to open a way is refused \
                 ({error}); put SANDBOX_ROOT elsewhere, such as /var/lib/runlet, or open that directory with chmod o+x",
                identity.name,
                barrier.display(),
                fs::metadata(&barrier).map_or(0, |data| data.mode() & 0o7777),
            )
        })
    }

    fn draw_for_own_user(&self) -> Drawn {
        let mut gaps = vec![
            "jobs run as the executor's own user: they can use all that this user's files give access to"
                .to_owned(),
        ];
        let covered = self.cover(&self.root, true);
        let scoped = confine(covered.is_err().then_some(self)).unwrap_or(false);
        if !scoped {
            gaps.push(
                "jobs can signal the executor and the gateway: this kernel has no Landlock scopes".to_owned(),
            );
        }
        let isolation = match covered {
            Ok(()) => "namespaces",
            Err(error) if scoped => {
                gaps.push(format!(
                    "jobs can see the names, not the content, of files in the data root, and connect to the socket, which \
                     answers nobody without the secret: no mount namespace here ({error})"
                ));
                "landlock"
            }
            Err(error) => {
                gaps.push(format!(
                    "the data root and the socket are open to jobs: no mount namespace ({error}) and no Landlock here"
                ));
                "none"
            }
        };
        Drawn::new(isolation, gaps)
    }

    /// Enters a mount namespace in which `directory` is empty but for the way to the workspaces.
    fn cover(&self, directory: &Path, user_namespace: bool) -> io::Result<()> {
        enter_mount_namespace(user_namespace)?;
        // Opened in the new namespace: a mount of another one can't be bound.
        let workspaces = open_directory(&self.workspaces)?;
        let empty = |path: &Path| {
            mount(
                "runlet-veil",
                path,
                "tmpfs",
                MountFlags::NOSUID | MountFlags::NODEV,
                Some(c"mode=755,size=1m"),
            )
        };
        if let Some(socket) = &self.socket_directory
            && !socket.starts_with(directory)
        {
            empty(socket)?;
            seal(socket)?;
        }
        empty(directory)?;
        let mut at = directory.to_owned();
        for part in self.workspaces.strip_prefix(directory).map_err(io::Error::other)? {
            at.push(part);
            fs::create_dir(&at)?;
            fs::set_permissions(&at, fs::Permissions::from_mode(0o755))?;
        }
        mount_bind_recursive(format!("/proc/self/fd/{}", workspaces.as_raw_fd()), &self.workspaces)?;
        seal(directory)
    }
}

/// Has this process, which has one thread, mount things for itself and its children alone; with `user_namespace` as a user
/// who may not mount otherwise.
pub(super) fn enter_mount_namespace(user_namespace: bool) -> io::Result<()> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if user_namespace {
        unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)?;
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
        fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    } else {
        unshare(UnshareFlags::NEWNS)?;
    }
    Ok(mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?)
}

fn seal(directory: &Path) -> io::Result<()> {
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::BIND;
    Ok(mount_remount(directory, flags, c"")?)
}

fn unshare(flags: UnshareFlags) -> io::Result<()> {
    #[expect(unsafe_code, reason = "rustix marks it so for the sake of CLONE_FILES, which is not asked for")]
    // SAFETY: the flags hold no FILES, so no descriptor of another thread is affected; there is no other thread.
    unsafe {
        Ok(rustix::thread::unshare_unsafe(flags)?)
    }
}

fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// The uppermost directory on the way to `path` that the jobs' user may not pass through.
pub fn barrier(path: &Path, identity: &Identity) -> Option<PathBuf> {
    let mut ancestors: Vec<&Path> = path.ancestors().skip(1).collect();
    ancestors.reverse();
    ancestors.into_iter().find(|ancestor| !may_pass(ancestor, identity)).map(Path::to_owned)
}

/// Whether file modes let the user pass through the directory; access control lists are not looked at.
pub fn may_pass(directory: &Path, identity: &Identity) -> bool {
    let Ok(data) = fs::metadata(directory) else { return false };
    let bits = if data.uid() == identity.uid {
        data.mode() >> 6
    } else if data.gid() == identity.gid || identity.groups.contains(&data.gid()) {
        data.mode() >> 3
    } else {
        data.mode()
    };
    identity.uid == 0 || bits & 1 != 0
}

/// Keeps this process and all that it will start from signalling anything else and from abstract sockets of others, and,
/// with `hidden`, from the data root and the socket. False where the kernel has no such Landlock (before 6.12).
fn confine(hidden: Option<&Veil>) -> Result<bool, landlock::RulesetError> {
    let ruleset =
        Ruleset::default().set_compatibility(CompatLevel::BestEffort).scope(Scope::from_all(RULES))?;
    let created = match hidden {
        None => ruleset.create()?,
        Some(veil) => allow_all_but(ruleset.handle_access(AccessFs::from_all(RULES))?.create()?, veil)?,
    };
    Ok(created.restrict_self()?.ruleset == RulesetStatus::FullyEnforced)
}

/// Landlock only allows; so everything beside the way to what is hidden is allowed, entry by entry.
fn allow_all_but(mut ruleset: RulesetCreated, veil: &Veil) -> Result<RulesetCreated, landlock::RulesetError> {
    let hidden: Vec<&Path> =
        std::iter::once(veil.root.as_path()).chain(veil.socket_directory.as_deref()).collect();
    let mut open = vec![veil.workspaces.clone()];
    let mut ways: Vec<PathBuf> =
        hidden.iter().flat_map(|path| path.ancestors().skip(1)).map(Path::to_owned).collect();
    ways.sort();
    ways.dedup();
    for way in &ways {
        let Ok(entries) = fs::read_dir(way) else { continue };
        open.extend(
            entries
                .flatten()
                .map(|entry| entry.path())
                .filter(|path| !ways.contains(path) && !hidden.contains(&path.as_path())),
        );
    }
    for path in open {
        // Rules for a file may name only what can be done to a file.
        let access = if path.is_dir() { AccessFs::from_all(RULES) } else { AccessFs::from_file(RULES) };
        if let Ok(opened) = PathFd::new(&path) {
            ruleset = ruleset.add_rule(PathBeneath::new(opened.as_fd(), access))?;
        }
    }
    // The way itself may be listed, so that `ls ..` works.
    for way in ways {
        if let Ok(opened) = PathFd::new(&way) {
            ruleset = ruleset.add_rule(PathBeneath::new(opened.as_fd(), AccessFs::ReadDir))?;
        }
    }
    Ok(ruleset)
}
