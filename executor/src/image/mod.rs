//! Previews of images: what a client can show of a picture that lies in a workspace. A picture is decoded, drawn and encoded
//! by a helper process, the executor's own program started anew as the jobs' user. So a file that is made to exhaust or to
//! crash a decoder ends that process and nothing else, and its memory is gone with it. It owns what is an image, how much
//! of it is sent and in what form; it refuses to know who asks.

mod decode;
mod fit;
mod frames;
mod helper;
mod jpeg;
mod preview;
mod sniff;
mod svg;
mod whole;

#[cfg(test)]
mod decode_tests;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod preview_tests;
#[cfg(test)]
mod svg_tests;

use std::{path::PathBuf, sync::Arc};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

pub use self::{
    fit::{MAX_EDGE, MAX_SENT_BYTES},
    helper::serve as serve_as_helper,
    sniff::Format,
};
use self::{helper::Helper, sniff::Kind};
use crate::{
    error::{Error, Result},
    file::{Files, LoadedFile, Root},
    process::spawn::Spawner,
};

/// Largest file that is looked at: photos and scans are smaller, and it passes through memory.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Previews made at a time: as many as a small machine has processors. The others wait, holding no memory.
const AT_A_TIME: usize = 2;

/// Makes previews.
#[derive(Debug)]
pub struct Images {
    files: Files,
    helper: Helper,
    turns: Semaphore,
}

/// What is known of an image and of what is sent of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Format of the file.
    pub format: Format,
    /// Width as stored, in pixels; of an SVG the one that it asks for.
    pub width: u32,
    /// Height, likewise.
    pub height: u32,
    /// Orientation by EXIF, 1 to 8; it was applied.
    pub orientation: u8,
    /// Frames of the animation, 1 for a still.
    pub frames: u32,
    /// What was done, and what is remarkable, a few words each.
    pub remarks: Vec<String>,
    /// Format of what is sent.
    pub sent: Format,
    /// Width of what is sent.
    pub sent_width: u32,
    /// Height of what is sent.
    pub sent_height: u32,
}

/// The preview of a file.
#[derive(Debug)]
pub struct PreviewedFile {
    /// Absolute path, links resolved.
    pub path: PathBuf,
    /// Lower-case hex SHA-256 of the file.
    pub sha256: String,
    /// Size of the file.
    pub size_bytes: u64,
    /// What is known of it.
    pub facts: Facts,
    /// Whether the file itself is sent.
    pub unchanged: bool,
    /// What is sent, at most [`MAX_SENT_BYTES`].
    pub content: Bytes,
}

/// Why there is no preview.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Refusal {
    /// It is no image; what it looks like.
    NotAnImage(String),
    /// It is an image of this other format.
    Unsupported(String),
    /// It takes more than a preview may; what and how much.
    TooLarge(String),
    /// It can't be decoded.
    Broken {
        /// What it claims to be.
        format: Format,
        /// What is wrong.
        problem: String,
    },
}

impl Refusal {
    fn broken(format: Format, problem: &dyn std::fmt::Display) -> Self {
        Self::Broken { format, problem: problem.to_string() }
    }

    /// The error of the file that is shown as `path`.
    fn into_error(self, path: String) -> Error {
        match self {
            Self::NotAnImage(looks) => Error::NotAnImage { path, looks },
            Self::Unsupported(format) => Error::ImageUnsupported { path, format },
            Self::TooLarge(problem) => Error::ImageTooLarge { path, problem },
            Self::Broken { format, problem } => Error::ImageBroken { path, format: format.name(), problem },
        }
    }
}

impl Images {
    /// Previews of what `files` reads, made by processes of `spawner`.
    pub fn new(files: Files, spawner: Arc<Spawner>) -> Result<Self> {
        Ok(Self { files, helper: Helper::new(spawner)?, turns: Semaphore::new(AT_A_TIME) })
    }

    /// Makes a preview of the image at `path`, its longest edge at most `max_edge` pixels.
    pub async fn preview(&self, root: Arc<Root>, path: Vec<u8>, max_edge: u32) -> Result<PreviewedFile> {
        if !(1..=MAX_EDGE).contains(&max_edge) {
            return Err(Error::invalid("max_edge", format!("is {max_edge}; expected 1 to {MAX_EDGE}")));
        }
        let _turn =
            self.turns.acquire().await.map_err(|e| Error::internal("waiting to make a preview", e))?;
        let LoadedFile { shown, path, sha256, content } = self.load(root, path).await?;
        match sniff::kind(&content) {
            Kind::Image(_) => {}
            Kind::Unsupported(format) => {
                return Err(Refusal::Unsupported(format.to_owned()).into_error(shown));
            }
            Kind::Other(looks) => return Err(Refusal::NotAnImage(looks.to_owned()).into_error(shown)),
        }
        let (facts, redrawn) =
            self.helper.draw(&content, max_edge).await?.map_err(|refusal| refusal.into_error(shown))?;
        Ok(PreviewedFile {
            path,
            sha256,
            size_bytes: u64::try_from(content.len()).unwrap_or(u64::MAX),
            facts,
            unchanged: redrawn.is_none(),
            content: redrawn.unwrap_or_else(|| content.into()),
        })
    }

    async fn load(&self, root: Arc<Root>, path: Vec<u8>) -> Result<LoadedFile> {
        self.files.load(root, path, MAX_FILE_BYTES).await.map_err(|error| match error {
            Error::FileTooLarge { path, bytes, limit } => {
                let problem = format!("the file has {bytes} bytes; an image has at most {limit}");
                Error::ImageTooLarge { path, problem }
            }
            other => other,
        })
    }
}
