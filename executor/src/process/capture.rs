//! Runs a short program of the executor's own, such as git, and captures what it prints. It runs as the jobs' user, with
//! an init like a job's, so that nothing of it is left when it is over time or its caller goes away.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe::{Receiver, Sender};

use super::spawn::{Command, Ended, Exit, Report, Spawner};
use crate::error::{Error, Result};

/// Bytes of each stream that are kept; of what is longer the first ones.
const KEPT_BYTES: usize = 256 << 10;

/// What a captured program printed and how it ended.
#[derive(Debug)]
pub struct Captured {
    /// How it ended; `None` when its time was over.
    pub exit: Option<Exit>,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
}

impl Captured {
    /// Whether it exited with status 0.
    pub fn succeeded(&self) -> bool {
        self.exit == Some(Exit::Code(0))
    }
}

/// Runs `command` for at most `limit`. Nothing of it lives when this returns.
pub async fn capture(spawner: &Spawner, command: Command, limit: Duration) -> Result<Captured> {
    capture_until(spawner, command, tokio::time::sleep(limit)).await
}

/// Runs `command` until `over` at most. Nothing of it lives when this returns.
pub async fn capture_until(
    spawner: &Spawner,
    command: Command,
    over: impl Future<Output = ()>,
) -> Result<Captured> {
    converse(spawner, command, Exchange { input: &[], kept_bytes: KEPT_BYTES }, over).await
}

/// What a program is given and what is kept of its answer.
#[derive(Debug, Clone, Copy)]
pub struct Exchange<'a> {
    /// Its standard input, where the command has one. A program may end without having read it all.
    pub input: &'a [u8],
    /// Bytes of each stream that are kept.
    pub kept_bytes: usize,
}

/// Runs `command` until `over` at most, feeding it. Nothing of it lives when this returns.
pub async fn converse(
    spawner: &Spawner,
    mut command: Command,
    exchange: Exchange<'_>,
    over: impl Future<Output = ()>,
) -> Result<Captured> {
    command.separate_stderr = true;
    tokio::pin!(over);
    let (mut process, pipes) = spawner.spawn(command).await?;
    let Exchange { input, kept_bytes } = exchange;
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let stderr_pipe =
        pipes.stderr.ok_or_else(|| Error::internal("capturing a program", "it has no pipe for errors"))?;
    let mut exit = None;
    {
        let reading = async {
            tokio::join!(
                feed(pipes.stdin, input),
                read_into(&pipes.stdout, &mut stdout, kept_bytes),
                read_into(&stderr_pipe, &mut stderr, kept_bytes),
            )
        };
        tokio::pin!(reading);
        let mut read_all = false;
        loop {
            tokio::select! {
                _ = &mut reading, if !read_all => read_all = true,
                report = process.report() => match report {
                    Report::Ended(Ended { exit: how, leftovers, .. }) => {
                        exit = Some(how);
                        if leftovers > 0 {
                            process.kill().await;
                        }
                    }
                    Report::Gone { .. } | Report::Lost => break,
                },
                () = &mut over => {
                    exit = None;
                    process.kill().await;
                    while !matches!(process.report().await, Report::Gone { .. } | Report::Lost) {}
                    break;
                }
            }
        }
        if !read_all {
            // Everybody who could write is gone, so what is left ends in an end of file.
            reading.await;
        }
    }
    Ok(Captured { exit, stdout, stderr })
}

/// Writes the input and closes the pipe. A program that reads no further has said so by its end.
async fn feed(pipe: Option<Sender>, input: &[u8]) {
    if let Some(mut pipe) = pipe {
        let _unread = pipe.write_all(input).await.is_err();
    }
}

async fn read_into(pipe: &Receiver, kept: &mut Vec<u8>, most: usize) {
    let mut buffer = [0; 16 << 10];
    while pipe.readable().await.is_ok() {
        match pipe.try_read(&mut buffer) {
            Ok(0) => return,
            Ok(read) => {
                let room = most - kept.len();
                kept.extend_from_slice(&buffer[..read.min(room)]);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}
