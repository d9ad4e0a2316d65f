//! The process that makes a preview: the executor's program, which finds the file on its standard input and writes what is
//! known of it as a line of JSON, then the encoded picture. Both sides of that are here.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{Read as _, Write as _},
    os::fd::OwnedFd,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{Facts, MAX_FILE_BYTES, MAX_SENT_BYTES, Refusal, preview, sniff};
use crate::{
    error::{Error, Result},
    process::{
        capture::{Captured, Exchange, converse},
        lifetime::limit_memory,
        spawn::{ATTACHMENT_PATH, Attachment, Command, Exit, Spawner},
    },
};

/// Address space of a helper. The largest image in the deepest colour takes two thirds of it.
const MEMORY_BYTES: u64 = 1 << 30;

/// Time of a helper. The largest images take a small part of it.
const TIME: Duration = Duration::from_secs(20);

/// Largest first line: names, numbers and a sentence of a decoder.
const LINE_BYTES: usize = 64 << 10;

/// Status of a program of ours that panicked.
const PANICKED: i32 = 101;

/// What the first line says.
#[derive(Debug, Serialize, Deserialize)]
enum Line {
    /// There is a preview: this many bytes follow, or the file itself is to be sent.
    Made { facts: Facts, redrawn_bytes: Option<usize> },
    /// There is none.
    Refused(Refusal),
}

/// What starts the helpers.
#[derive(Debug)]
pub(super) struct Helper {
    spawner: Arc<Spawner>,
    /// The program. By its descriptor it starts also where the jobs' user may not enter its directory, and after an update
    /// has replaced it.
    program: OwnedFd,
}

impl Helper {
    pub(super) fn new(spawner: Arc<Spawner>) -> Result<Self> {
        let program = File::open("/proc/self/exe")
            .map_err(|error| Error::internal("opening the executor's own program", error))?;
        Ok(Self { spawner, program: program.into() })
    }

    /// Has a helper make the preview of a file that consists of `content`. Without an encoded picture the file itself is to
    /// be sent.
    pub(super) async fn draw(
        &self,
        content: &[u8],
        max_edge: u32,
    ) -> Result<std::result::Result<(Facts, Option<Bytes>), Refusal>> {
        let program =
            self.program.try_clone().map_err(|error| Error::internal("starting a preview", error))?;
        let command = Command {
            argv: vec![ATTACHMENT_PATH.into(), b"--draw-preview".to_vec(), max_edge.to_string().into()],
            attachment: Some(Attachment::Descriptor(program)),
            env: BTreeMap::new(),
            cwd: "/".into(),
            stdin: true,
            separate_stderr: true,
        };
        let exchange = Exchange { input: content, kept_bytes: LINE_BYTES + MAX_SENT_BYTES };
        let ended = converse(&self.spawner, command, exchange, tokio::time::sleep(TIME)).await;
        answer(ended.map_err(not_startable)?, content)
    }
}

fn not_startable(error: Error) -> Error {
    match error {
        Error::Spawn { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            Error::ProgramMissing { program: "runlet-executor" }
        }
        other => other,
    }
}

fn answer(ended: Captured, content: &[u8]) -> Result<std::result::Result<(Facts, Option<Bytes>), Refusal>> {
    let stderr = || String::from_utf8_lossy(&ended.stderr).into_owned();
    match ended.exit {
        Some(Exit::Code(0)) => {}
        // What allocates past the limit, and what runs out of stack, aborts; the kernel kills when the machine is full.
        None | Some(Exit::Signal(_)) => {
            tracing::debug!(exit = ?ended.exit, stderr = stderr(), "a preview was given up");
            return Ok(Err(Refusal::TooLarge(format!(
                "drawing it takes more than a preview may: {} s and {} MiB of memory",
                TIME.as_secs(),
                MEMORY_BYTES >> 20
            ))));
        }
        Some(Exit::Code(PANICKED)) => {
            tracing::warn!(stderr = stderr(), "a decoder of images panicked");
            return Ok(Err(match sniff::kind(content) {
                sniff::Kind::Image(format) => Refusal::broken(format, &"its decoder gave up"),
                _ => Refusal::NotAnImage("something else now".to_owned()),
            }));
        }
        Some(Exit::Code(code)) => {
            let said = format!("it exited {code}: {}", stderr());
            return Err(Error::internal("making a preview", said));
        }
    }
    let mut bytes = Bytes::from(ended.stdout);
    let end = memchr::memchr(b'\n', &bytes).unwrap_or(bytes.len());
    let line = bytes.split_to(end);
    let line = serde_json::from_slice(&line).map_err(|e| Error::internal("reading a preview", e))?;
    match line {
        Line::Refused(refusal) => Ok(Err(refusal)),
        Line::Made { facts, redrawn_bytes: None } => Ok(Ok((facts, None))),
        Line::Made { facts, redrawn_bytes: Some(length) } => {
            let picture = bytes.slice(bytes.len().min(1)..);
            if picture.len() != length {
                return Err(Error::internal("reading a preview", "its picture is incomplete"));
            }
            Ok(Ok((facts, Some(picture))))
        }
    }
}

/// The helper's side: reads a file, writes its preview with the longest edge at most `max_edge`, and is done.
pub fn serve(max_edge: u32) -> Result<()> {
    limit_memory(MEMORY_BYTES)?;
    let _unnamed = rustix::thread::set_name(c"runlet-preview").is_err();
    let mut content = Vec::new();
    std::io::stdin()
        .take(MAX_FILE_BYTES)
        .read_to_end(&mut content)
        .map_err(|error| Error::internal("reading an image", error))?;
    let (line, picture) = match preview::preview(&content, max_edge) {
        Ok(preview::Preview { facts, redrawn }) => {
            let redrawn_bytes = redrawn.as_ref().map(Vec::len);
            (Line::Made { facts, redrawn_bytes }, redrawn.unwrap_or_default())
        }
        Err(refusal) => (Line::Refused(refusal), Vec::new()),
    };
    let mut line = serde_json::to_vec(&line).map_err(|error| Error::internal("writing a preview", error))?;
    line.push(b'\n');
    let mut output = std::io::stdout().lock();
    output
        .write_all(&line)
        .and_then(|()| output.write_all(&picture))
        .and_then(|()| output.flush())
        .map_err(|error| Error::internal("writing a preview", error))
}
