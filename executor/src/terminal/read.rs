//! Looking at a terminal: now, or once there is something to see. Any number may look, each from where it was.

use std::sync::Arc;
use std::time::Duration;

use regex::Regex;
use tokio::time::Instant;

use super::input::{Typed, type_in};
use super::ledger::Progress;
use super::registry::{Live, Terminals};
use super::screen::{Screen, Shown};
use super::{Terminal, ansi, picture};
use crate::error::{Error, Result};
use crate::output::until::{self, Found};
use crate::output::{self, Output, Until};

/// How long nothing must have been written for a screen to have settled.
const QUIET: Duration = Duration::from_millis(100);

/// How long the opening of a terminal waits for its first screen.
pub(super) const FIRST_SCREEN: Duration = Duration::from_secs(1);

/// Bytes of the log's end that the screen of a terminal that is gone is made of again.
const REPLAYED_BYTES: u64 = 4 << 20;

/// Bytes of a log read at a time.
const CHUNK_BYTES: usize = 256 << 10;

/// In which way to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// The screen as text.
    Screen,
    /// The screen as sequences that draw it.
    Drawn,
    /// The log, cleaned.
    Output,
    /// The log as it is.
    Raw,
    /// The lines that went off the top, and the screen.
    Scrollback,
    /// The screen as a picture.
    Image,
}

/// What to look at, and what to wait for.
#[derive(Debug, Clone)]
pub struct ReadTerminal {
    /// In which way.
    pub view: View,
    /// Where to read the log from; for a screen, the offset that was seen already. `None` for the end.
    pub cursor: Option<u64>,
    /// How long to wait for something new, or for `until`.
    pub wait: Duration,
    /// Regular expression to wait for; empty for none.
    pub until: String,
    /// Limit of the text of a log, in bytes.
    pub max_bytes: usize,
}

/// What is to be seen.
#[derive(Debug)]
pub enum Content {
    /// A screen; with the lines above it in the view of that name.
    Screen(Shown),
    /// A part of the log.
    Output(Output),
    /// A PNG.
    Image(Vec<u8>),
}

/// A look at a terminal.
#[derive(Debug)]
pub struct Reading {
    /// The terminal.
    pub terminal: Terminal,
    /// What is to be seen.
    pub content: Content,
    /// Whether `until` matched.
    pub matched: bool,
    /// Bytes of the input that the terminal took, and that there were.
    pub typed: (usize, usize),
}

/// What a wait is for.
enum Awaited {
    /// Something written after this offset.
    News(u64),
    /// The same, and then a while without anything.
    Settled(u64),
    /// A match on the screen, once something was written after this offset, if one is given.
    OnScreen(Regex, Option<u64>),
    /// A match in the log.
    InLog(Box<Until>),
}

/// A terminal that somebody looks at. One that lived then is held with its screen.
enum Looked {
    Live(Arc<Live>),
    Ended(Box<Terminal>),
}

impl Terminals {
    /// Looks at a terminal.
    pub async fn read(&self, id_or_name: &str, request: ReadTerminal) -> Result<Reading> {
        let looked = self.look(id_or_name).await?;
        let terminal = looked.terminal();
        let total = terminal.output_bytes;
        if request.cursor.is_some_and(|cursor| cursor > total) {
            let (id, cursor) = (terminal.id.to_string(), request.cursor.unwrap_or_default());
            return Err(Error::CursorOutOfRange { id, cursor, total_bytes: total });
        }
        let is_log = matches!(request.view, View::Output | View::Raw);
        let awaited = match (request.until.as_str(), request.cursor) {
            ("", Some(cursor)) => Awaited::News(cursor),
            ("", None) => Awaited::Settled(total),
            (pattern, cursor) if is_log => {
                Awaited::InLog(Box::new(Until::new(pattern, cursor.unwrap_or(total))?))
            }
            (pattern, _) => Awaited::OnScreen(until::compile(pattern)?, None),
        };
        let matched = self.wait(&looked, awaited, Instant::now() + request.wait).await?;
        self.show(looked, request, matched, (0, 0)).await
    }

    /// Types into a terminal, waits, and looks at it. `request.cursor` is not asked for: the log is read from where it was.
    pub async fn send(&self, id_or_name: &str, typed: Typed, mut request: ReadTerminal) -> Result<Reading> {
        let live = self.running(id_or_name).await?;
        let before = live.progress.borrow().output_bytes;
        let is_log = matches!(request.view, View::Output | View::Raw);
        let awaited = match request.until.as_str() {
            "" => Awaited::Settled(before),
            pattern if is_log => Awaited::InLog(Box::new(Until::new(pattern, before)?)),
            pattern => Awaited::OnScreen(until::compile(pattern)?, Some(before)),
        };
        let taken = type_in(&live, &typed).await?;
        let looked = Looked::Live(live);
        let matched = self.wait(&looked, awaited, Instant::now() + request.wait).await?;
        request.cursor = is_log.then_some(before);
        self.show(looked, request, matched, taken).await
    }

    /// The terminal as it is at its program's end, or after `wait`.
    pub async fn wait_for_end(&self, id_or_name: &str, wait: Duration) -> Result<Terminal> {
        let looked = self.look(id_or_name).await?;
        if let Looked::Live(live) = &looked {
            let mut progress = live.progress.clone();
            let ended = progress.wait_for(|progress| progress.end.is_some());
            let _elapsed = tokio::time::timeout(wait, ended).await;
        }
        Ok(looked.terminal())
    }

    /// The first look at a terminal that was just opened.
    pub async fn first_look(&self, terminal: Terminal) -> Result<Reading> {
        let looked = self.look(terminal.id.as_str()).await?;
        self.wait(&looked, Awaited::Settled(0), Instant::now() + FIRST_SCREEN).await?;
        let request = ReadTerminal {
            view: View::Screen,
            cursor: None,
            wait: Duration::ZERO,
            until: String::new(),
            max_bytes: 0,
        };
        self.show(looked, request, false, (0, 0)).await
    }

    async fn look(&self, id_or_name: &str) -> Result<Looked> {
        match self.live(id_or_name) {
            Some(live) => Ok(Looked::Live(live)),
            None => Ok(Looked::Ended(Box::new(self.get(id_or_name).await?))),
        }
    }

    /// Waits until there is what was awaited, the program has ended or the time is over; true when a pattern matched.
    async fn wait(&self, looked: &Looked, mut awaited: Awaited, deadline: Instant) -> Result<bool> {
        let Looked::Live(live) = looked else { return self.found_at_the_end(looked, awaited).await };
        let mut watch = live.progress.clone();
        loop {
            let now = watch.borrow_and_update().clone();
            let ended = now.end.is_some();
            let found = match &mut awaited {
                Awaited::News(after) => now.output_bytes > *after,
                Awaited::Settled(after) if now.output_bytes > *after && !ended => {
                    let quiet_until = deadline.min(Instant::now() + QUIET);
                    match tokio::time::timeout_at(quiet_until, watch.changed()).await {
                        Ok(Ok(())) if Instant::now() < deadline => continue,
                        _ => true,
                    }
                }
                Awaited::Settled(_) => false,
                Awaited::OnScreen(regex, after) => {
                    after.is_none_or(|after| now.output_bytes > after)
                        && regex.is_match(&live.screen().shown().text)
                }
                Awaited::InLog(until) => match self.poll(&live.fixed, until, &now)? {
                    Found::Yes => true,
                    Found::More => continue,
                    Found::NotYet => false,
                },
            };
            if found || ended {
                return Ok(found && matches!(awaited, Awaited::OnScreen(..) | Awaited::InLog(_)));
            }
            match tokio::time::timeout_at(deadline, watch.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return Ok(false),
            }
        }
    }

    fn poll(&self, terminal: &Terminal, until: &mut Until, now: &Progress) -> Result<Found> {
        let mut reader = self.log(&terminal.id).reader();
        tokio::task::block_in_place(|| until.poll(&mut reader, now.output_bytes, now.output_over))
    }

    async fn found_at_the_end(&self, looked: &Looked, awaited: Awaited) -> Result<bool> {
        let terminal = looked.terminal();
        match awaited {
            Awaited::News(_) | Awaited::Settled(_) => Ok(false),
            Awaited::OnScreen(regex, _) => {
                let screen = self.replay(&terminal).await?;
                Ok(regex.is_match(&screen.shown().text))
            }
            Awaited::InLog(mut until) => {
                let mut reader = self.log(&terminal.id).reader();
                tokio::task::block_in_place(|| {
                    loop {
                        match until.poll(&mut reader, terminal.output_bytes, true)? {
                            Found::More => {}
                            found => return Ok(found == Found::Yes),
                        }
                    }
                })
            }
        }
    }

    async fn show(
        &self,
        looked: Looked,
        request: ReadTerminal,
        matched: bool,
        typed: (usize, usize),
    ) -> Result<Reading> {
        let terminal = looked.terminal();
        let content = match (request.view, &looked) {
            (View::Output | View::Raw, _) => {
                let over = terminal.end.is_some() && terminal.leftovers == 0;
                Content::Output(self.read_log(&terminal, over, &request).await?)
            }
            (_, Looked::Live(live)) => content_of(&live.screen(), &request)?,
            (_, Looked::Ended(ended)) => content_of(&self.replay(ended).await?, &request)?,
        };
        Ok(Reading { terminal, content, matched, typed })
    }

    async fn read_log(&self, terminal: &Terminal, over: bool, request: &ReadTerminal) -> Result<Output> {
        let (log, total) = (self.log(&terminal.id), terminal.output_bytes);
        let (view, cursor, max) = (request.view, request.cursor, request.max_bytes);
        let read = move || {
            let mut reader = log.reader();
            let mut log = output::View::new(&mut reader, total, over);
            let most = u64::try_from(max).unwrap_or(u64::MAX);
            match (view, cursor) {
                (View::Raw, cursor) => log.raw(cursor.unwrap_or(total.saturating_sub(most)), max),
                (_, Some(cursor)) => log.page(cursor, max),
                (_, None) if total == 0 => Ok(Output { end: over, ..Output::default() }),
                (_, None) => log.tail(max),
            }
        };
        tokio::task::spawn_blocking(read)
            .await
            .map_err(|error| Error::internal("reading a terminal's log", error))?
    }

    /// Makes the screen of a terminal that is gone from its log again.
    async fn replay(&self, terminal: &Terminal) -> Result<Screen> {
        let (log, size, total) = (self.log(&terminal.id), terminal.size, terminal.output_bytes);
        let replayed = move || {
            let mut screen = Screen::new(size);
            let mut reader = log.reader();
            let mut at = total.saturating_sub(REPLAYED_BYTES);
            while at < total {
                let chunk = reader.read_at(at, CHUNK_BYTES)?;
                if chunk.bytes.is_empty() {
                    break;
                }
                screen.feed(&chunk.bytes);
                at = chunk.start + chunk.bytes.len() as u64;
            }
            screen.end_update();
            screen.skip_to(total);
            Ok(screen)
        };
        tokio::task::spawn_blocking(replayed)
            .await
            .map_err(|error| Error::internal("making a screen again", error))?
    }
}

impl Looked {
    fn terminal(&self) -> Terminal {
        match self {
            Self::Live(live) => live.terminal(),
            Self::Ended(terminal) => Terminal::clone(terminal),
        }
    }
}

fn content_of(screen: &Screen, request: &ReadTerminal) -> Result<Content> {
    Ok(match request.view {
        View::Image => Content::Image(picture::png(screen)?),
        View::Scrollback => Content::Screen(screen.scrollback(request.max_bytes)),
        View::Drawn => Content::Screen(Shown { text: ansi::drawn(screen), ..screen.shown() }),
        View::Screen | View::Output | View::Raw => Content::Screen(screen.shown()),
    })
}
