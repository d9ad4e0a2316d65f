//! A workspace as a row, both directions.

use std::path::Path;

use time::OffsetDateTime;

use super::{Git, Paths, State, Workspace};
use crate::id::WorkspaceId;
use crate::store::WorkspaceRow;
use crate::timestamp;

pub(super) fn to_row(workspace: &Workspace) -> WorkspaceRow {
    let Workspace {
        id,
        seq,
        name,
        state,
        principal,
        request_id,
        created,
        git,
        python_version,
        env,
        notes,
        sandbox,
        paths: _, // follow from the id
        seen: _,
        enclosed: _,
    } = workspace;
    WorkspaceRow {
        seq: *seq,
        workspace_id: id.as_str().to_owned(),
        name: name.clone(),
        state: state.name().to_owned(),
        principal: principal.clone(),
        request_id: request_id.clone(),
        created_ms: timestamp::to_millis(*created),
        git_url: git.as_ref().map(|git| git.url.clone()),
        git_ref: git.as_ref().map(|git| git.reference.clone()),
        git_commit: git.as_ref().map(|git| git.commit.clone()),
        python_version: python_version.clone(),
        env: serde_json::to_string(env).unwrap_or_default(),
        notes: serde_json::to_string(notes).unwrap_or_default(),
        sandbox: *sandbox,
    }
}

/// `None` for a row that no version of this program wrote.
pub(super) fn from_row(row: WorkspaceRow, workspaces: &Path) -> Option<Workspace> {
    let id = WorkspaceId::parse(&row.workspace_id)?;
    let paths = Paths::new(workspaces, &id);
    Some(Workspace {
        sandbox: row.sandbox,
        seen: paths.clone(),
        enclosed: false,
        paths,
        id,
        seq: row.seq,
        name: row.name,
        state: State::from_name(&row.state)?,
        principal: row.principal,
        request_id: row.request_id,
        created: timestamp::from_millis(row.created_ms).unwrap_or(OffsetDateTime::UNIX_EPOCH),
        git: row.git_url.map(|url| Git {
            url,
            reference: row.git_ref.unwrap_or_default(),
            commit: row.git_commit.unwrap_or_default(),
        }),
        python_version: row.python_version,
        env: serde_json::from_str(&row.env).ok()?,
        notes: serde_json::from_str(&row.notes).ok()?,
    })
}

impl State {
    /// The state's name in records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            // What it is beyond that is on the sandbox's record.
            Self::Ready | Self::Suspended => "ready",
            Self::Deleting => "deleting",
            Self::Failed => "failed",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Creating, Self::Ready, Self::Deleting, Self::Failed]
            .into_iter()
            .find(|state| state.name() == name)
    }
}
