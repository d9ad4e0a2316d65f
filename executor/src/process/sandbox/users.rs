//! The users of a sandbox: a user namespace in which root is the jobs' user outside and every other user is one that
//! nobody else is, and a view of the machine's files in which they own what they own outside.
#![expect(unsafe_code, reason = "rustix has neither mount_setattr(2) nor a safe unshare(2)")]

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use rustix::process::{Gid, Pid, Uid, WaitOptions};
use rustix::thread::UnshareFlags;

use super::Users;
use crate::process::child::{Fork, exit_now, fork};

/// What is added to the number of a user inside, but root, to give that outside: the first one above those that
/// systemd-nspawn takes for containers (systemd, "Users, Groups, UIDs and GIDs on systemd systems").
const FIRST: u32 = 0x7000_0000;

/// How many users there are, root among them: what Debian's policy (9.2.2) gives numbers to.
const COUNT: u32 = 65_536;

impl Users {
    /// Those of a sandbox of an executor whose jobs run as this user. Root outside is never root inside.
    pub const fn of_jobs(uid: u32, gid: u32, many: bool) -> Self {
        if uid == 0 { Self { uid: FIRST, gid: FIRST, many } } else { Self { uid, gid, many } }
    }

    /// Owner and group, as the executor's disk has them, of what belongs to these on the machine.
    pub(super) const fn of_machine(self, uid: u32, gid: u32) -> (u32, u32) {
        match (self.many, uid, gid) {
            (false, ..) => (uid, gid),
            (true, 0, 0) => (self.uid, self.gid),
            (true, 0, _) => (self.uid, FIRST.wrapping_add(gid)),
            (true, _, 0) => (FIRST.wrapping_add(uid), self.gid),
            (true, ..) => (FIRST.wrapping_add(uid), FIRST.wrapping_add(gid)),
        }
    }

    /// Turns this process, which has one thread, into that of the user who is root inside.
    pub(super) fn become_root(self) -> io::Result<()> {
        let (user, group) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        rustix::thread::set_thread_groups(&[])?;
        rustix::thread::set_thread_res_gid(group, group, group)?;
        Ok(rustix::thread::set_thread_res_uid(user, user, user)?)
    }

    /// A user namespace with these users, which belongs to the one who is root inside. Called by root, in a process with one
    /// thread.
    pub(super) fn namespace(self) -> io::Result<OwnedFd> {
        let (ready, ready_end) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let (hold, hold_end) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let pid = match fork()? {
            Fork::Child => {
                drop((ready, hold_end));
                // SAFETY: the flag is not FILES, so that no descriptor of another thread is affected.
                let unshared = || unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) };
                if self.become_root().is_ok() && unshared().is_ok() {
                    let _told = rustix::io::write(&ready_end, &[0]);
                    // Until the parent has closed its end.
                    let _held = rustix::io::read(&hold, &mut [0]);
                }
                exit_now(0)
            }
            Fork::Parent { pid } => pid,
        };
        drop((ready_end, hold));
        let mapped = || {
            if rustix::io::read(&ready, &mut [0])? == 0 {
                return Err(io::Error::other("the kernel grants no user namespace"));
            }
            for (file, first) in [("uid_map", self.uid), ("gid_map", self.gid)] {
                let rest = COUNT - 1;
                fs::write(format!("/proc/{pid}/{file}"), format!("0 {first} 1\n1 {} {rest}\n", FIRST + 1))?;
            }
            File::open(format!("/proc/{pid}/ns/user"))
        };
        let namespace = mapped();
        drop(hold_end);
        let _reaped = rustix::process::waitpid(Pid::from_raw(pid), WaitOptions::empty());
        Ok(namespace?.into())
    }
}

/// Mounts at `to` what is mounted at `from`, with what belongs to a user outside belonging to the user of that number in the
/// namespace. Fails where the file system can't do that.
pub(super) fn mount_mapped(from: &Path, to: &Path, namespace: &OwnedFd) -> io::Result<()> {
    let tree = open_tree(CWD, from, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
    let wanted = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd: u64::from(namespace.as_raw_fd().unsigned_abs()),
    };
    // SAFETY: the path is a constant, and the attributes are valid for reading in their whole size.
    let set = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const wanted,
            size_of::<libc::mount_attr>(),
        )
    };
    if set < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(move_mount(tree, "", CWD, to, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}
