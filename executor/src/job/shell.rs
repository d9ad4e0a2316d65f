//! Named shells: a bash that keeps its directory and its variables between commands. Each command is a job with a log of
//! its own; the shell's one process is owned by one task. Status comes on a socket that commands don't have, so nothing
//! that a command prints is taken for its end.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::ledger::{Ledger, Outcome as End, Rest, Totals};
use super::receipt::Opening;
use super::runner::{Cancel, Ending, TIMEOUT_GRACE, cancel_process};
use super::stream::Stream;
use crate::error::{Error, Result};
use crate::file::Presence;
use crate::id::{JobId, WorkspaceId};
use crate::output::Writer;
use crate::process::spawn::{Attachment, Command, Ended, Exit, Process, Report, Spawner, Usage};
use crate::timer::{Deadline, sleep_until};

/// What a named shell runs.
const DRIVER: &str = include_str!("shell.sh");

/// Named shells that may live at once.
const MAX_SHELLS: usize = 64;

/// Longest name of a shell.
const MAX_NAME: usize = 64;

/// Longest answer of the driver: a path.
const MAX_ANSWER: usize = 8192;

/// The named shells.
#[derive(Debug, Default)]
pub(super) struct Shells {
    known: Mutex<HashMap<Key, Arc<Shell>>>,
    /// Held while a shell is started, so that a name never has two.
    starting: tokio::sync::Mutex<()>,
}

type Key = (WorkspaceId, String);

/// A shell that lives.
#[derive(Debug)]
pub(super) struct Shell {
    commands: mpsc::Sender<Task>,
    running: Mutex<Option<JobId>>,
    stop: CancellationToken,
    gone: CancellationToken,
}

/// A command for a shell.
pub(super) struct Task {
    pub ledger: Ledger,
    pub opening: Opening,
    pub orders: mpsc::Receiver<Cancel>,
    pub deadline: Deadline,
    pub log: Writer,
    /// Directory to enter first; empty to stay.
    pub directory: String,
    pub command: String,
}

/// A shell that was claimed for one job.
#[derive(Debug)]
pub(super) struct Claim {
    shell: Arc<Shell>,
}

impl Claim {
    /// Gives the shell back without a command.
    pub(super) fn release(self) {
        *self.shell.running.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Hands the command over. Gives it back when the shell has ended meanwhile.
    pub(super) fn hand_over(self, task: Task) -> std::result::Result<(), Box<Task>> {
        self.shell.commands.try_send(task).map_err(|error| Box::new(error.into_inner()))
    }
}

/// Checks a shell's name.
pub(super) fn check_name(name: &str) -> Result<()> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if name.len() <= MAX_NAME && name.bytes().all(allowed) {
        return Ok(());
    }
    Err(Error::invalid("shell", format!("a name has 1 to {MAX_NAME} of the characters A-Z a-z 0-9 . _ -")))
}

impl Shells {
    /// Claims the shell of this name for a job, starting it with `start` if there is none.
    pub(super) async fn claim(
        self: &Arc<Self>,
        workspace_id: &WorkspaceId,
        name: &str,
        job_id: &JobId,
        start: impl AsyncFnOnce() -> Result<Parts>,
    ) -> Result<Claim> {
        let _one_at_a_time = self.starting.lock().await;
        let key = (workspace_id.clone(), name.to_owned());
        let known = self.lock().get(&key).filter(|shell| !shell.gone.is_cancelled()).cloned();
        let shell = match known {
            Some(shell) => shell,
            None => {
                if self.lock().len() >= MAX_SHELLS {
                    let problem =
                        format!("{MAX_SHELLS} named shells live already; end one by running `exit` in it");
                    return Err(Error::invalid("shell", problem));
                }
                let parts = start().await?;
                self.take_up(key, parts)
            }
        };
        let mut running = shell.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(busy) = running.as_ref() {
            return Err(Error::ShellBusy { shell: name.to_owned(), job_id: busy.to_string() });
        }
        *running = Some(job_id.clone());
        drop(running);
        Ok(Claim { shell })
    }

    fn take_up(self: &Arc<Self>, key: Key, parts: Parts) -> Arc<Shell> {
        let (commands, waiting) = mpsc::channel(1);
        let shell = Arc::new(Shell {
            commands,
            running: Mutex::new(None),
            stop: CancellationToken::new(),
            gone: CancellationToken::new(),
        });
        self.lock().insert(key.clone(), Arc::clone(&shell));
        let Parts { process, output, socket, presence } = parts;
        let owner = Owner { process, output, socket, _presence: presence, shell: Arc::clone(&shell) };
        let shells = Arc::clone(self);
        tokio::spawn(async move {
            let its = Arc::clone(&owner.shell);
            owner.run(waiting).await;
            let mut known = shells.lock();
            if known.get(&key).is_some_and(|shell| Arc::ptr_eq(shell, &its)) {
                known.remove(&key);
            }
            drop(known);
            its.gone.cancel();
        });
        shell
    }

    /// Ends the shells of a workspace, or all, and waits until nothing of them is left.
    pub(super) async fn end(&self, workspace_id: Option<&WorkspaceId>) {
        let wanted: Vec<Arc<Shell>> = self
            .lock()
            .iter()
            .filter(|((workspace, _name), _shell)| workspace_id.is_none_or(|id| id == workspace))
            .map(|(_key, shell)| Arc::clone(shell))
            .collect();
        for shell in &wanted {
            shell.stop.cancel();
        }
        for shell in wanted {
            shell.gone.cancelled().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<Shell>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a shell is made of.
pub(super) struct Parts {
    process: Process,
    output: Stream,
    socket: UnixStream,
    presence: Presence,
}

/// Starts a shell's process. What it leaves running may change files at any time, hence the `presence`.
pub(super) async fn start(spawner: &Spawner, mut command: Command, presence: Presence) -> Result<Parts> {
    let failed = |error: std::io::Error| Error::internal("connecting a named shell", error);
    let (own, its) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(|error| failed(error.into()))?;
    let arguments = ["/bin/bash", "--norc", "--noprofile", "-c", DRIVER, "runlet-shell"];
    command.argv = arguments.iter().map(|argument| argument.as_bytes().to_vec()).collect();
    command.attachment = Some(Attachment::Descriptor(its));
    let (process, pipes) = spawner.spawn(command).await?;
    let socket = std::os::unix::net::UnixStream::from(nonblocking(own).map_err(failed)?);
    let socket = UnixStream::from_std(socket).map_err(failed)?;
    Ok(Parts { process, output: Stream::new(pipes.stdout, None), socket, presence })
}

fn nonblocking(descriptor: OwnedFd) -> std::io::Result<OwnedFd> {
    rustix::io::ioctl_fionbio(descriptor.as_fd(), true)?;
    Ok(descriptor)
}

/// The one task that has a shell's process.
struct Owner {
    process: Process,
    output: Stream,
    socket: UnixStream,
    shell: Arc<Shell>,
    _presence: Presence,
}

/// How a command in a shell came to its end.
enum Outcome {
    /// With this status; the shell lives on.
    Done {
        code: i32,
        /// Processor time of the command's processes that have ended.
        cpu: Option<Duration>,
    },
    /// With the shell.
    ShellEnded(Exit),
}

impl Owner {
    async fn run(mut self, mut waiting: mpsc::Receiver<Task>) {
        let mut alive = true;
        while alive {
            tokio::select! {
                report = self.process.report() => {
                    if matches!(report, Report::Ended(_)) {
                        self.kill().await;
                    }
                    break;
                }
                () = self.shell.stop.cancelled() => {
                    self.kill().await;
                    break;
                }
                // What the shell's background processes print between commands belongs to none.
                ready = self.output.readable() => self.output.advance(ready),
                Some(task) = waiting.recv() => alive = self.execute(task).await,
            }
        }
        waiting.close();
        while let Ok(task) = waiting.try_recv() {
            task.ledger.note("the shell ended before the command began");
            let ended = Ended::KILLED;
            let end = End { ended, timed_out: false, out_of_memory: None, count: None };
            task.ledger.end(end, Totals::default()).await;
            task.ledger.close(Rest::default(), Totals::default()).await;
        }
    }

    /// Runs one command; false when the shell has ended with it.
    async fn execute(&mut self, task: Task) -> bool {
        let Task { ledger, mut opening, mut orders, deadline, log, directory, command } = task;
        self.output.drain();
        self.output.redirect(Some(log));
        let (outcome, ending) = self.follow(&ledger, &mut orders, deadline, &directory, &command).await;
        self.output.drain();
        let totals = Totals { output: self.output.total(), stderr: 0, caps_hit: self.output.caps_hit() };
        let (exit, usage, lives) = match outcome {
            Outcome::Done { code, cpu } => {
                // The largest resident set that is known is that of all commands so far.
                let usage = cpu.map(|cpu| Usage { cpu, max_rss_bytes: None });
                (Exit::Code(code), usage, true)
            }
            Outcome::ShellEnded(exit) => {
                ledger.note("the shell ended with this command; the next one of its name starts anew");
                (exit, None, false)
            }
        };
        let ended = Ended { exit, usage, ..Ended::KILLED };
        if !lives {
            self.kill().await;
            self.shell.gone.cancel();
        }
        // Whoever learns of the end may use the shell's name at once.
        *self.shell.running.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let out_of_memory = opening.out_of_memory(&ended, ending.killed);
        let (count, counting) = match opening.count(&ended).await {
            Ok(count) => (Some(count), None),
            Err(counting) => (None, Some(counting)),
        };
        ledger.end(End { ended, timed_out: ending.timed_out, out_of_memory, count }, totals).await;
        let count = match counting {
            Some(counting) => Some(counting.await),
            None => None,
        };
        ledger.close(Rest { count, ..Rest::default() }, totals).await;
        self.output.redirect(None);
        lives
    }

    async fn follow(
        &mut self,
        ledger: &Ledger,
        orders: &mut mpsc::Receiver<Cancel>,
        mut deadline: Deadline,
        directory: &str,
        command: &str,
    ) -> (Outcome, Ending) {
        let frame = [directory.as_bytes(), b"\0", command.as_bytes(), b"\0"].concat();
        let (mut reader, mut writer) = self.socket.split();
        let writing = async {
            let _shell_gone = writer.write_all(&frame).await.is_err();
            std::future::pending::<()>().await;
        };
        tokio::pin!(writing);
        let mut answer = Vec::new();
        let mut times = Times::default();
        let mut ending: Option<Ending> = None;
        loop {
            let kill_at = ending.and_then(|ending| ending.kill_at);
            tokio::select! {
                () = &mut writing => {}
                byte = reader.read_u8() => match byte {
                    Ok(0) => {
                        if let Some(outcome) = read_answer(&answer, ledger, &mut times) {
                            return (outcome, ending.unwrap_or_default());
                        }
                        answer.clear();
                    }
                    Ok(byte) if answer.len() < MAX_ANSWER => answer.push(byte),
                    // Its end is reported by its init.
                    Ok(_) | Err(_) => {
                        let exit = wait_for_end(&mut self.process).await;
                        return (Outcome::ShellEnded(exit), ending.unwrap_or_default());
                    }
                },
                report = self.process.report() => {
                    return (Outcome::ShellEnded(exit_of(&report)), ending.unwrap_or_default());
                }
                ready = self.output.readable() => {
                    self.output.advance(ready);
                    ledger.wrote(Totals { output: self.output.total(), ..Totals::default() });
                }
                Some(cancel) = orders.recv() => {
                    ending = Some(cancel_process(&mut self.process, cancel, ending).await);
                }
                () = deadline.passed(), if ending.is_none() => {
                    let cancel = Cancel { signal: libc::SIGTERM, grace: TIMEOUT_GRACE };
                    let cancelled = cancel_process(&mut self.process, cancel, None).await;
                    ending = Some(Ending { timed_out: true, ..cancelled });
                }
                () = sleep_until(kill_at), if ending.is_some() => {
                    self.process.kill().await;
                    let known = ending.unwrap_or_default();
                    ending = Some(Ending { kill_at: None, killed: true, ..known });
                }
            }
        }
    }

    /// Ends the shell with everything it started.
    async fn kill(&mut self) {
        self.process.kill().await;
        while !matches!(self.process.report().await, Report::Gone { .. } | Report::Lost) {}
    }
}

async fn wait_for_end(process: &mut Process) -> Exit {
    process.kill().await;
    exit_of(&process.report().await)
}

fn exit_of(report: &Report) -> Exit {
    match report {
        Report::Ended(ended) => ended.exit,
        Report::Gone { .. } | Report::Lost => Ended::KILLED.exit,
    }
}

/// Processor time of the shell and its children: before a command, and after it.
#[derive(Default)]
struct Times {
    before: Option<Duration>,
    after: Option<Duration>,
}

/// The sum of what times(1) says, such as `0m0.012s 0m0.001s` on two lines. A locale may have another point.
fn read_times(text: &str) -> Option<Duration> {
    text.split_whitespace().try_fold(Duration::ZERO, |sum, time| {
        let (minutes, seconds) = time.strip_suffix('s')?.split_once('m')?;
        let (whole, thousandths) = seconds.split_once(['.', ','])?;
        let minutes = Duration::from_secs(minutes.parse::<u64>().ok()?.checked_mul(60)?);
        let seconds = Duration::from_secs(whole.parse().ok()?);
        Some(sum + minutes + seconds + Duration::from_millis(thousandths.parse().ok()?))
    })
}

/// Reads an answer of the driver: a status ends the command, a move is noted.
fn read_answer(answer: &[u8], ledger: &Ledger, times: &mut Times) -> Option<Outcome> {
    let text = String::from_utf8_lossy(answer);
    match text.split_at_checked(1) {
        Some(("s", status)) => {
            let cpu = times.before.zip(times.after).map(|(before, after)| after.saturating_sub(before));
            Some(Outcome::Done { code: status.parse().unwrap_or(0), cpu })
        }
        Some(("t", told)) => {
            let told = read_times(told);
            match times.before {
                None => times.before = told,
                Some(_) => times.after = told,
            }
            None
        }
        Some(("m", directory)) => {
            ledger.note(&format!("the shell's directory was gone; the command ran in {directory}"));
            None
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_summed_in_any_locale() {
        assert_eq!(read_times("0m0.012s 0m0.001s\n1m2,500s 0m0.000s\n"), Some(Duration::from_millis(62_513)));
        assert_eq!(read_times(""), Some(Duration::ZERO));
        for odd in ["1.5s", "0m1s", "x", "0m0.1"] {
            assert_eq!(read_times(odd), None, "{odd}");
        }
    }
}
