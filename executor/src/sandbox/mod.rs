//! Sandboxes: workspaces with a lifetime. It owns when one ends, by what its maker finds it, and which one the next code
//! runs in; what it is made of, and how it is ended with all that lives in it, is the workspace's and the machine's.

mod blueprint;
mod layers;
mod record;
mod registry;
mod snapshot;

use std::collections::BTreeMap;
use std::time::Duration;

use time::OffsetDateTime;

pub use blueprint::{Begun, Blueprint, BuildState, NewBlueprint};
pub use layers::Held;
pub use registry::{Claim, Sandboxes};
pub use snapshot::Snapshot;

use crate::error::{Error, Result};
use crate::id::WorkspaceId;

/// Shortest and longest life.
const LIFETIMES: std::ops::RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(3600);

/// What a sandbox of `run_code` is found by.
const PURPOSE: (&str, &str) = ("purpose", "code-testing");

/// What the purpose of a sandbox is in which a blueprint is built.
const BUILDING: &str = "blueprint";

/// What a sandbox's `isolation` is where it is a plain directory, and where it is none.
pub const NOT_ISOLATED: &str = "none";
const ISOLATED: &str = "namespaces";

/// Bytes that all metadata of a sandbox may have.
const METADATA_BYTES: usize = 16 << 10;

/// A sandbox as it is at one time.
#[derive(Debug, Clone)]
pub struct Sandbox {
    /// Id, that of its workspace.
    pub id: WorkspaceId,
    /// Order of creation.
    pub seq: i64,
    /// Name, if any.
    pub name: Option<String>,
    /// Who made it.
    pub principal: String,
    /// What its maker finds it by.
    pub metadata: BTreeMap<String, String>,
    /// When it was made.
    pub created: OffsetDateTime,
    /// When it is to end.
    pub expires: OffsetDateTime,
    /// What keeps it apart: `namespaces` or `none`.
    pub isolation: String,
    /// What its maker should know.
    pub notes: Vec<String>,
    /// Whether it reaches nothing but itself.
    pub loopback_only: bool,
    /// How long it has left, if it is suspended; it is not to end then.
    pub remaining: Option<Duration>,
    /// Ids of what it was started with, the last one uppermost.
    pub layers: Vec<String>,
    /// Name of the blueprint it was made from.
    pub blueprint: Option<String>,
    /// Id of the snapshot it was made from.
    pub snapshot_id: Option<String>,
    /// When and why it ended.
    pub end: Option<(OffsetDateTime, EndReason)>,
}

/// State of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It can be used.
    Running,
    /// It stands still.
    Suspended,
    /// It is gone, with its data.
    Shutdown,
}

impl Sandbox {
    /// Its state.
    pub const fn status(&self) -> Status {
        match (&self.end, &self.remaining) {
            (Some(_), _) => Status::Shutdown,
            (None, Some(_)) => Status::Suspended,
            (None, None) => Status::Running,
        }
    }
}

/// Why a sandbox ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// Somebody ended it.
    Shutdown,
    /// Its time was over.
    Expired,
    /// What it was made for could not be done.
    Failed,
    /// Its executor ended.
    Lost,
}

impl EndReason {
    /// Its name in records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shutdown => "shutdown",
            Self::Expired => "expired",
            Self::Failed => "failed",
            Self::Lost => "lost",
        }
    }
}

/// What to make.
#[derive(Debug, Clone, Default)]
pub struct NewSandbox {
    /// Who asks.
    pub principal: String,
    /// Name, if any.
    pub name: Option<String>,
    /// Variables for every command.
    pub env: BTreeMap<String, String>,
    /// How long it lives.
    pub lifetime: Duration,
    /// What its maker finds it by.
    pub metadata: BTreeMap<String, String>,
    /// Whether it reaches nothing but itself.
    pub loopback_only: bool,
    /// Id or name of the blueprint to begin with.
    pub blueprint: Option<String>,
    /// Id or name of the snapshot to begin with.
    pub snapshot_id: Option<String>,
}

impl NewSandbox {
    /// One for running code.
    pub fn for_code(principal: String, env: BTreeMap<String, String>, blueprint: Option<String>) -> Self {
        Self { env, blueprint, ..Self::for_purpose(principal, PURPOSE.1) }
    }

    /// One for building a blueprint on another.
    pub fn for_blueprint(principal: String, base: Option<String>) -> Self {
        Self { blueprint: base, ..Self::for_purpose(principal, BUILDING) }
    }

    fn for_purpose(principal: String, purpose: &str) -> Self {
        let metadata = BTreeMap::from([(PURPOSE.0.to_owned(), purpose.to_owned())]);
        Self { principal, lifetime: *LIFETIMES.end(), metadata, ..Self::default() }
    }

    fn check(&self) -> Result<()> {
        if !LIFETIMES.contains(&self.lifetime) {
            let (least, most) = (LIFETIMES.start().as_secs(), LIFETIMES.end().as_secs());
            let problem = format!("expected {least} to {most}, got {}", self.lifetime.as_secs());
            return Err(Error::invalid("lifetime_seconds", problem));
        }
        if self.blueprint.is_some() && self.snapshot_id.is_some() {
            let problem = "a blueprint was given too; a sandbox begins with one of the two";
            return Err(Error::invalid("snapshot_id", problem));
        }
        let bytes: usize = self.metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > METADATA_BYTES {
            let problem = format!("has {bytes} bytes; {METADATA_BYTES} are the most");
            return Err(Error::invalid("metadata", problem));
        }
        Ok(())
    }
}
