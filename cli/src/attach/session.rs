//! An attached terminal: one task looks, one types and one passes on the size, each with calls of its own, so that no look
//! delays a key. The first of them to end ends all.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::draw::Painter;
use super::keys::{DetachKey, Meant, Typed};
use super::size_of;
use super::tty::{Size, Tty};
use crate::gateway::{Failure, Gateway, LONGEST_WAIT};
use crate::patience::{self, Answer, PERIOD, Patient};

/// Least time between two frames.
const FRAME: Duration = Duration::from_millis(16);

/// Wait after news, in seconds: a program may have been in the midst of an update that is then shown without its end, and
/// that is no news.
const SHORT_WAIT: u64 = 1;

/// How long a line for the person stays.
const NOTICE: Duration = Duration::from_secs(3);

/// How long the line about an absence stays after the last call in vain.
const AWAY: Duration = Duration::from_secs(1);

/// How long what was typed before detaching may take to be sent.
const LAST_INPUT: Duration = Duration::from_secs(1);

/// Ctrl-C, which detaches where nothing is typed.
const INTERRUPT: u8 = 3;

/// How it ended.
#[derive(Debug)]
pub(super) enum Outcome {
    Detached,
    Ended(Value),
    Signalled(Signal),
}

/// What the tasks share.
#[derive(Debug, Clone)]
pub(super) struct Session(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    gateway: Gateway,
    id: String,
    detach: DetachKey,
    read_only: bool,
    painter: Mutex<Painter>,
    /// Look at once, and draw anew.
    again: Notify,
    /// The size that the terminal was given last.
    given: Mutex<Option<Size>>,
}

impl Session {
    pub(super) fn new(gateway: Gateway, id: String, detach: DetachKey, read_only: bool) -> Self {
        let (painter, given) = (Mutex::default(), Mutex::default());
        Self(Arc::new(Shared { gateway, id, detach, read_only, painter, again: Notify::new(), given }))
    }

    pub(super) fn id(&self) -> &str {
        &self.0.id
    }

    /// The size that the terminal was given last, if it was given one.
    pub(super) fn given(&self) -> Option<Size> {
        *self.0.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows the terminal until there is an outcome. Nothing is drawn after that.
    pub(super) async fn run(
        &self,
        tty: &Tty,
        first: Value,
        hello: &str,
        input: mpsc::Receiver<Vec<u8>>,
    ) -> Result<Outcome, Failure> {
        let waiting = |error| Failure::Unusable(format!("waiting for signals: {error}"));
        let mut signals = Signals::new().map_err(waiting)?;
        let resized = signal(SignalKind::window_change()).map_err(waiting)?;
        self.paint(|painter| painter.say(hello, Instant::now() + NOTICE))?;
        let mut tasks = JoinSet::new();
        let looker = self.clone();
        tasks.spawn(async move { looker.look(first).await });
        let typist = self.clone();
        if typist.0.read_only {
            tasks.spawn(async move { typist.listen(input).await });
        } else {
            tasks.spawn(async move { typist.send(input).await });
        }
        let sizer = self.clone();
        tasks.spawn(async move { sizer.resize(resized).await });
        let outcome = loop {
            tokio::select! {
                Some(ended) = tasks.join_next() => match ended {
                    Ok(outcome) => break outcome,
                    Err(error) => break Err(Failure::Unusable(format!("a fault of this program: {error}"))),
                },
                signal = signals.next() => match signal {
                    Signal::CONT => {
                        let _gone = tty.raw().is_err();
                        self.painter().forget();
                        self.0.again.notify_one();
                    }
                    signal => break Ok(Outcome::Signalled(signal)),
                },
            }
        };
        self.painter().close();
        tasks.abort_all();
        outcome
    }

    fn painter(&self) -> MutexGuard<'_, Painter> {
        self.0.painter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn paint(&self, work: impl FnOnce(&mut Painter) -> std::io::Result<()>) -> Result<(), Failure> {
        work(&mut self.painter()).map_err(|error| Failure::Unusable(format!("can't draw: {error}")))
    }

    /// Tells the person something in the last line, for a while.
    fn notify(&self, notice: &str) {
        // What can't be drawn ends the task that looks.
        let _gone = self.painter().say(notice, Instant::now() + NOTICE).is_err();
        self.0.again.notify_one();
    }

    /// Draws what there is to see, again and again, until the program has ended.
    async fn look(&self, first: Value) -> Result<Outcome, Failure> {
        let mut patient = Patient::new(self.0.gateway.clone());
        let mut seen = first;
        loop {
            let drawn = seen["screen"].as_str().unwrap_or_default();
            self.paint(|painter| painter.show(drawn, size_of(&seen)))?;
            if seen["status"] != "running" {
                return Ok(Outcome::Ended(seen));
            }
            tokio::time::sleep(FRAME).await;
            seen = self.news(&mut patient, &seen["next_cursor"]).await?;
        }
    }

    /// What there is to see once it is not what was seen at `cursor`, or is to be drawn anew.
    async fn news(&self, patient: &mut Patient, cursor: &Value) -> Result<Value, Failure> {
        let mut wait = SHORT_WAIT;
        loop {
            let arguments =
                json!({ "terminal_id": self.0.id, "view": "drawn", "cursor": cursor, "wait_seconds": wait });
            let notice_ends = self.painter().notice_ends();
            tokio::select! {
                answer = patient.call("read_terminal", arguments) => match answer? {
                    Answer::Object(seen) if seen["next_cursor"] == *cursor && seen["status"] == "running" => {
                        self.paint(|painter| {
                            painter.show(seen["screen"].as_str().unwrap_or_default(), size_of(&seen))
                        })?;
                        wait = LONGEST_WAIT;
                    }
                    Answer::Object(seen) => return Ok(seen),
                    Answer::Away(_) => self.away()?,
                },
                () = self.0.again.notified() => wait = 0,
                () = until(notice_ends) => self.paint(Painter::end_notice)?,
            }
        }
    }

    /// Tells the person that nobody answers, as long as that is so.
    fn away(&self) -> Result<(), Failure> {
        let (limit, key) = (patience::LIMIT.as_secs(), self.0.detach);
        let notice =
            format!("no answer: waiting for the gateway and its executor up to {limit} s; {key} detaches");
        self.paint(|painter| painter.say(&notice, Instant::now() + AWAY))
    }

    /// Sends what is typed, in order; what is typed while a call is on its way goes with the next.
    async fn send(&self, mut input: mpsc::Receiver<Vec<u8>>) -> Result<Outcome, Failure> {
        let mut typed = Typed::new(self.0.detach);
        loop {
            let text = typed.take();
            if text.is_empty() {
                match input.recv().await {
                    Some(bytes) if self.took(&mut typed, &bytes) => {}
                    Some(_) => return Ok(self.send_last(typed).await),
                    // The person's terminal is gone.
                    None => return Ok(Outcome::Signalled(Signal::HUP)),
                }
                continue;
            }
            let mut sending = std::pin::pin!(self.type_in(&text));
            let (rest, detached) = loop {
                tokio::select! {
                    rest = &mut sending => break (rest?, false),
                    bytes = input.recv() => match bytes {
                        Some(bytes) if self.took(&mut typed, &bytes) => {}
                        Some(_) => {
                            let rest = tokio::time::timeout(LAST_INPUT, &mut sending).await;
                            break (rest.unwrap_or(Ok(0))?, true);
                        }
                        None => return Ok(Outcome::Signalled(Signal::HUP)),
                    },
                }
            };
            typed.put_back(&text.as_bytes()[text.len() - rest..]);
            if detached {
                return Ok(self.send_last(typed).await);
            }
        }
    }

    /// Takes input; false after the key that detaches.
    fn took(&self, typed: &mut Typed, bytes: &[u8]) -> bool {
        match typed.add(bytes) {
            Meant::Input => true,
            Meant::Dropped(count) => {
                self.notify(&format!("too much was typed at once: {count} bytes were dropped"));
                true
            }
            Meant::Detach => false,
        }
    }

    async fn send_last(&self, mut typed: Typed) -> Outcome {
        let all = async {
            loop {
                let text = typed.take();
                if text.is_empty() || self.type_in(&text).await.is_err() {
                    return;
                }
            }
        };
        let _late = tokio::time::timeout(LAST_INPUT, all).await;
        Outcome::Detached
    }

    /// Types a text; returns how many bytes at its end are still to be typed.
    async fn type_in(&self, text: &str) -> Result<usize, Failure> {
        let arguments = json!({ "terminal_id": self.0.id, "text": text, "wait_seconds": 0 });
        loop {
            match self.0.gateway.call("send_input", arguments.clone()).await {
                Ok(answer) => return Ok(self.untyped(text, &answer)),
                Err(Failure::Away { arrived: false, .. }) => tokio::time::sleep(PERIOD).await,
                // Typed a second time it could do harm.
                Err(Failure::Away { arrived: true, .. }) => {
                    self.notify("what you typed just now may not have arrived: the connection broke off");
                    return Ok(0);
                }
                Err(Failure::Refused { code, .. }) if code.starts_with("TERMINAL_") => {
                    // The task that looks tells the end.
                    return std::future::pending().await;
                }
                Err(Failure::Refused { message, .. }) => {
                    self.notify(&format!("not typed: {message}"));
                    return Ok(0);
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    fn untyped(&self, text: &str, answer: &Value) -> usize {
        if answer["truncated_input"] != true {
            return 0;
        }
        self.notify("the program does not read what you type; it is sent when it does");
        let taken = answer["accepted_bytes"].as_u64().and_then(|taken| usize::try_from(taken).ok());
        // A character goes as a whole.
        text.len() - text.ceil_char_boundary(taken.unwrap_or_default().min(text.len()))
    }

    /// Waits for the key that detaches, and drops all others.
    async fn listen(&self, mut input: mpsc::Receiver<Vec<u8>>) -> Result<Outcome, Failure> {
        let mut typed = Typed::new(self.0.detach);
        while let Some(bytes) = input.recv().await {
            if typed.add(&bytes) == Meant::Detach || bytes.contains(&INTERRUPT) {
                return Ok(Outcome::Detached);
            }
            while !typed.take().is_empty() {}
        }
        if Tty::is_typed_to() { Ok(Outcome::Signalled(Signal::HUP)) } else { std::future::pending().await }
    }

    /// Gives the terminal the size of the person's, now and when that changes.
    async fn resize(&self, mut changed: tokio::signal::unix::Signal) -> Result<Outcome, Failure> {
        loop {
            if !self.0.read_only {
                self.give(Size::own().possible()).await?;
            }
            self.0.again.notify_one();
            if changed.recv().await.is_none() {
                std::future::pending::<()>().await;
            }
        }
    }

    async fn give(&self, size: Size) -> Result<(), Failure> {
        let arguments = json!({ "terminal_id": self.0.id, "cols": size.columns, "rows": size.rows });
        *self.0.given.lock().unwrap_or_else(PoisonError::into_inner) = Some(size);
        loop {
            match self.0.gateway.call("resize_terminal", arguments.clone()).await {
                Err(Failure::Away { .. }) => tokio::time::sleep(PERIOD).await,
                Err(Failure::Refused { code, .. }) if code.starts_with("TERMINAL_") => return Ok(()),
                outcome => return outcome.map(drop),
            }
        }
    }
}

/// Resolves at a time, if there is one.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Signals that end this program, and the one after it was stopped.
struct Signals([(Signal, tokio::signal::unix::Signal); 5]);

impl Signals {
    fn new() -> std::io::Result<Self> {
        let heard = |number: Signal| Ok((number, signal(SignalKind::from_raw(number.as_raw()))?));
        let heard: [std::io::Result<_>; 5] =
            [Signal::TERM, Signal::HUP, Signal::INT, Signal::QUIT, Signal::CONT].map(heard);
        let [one, two, three, four, five] = heard;
        Ok(Self([one?, two?, three?, four?, five?]))
    }

    async fn next(&mut self) -> Signal {
        std::future::poll_fn(|context| {
            for (number, signal) in &mut self.0 {
                if signal.poll_recv(context).is_ready() {
                    return std::task::Poll::Ready(*number);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }
}
