//! From the fork to the exec: the few lines that run in a child that shares its parent's memory. They call the kernel
//! and nothing else, since between the two even an allocation could meet a lock that nobody will release.
#![expect(unsafe_code, reason = "a child that shares memory with its parent can't be made by safe code")]

use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use super::identity::Identity;
use super::wire::{ATTACHMENT, Stage};

/// Bytes of stack for the child until it executes the program. It calls a dozen system calls, no more.
const STACK_BYTES: usize = 64 << 10;

/// Score by which the kernel prefers a job over the executor when memory runs out (proc(5), oom_score_adj).
const OOM_SCORE: &[u8] = b"500";

/// A program to execute, everything prepared before the fork.
pub(super) struct Program<'a> {
    argv: Vec<*const c_char>,
    envp: Vec<*const c_char>,
    cwd: *const c_char,
    _strings: Vec<CString>,
    around: Surroundings<'a>,
}

/// What a program is made of besides its strings.
pub(super) struct Surroundings<'a> {
    pub stdio: [BorrowedFd<'a>; 3],
    pub attachment: Option<BorrowedFd<'a>>,
    /// Standard input is a terminal, which becomes that of the program's session.
    pub on_terminal: bool,
    pub identity: &'a Identity,
    pub open_files: libc::rlimit,
}

impl<'a> Program<'a> {
    /// Prepares a program. Fails when a string holds a NUL.
    pub(super) fn new(
        argv: Vec<Vec<u8>>,
        env: Vec<Vec<u8>>,
        cwd: Vec<u8>,
        around: Surroundings<'a>,
    ) -> io::Result<Self> {
        let (arguments, variables) = (argv.len(), env.len());
        let strings = argv.into_iter().chain(env).chain([cwd]).map(CString::new);
        let strings = strings.collect::<Result<Vec<_>, _>>().map_err(io::Error::other)?;
        let pointers = |strings: &[CString]| -> Vec<*const c_char> {
            strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
        };
        Ok(Self {
            argv: pointers(&strings[..arguments]),
            envp: pointers(&strings[arguments..arguments + variables]),
            cwd: strings[arguments + variables].as_ptr(),
            _strings: strings,
            around,
        })
    }

    /// Starts the program and returns its process id, or what failed.
    pub(super) fn start(&self) -> Result<i32, (Stage, i32)> {
        let mut stack = Vec::<u8>::with_capacity(STACK_BYTES);
        let mut task = Task { program: self, failure: None };
        // The end of the stack, aligned as every ABI we build for asks (16 bytes).
        let top = stack.spare_capacity_mut().as_mut_ptr_range().end.cast::<u8>();
        let top = top.wrapping_sub(top as usize % 16);
        // SAFETY: `run` executes on `stack`, which outlives it: CLONE_VFORK holds this thread until the child has
        // executed or exited. The process has one thread, so nothing else touches `task` meanwhile. Safe code can't
        // do this: std's Command forks with all of the parent's page tables and reports a failed exec as one errno.
        let pid = unsafe {
            libc::clone(
                run,
                top.cast::<c_void>(),
                libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
                (&raw mut task).cast::<c_void>(),
            )
        };
        drop(stack);
        if pid < 0 {
            return Err((Stage::Fork, last_errno()));
        }
        match task.failure {
            None => Ok(pid),
            Some(failure) => {
                // SAFETY: the child has exited and is ours; the status is not wanted.
                unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
                Err(failure)
            }
        }
    }
}

struct Task<'a> {
    program: *const Program<'a>,
    failure: Option<(Stage, i32)>,
}

extern "C" fn run(argument: *mut c_void) -> c_int {
    // SAFETY: `argument` is the `Task` that `start` keeps alive, and nobody else touches it meanwhile.
    let task = unsafe { &mut *argument.cast::<Task<'_>>() };
    // SAFETY: as above; the program is only read.
    let program = unsafe { &*task.program };
    let stage = execute(program);
    task.failure = Some((stage, last_errno()));
    // SAFETY: ends the child at once, without the parent's exit handlers.
    unsafe { libc::_exit(127) }
}

/// Turns this process into the program; returns only if that failed, with the stage it failed at.
fn execute(program: &Program<'_>) -> Stage {
    let around = &program.around;
    // SAFETY: system calls on descriptors, numbers and strings that `program` keeps alive; none of them allocates.
    // The user is switched by raw system calls: glibc's functions would look for other threads to switch.
    unsafe {
        if libc::setsid() < 0 {
            return Stage::Session;
        }
        for (target, source) in (0..).zip(around.stdio) {
            if libc::dup2(source.as_raw_fd(), target) < 0 {
                return Stage::Descriptors;
            }
        }
        if around.on_terminal && libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
            return Stage::Terminal;
        }
        libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
        raise_oom_score();
        let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core);
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const around.open_files);
        libc::umask(0o022);
        let identity = around.identity;
        if identity.switch
            && (libc::syscall(libc::SYS_setgroups, identity.groups.len(), identity.groups.as_ptr()) < 0
                || libc::syscall(libc::SYS_setresgid, identity.gid, identity.gid, identity.gid) < 0
                || libc::syscall(libc::SYS_setresuid, identity.uid, identity.uid, identity.uid) < 0)
        {
            return Stage::User;
        }
        if libc::chdir(program.cwd) < 0 {
            return Stage::Directory;
        }
        if let Some(attachment) = around.attachment {
            let source = attachment.as_raw_fd();
            // Duplicating a descriptor onto itself would leave it to be closed by the exec.
            let kept = if source == ATTACHMENT {
                libc::fcntl(source, libc::F_SETFD, 0)
            } else {
                libc::dup2(source, ATTACHMENT)
            };
            if kept < 0 {
                return Stage::Descriptors;
            }
        }
        if identity.uid != 0 && libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 {
            return Stage::Confinement;
        }
        // The init blocks every signal; a program does not expect that.
        let mut none = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        libc::execve(program.argv[0], program.argv.as_ptr(), program.envp.as_ptr());
    }
    Stage::Execute
}

/// Failing to do so costs nothing but the preference.
fn raise_oom_score() {
    // SAFETY: opens, writes and closes a file of this process; the strings are constants.
    unsafe {
        let file: RawFd = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if file >= 0 {
            libc::write(file, OOM_SCORE.as_ptr().cast::<c_void>(), OOM_SCORE.len());
            libc::close(file);
        }
    }
}

fn last_errno() -> i32 {
    // SAFETY: errno's address is valid for the calling thread.
    unsafe { *libc::__errno_location() }
}

/// Forks. `true` in the child.
///
/// Only a process with a single thread may call it: the child would find every lock of another thread held for ever.
pub(super) fn fork() -> io::Result<Fork> {
    // SAFETY: the caller has one thread, as documented, so the child may go on as the parent would.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent { pid }),
    }
}

/// Which side of a [`fork`] this is.
pub(super) enum Fork {
    Child,
    Parent { pid: i32 },
}

/// Ends this process at once, without the exit handlers it inherited from its parent.
pub(super) fn exit_now(status: i32) -> ! {
    // SAFETY: never returns and touches nothing.
    unsafe { libc::_exit(status) }
}

/// Blocks every signal of this process and returns a descriptor that tells of ended children.
pub(super) fn child_signals() -> io::Result<std::os::fd::OwnedFd> {
    use std::os::fd::FromRawFd;
    // SAFETY: the sets are initialised before use, and a fresh descriptor is owned by nobody else.
    unsafe {
        let mut all = std::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
        let mut child = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut child);
        libc::sigaddset(&raw mut child, libc::SIGCHLD);
        match libc::signalfd(-1, &raw const child, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            descriptor => Ok(std::os::fd::OwnedFd::from_raw_fd(descriptor)),
        }
    }
}

/// Takes what such a descriptor holds, so that it becomes readable again only by news.
pub(super) fn drain(signals: BorrowedFd<'_>) {
    let mut buffer = [0; 1024];
    while matches!(rustix::io::read(signals, &mut buffer), Ok(read) if read > 0) {}
}

/// Lets every signal do what it does by default, for programs to come: Rust's runtime ignores SIGPIPE, and whoever
/// started the executor may have made it ignore others, as nohup(1) and shells that start something in the background do.
pub(super) fn reset_signals() {
    // Of the 64 signals KILL and STOP can't be changed, and the C library keeps two to itself; both is no matter here.
    for signal in 1..=64 {
        // SAFETY: sets a disposition; no handler of this program is installed.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// What became of a child that [`reap`] found.
pub(super) enum Reaped {
    /// This child ended, with its wait(2) status and what it used.
    Child { pid: i32, status: i32, cpu_micros: u64, max_rss_kib: u64 },
    /// This child lives and was stopped by a signal.
    Stopped { pid: i32 },
    /// Children live, none has ended.
    None,
    /// There is no child.
    Childless,
}

/// Whether children that are stopped by a signal are of interest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stops {
    Ignored,
    Told,
}

/// Reaps one ended child without waiting.
pub(super) fn reap(stops: Stops) -> Reaped {
    let mut status = 0;
    let options = if stops == Stops::Told { libc::WNOHANG | libc::WUNTRACED } else { libc::WNOHANG };
    // SAFETY: both out-parameters are valid for writes, and all-zero is a valid rusage.
    let (pid, usage) = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        (libc::wait4(-1, &raw mut status, options, &raw mut usage), usage)
    };
    match pid {
        0 => Reaped::None,
        -1 => Reaped::Childless,
        _ if libc::WIFSTOPPED(status) => Reaped::Stopped { pid },
        _ => {
            let micros = |time: libc::timeval| {
                u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_usec).unwrap_or(0)
            };
            Reaped::Child {
                pid,
                status,
                cpu_micros: micros(usage.ru_utime) + micros(usage.ru_stime),
                max_rss_kib: u64::try_from(usage.ru_maxrss).unwrap_or(0),
            }
        }
    }
}
