//! `runlet attach`: a terminal of an agent, shown on the person's own and typed to from there. The executor's screen is the
//! truth: what is drawn here is that, so all who look see the same, and what programs ask of their terminal is answered
//! once, there.

mod draw;
mod keys;
mod session;
mod tty;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use self::keys::{DetachKey, detach_key};
use self::session::{Outcome, Session};
use self::tty::{Size, Tty};
use crate::gateway::{Connection, Failure, Gateway};
use crate::{ps, say, warn};

/// How long giving back the old size may take.
const FAREWELL: Duration = Duration::from_secs(3);

/// Bytes of input read at a time.
const INPUT_BYTES: usize = 16 << 10;

/// Pieces of input on their way to the sender, who takes them at once.
const INPUT_PIECES: usize = 16;

/// Take over a terminal: see what it shows and type into it, beside the agent that uses it.
#[derive(Debug, Args)]
#[command(
    after_help = "While attached, the terminal has the size of yours; it gets its old size back. Detaching leaves it \
                        running. The exit status is 0 after detaching and after the end of the terminal's program."
)]
pub(crate) struct Attach {
    #[command(flatten)]
    connection: Connection,
    /// Only look: nothing is typed, and the size stays
    #[arg(long)]
    read_only: bool,
    /// Key that detaches
    #[arg(long, value_name = "KEY", default_value = "C-]", value_parser = detach_key)]
    detach_key: DetachKey,
    /// Id or name of a terminal
    #[arg(value_name = "ID_OR_NAME")]
    id: String,
}

impl Attach {
    pub(crate) async fn run(self) -> Result<ExitCode, Failure> {
        self.check_tty()?;
        let gateway = self.connection.open()?;
        let arguments = json!({ "terminal_id": self.id, "view": "drawn" });
        let first = gateway.call("read_terminal", arguments).await?;
        let id = first["terminal_id"].as_str().unwrap_or(&self.id).to_owned();
        if first["status"] != "running" {
            let status = ps::status(&first);
            return Err(Failure::Unusable(format!(
                "{id} has ended ({status}); `runlet logs {id}` prints its output"
            )));
        }
        let goodbye = if self.read_only {
            format!("{} or Ctrl-C", self.detach_key)
        } else {
            self.detach_key.to_string()
        };
        let hello = format!("attached to {}: {goodbye} detaches", called(&first));
        say(&hello);
        let before = size_of(&first);
        let session = Session::new(gateway.clone(), id, self.detach_key, self.read_only);
        let failed = |error: io::Error| Failure::Unusable(format!("can't use this terminal: {error}"));
        let tty = Tty::enter(&format!("runlet {}", session.id())).map_err(failed)?;
        let outcome = session.run(&tty, first, &hello, input()).await;
        drop(tty);
        if let Some(given) = session.given() {
            let back = give_back(&gateway, session.id(), given, before);
            let _late = tokio::time::timeout(FAREWELL, back).await;
        }
        told(outcome?, session.id())
    }

    fn check_tty(&self) -> Result<(), Failure> {
        let logs = format!("`runlet logs -f {}` follows its output without one", self.id);
        if !Tty::is_seen() {
            return Err(Failure::Unusable(format!("standard output is no terminal to draw on; {logs}")));
        }
        if !Tty::is_typed_to() && !self.read_only {
            let problem =
                format!("standard input is no terminal to type on; --read-only looks without typing, {logs}");
            return Err(Failure::Unusable(problem));
        }
        Ok(())
    }
}

/// `term_7f3k2m9qd4ra (dev)`
fn called(terminal: &Value) -> String {
    let id = terminal["terminal_id"].as_str().unwrap_or_default();
    terminal["name"].as_str().map_or_else(|| id.to_owned(), |name| format!("{id} ({name})"))
}

fn size_of(terminal: &Value) -> Size {
    let number =
        |key: &str| terminal[key].as_u64().and_then(|number| u16::try_from(number).ok()).unwrap_or(1);
    Size { columns: number("cols"), rows: number("rows") }
}

/// What is typed, as it comes. A thread reads it, since only so the person's shell keeps its terminal as it was.
fn input() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(INPUT_PIECES);
    if !Tty::is_typed_to() {
        return receiver;
    }
    let read = move || {
        let mut buffer = vec![0; INPUT_BYTES];
        loop {
            match rustix::io::read(io::stdin(), &mut buffer) {
                Ok(0) | Err(rustix::io::Errno::IO | rustix::io::Errno::BADF) => return,
                Ok(length) if sender.blocking_send(buffer[..length].to_vec()).is_err() => return,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
        }
    };
    // Where no thread is to be had the channel closes, as at the end of the input.
    let _thread = std::thread::Builder::new().name("input".to_owned()).spawn(read);
    receiver
}

/// Gives a terminal the size that it had, unless somebody gave it another since.
async fn give_back(gateway: &Gateway, id: &str, given: Size, before: Size) -> Result<(), Failure> {
    let now = gateway.call("read_terminal", json!({ "terminal_id": id })).await?;
    if now["status"] == "running" && size_of(&now) == given && given != before {
        let size = json!({ "terminal_id": id, "cols": before.columns, "rows": before.rows });
        gateway.call("resize_terminal", size).await?;
    }
    Ok(())
}

/// Says how it ended, on the person's own screen.
fn told(outcome: Outcome, id: &str) -> Result<ExitCode, Failure> {
    match outcome {
        Outcome::Detached => {
            say(&format!("detached from {id}, which goes on; `runlet attach {id}` takes it over again"));
            Ok(ExitCode::SUCCESS)
        }
        Outcome::Ended(terminal) => {
            let seconds = terminal["duration_seconds"].as_f64().unwrap_or_default();
            let Size { columns, rows } = size_of(&terminal);
            let status = ps::status(&terminal);
            say(&format!("{}, {columns}×{rows}: {status} after {seconds:.1} s", called(&terminal)));
            Ok(ExitCode::SUCCESS)
        }
        Outcome::Signalled(signal) => {
            let code = u8::try_from(128 + signal.as_raw()).unwrap_or(1);
            if signal != Signal::HUP {
                warn(&format!("ended by a signal; {id} goes on"));
            }
            Ok(ExitCode::from(code))
        }
    }
}
