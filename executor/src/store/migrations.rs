//! The schema, step by step. A step that was released is never changed; the file's `user_version` counts the steps taken.

use std::path::Path;

use rusqlite::Connection;

use crate::error::{Error, Result};

const STEPS: &[&str] = &[
    "
CREATE TABLE workspaces (
    seq            INTEGER PRIMARY KEY AUTOINCREMENT,
    workspace_id   TEXT NOT NULL UNIQUE,
    name           TEXT UNIQUE,
    state          TEXT NOT NULL,
    principal      TEXT NOT NULL,
    request_id     TEXT,
    created_ms     INTEGER NOT NULL,
    git_url        TEXT,
    git_ref        TEXT,
    git_commit     TEXT,
    python_version TEXT,
    env            TEXT NOT NULL,
    notes          TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX workspaces_request ON workspaces (principal, request_id) WHERE request_id IS NOT NULL;

CREATE TABLE jobs (
    seq             INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id          TEXT NOT NULL UNIQUE,
    workspace_id    TEXT NOT NULL,
    command         TEXT NOT NULL,
    state           TEXT NOT NULL,
    principal       TEXT NOT NULL,
    request_id      TEXT,
    shell           TEXT NOT NULL,
    separate_stderr INTEGER NOT NULL,
    timeout_ms      INTEGER NOT NULL,
    started_ms      INTEGER NOT NULL,
    ended_ms        INTEGER,
    duration_us     INTEGER,
    exit_code       INTEGER,
    signal          TEXT,
    cpu_us          INTEGER,
    max_rss_bytes   INTEGER,
    oom_killed      INTEGER NOT NULL DEFAULT 0,
    leftovers       INTEGER NOT NULL DEFAULT 0,
    output_bytes    INTEGER NOT NULL DEFAULT 0,
    stderr_bytes    INTEGER NOT NULL DEFAULT 0,
    notes           TEXT NOT NULL DEFAULT '[]'
) STRICT;
CREATE UNIQUE INDEX jobs_request ON jobs (principal, request_id) WHERE request_id IS NOT NULL;
CREATE INDEX jobs_workspace ON jobs (workspace_id, seq);
CREATE INDEX jobs_running ON jobs (seq) WHERE state = 'running';
CREATE INDEX jobs_ended ON jobs (ended_ms) WHERE ended_ms IS NOT NULL;
",
    "
CREATE TABLE terminals (
    seq           INTEGER PRIMARY KEY AUTOINCREMENT,
    terminal_id   TEXT NOT NULL UNIQUE,
    workspace_id  TEXT NOT NULL,
    name          TEXT,
    command       TEXT NOT NULL,
    state         TEXT NOT NULL,
    principal     TEXT NOT NULL,
    columns       INTEGER NOT NULL,
    rows          INTEGER NOT NULL,
    started_ms    INTEGER NOT NULL,
    ended_ms      INTEGER,
    duration_us   INTEGER,
    exit_code     INTEGER,
    signal        TEXT,
    cpu_us        INTEGER,
    max_rss_bytes INTEGER,
    leftovers     INTEGER NOT NULL DEFAULT 0,
    output_bytes  INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX terminals_running ON terminals (seq) WHERE state = 'running';
CREATE INDEX terminals_ended ON terminals (ended_ms) WHERE ended_ms IS NOT NULL;
",
    "
CREATE TABLE links (
    seq            INTEGER PRIMARY KEY AUTOINCREMENT,
    link_id        TEXT NOT NULL UNIQUE,
    secret_sha256  BLOB NOT NULL,
    workspace_id   TEXT NOT NULL,
    principal      TEXT NOT NULL,
    path           BLOB NOT NULL,
    name           TEXT NOT NULL,
    size_bytes     INTEGER NOT NULL,
    sha256         TEXT NOT NULL,
    replaces       INTEGER NOT NULL,
    created_ms     INTEGER NOT NULL,
    expires_ms     INTEGER NOT NULL,
    ended          INTEGER NOT NULL DEFAULT 0
) STRICT;
",
    "
ALTER TABLE jobs ADD COLUMN limit_name TEXT;
ALTER TABLE jobs ADD COLUMN limit_value INTEGER;
ALTER TABLE jobs ADD COLUMN left_behind TEXT NOT NULL DEFAULT '[]';
ALTER TABLE jobs ADD COLUMN files_created INTEGER;
ALTER TABLE jobs ADD COLUMN files_changed INTEGER;
ALTER TABLE jobs ADD COLUMN files_deleted INTEGER;
ALTER TABLE jobs ADD COLUMN files_note TEXT;

CREATE TABLE job_files (
    job_id  TEXT PRIMARY KEY,
    created BLOB NOT NULL,
    changed BLOB NOT NULL,
    deleted BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TRIGGER job_files_removed AFTER DELETE ON jobs BEGIN
    DELETE FROM job_files WHERE job_id = OLD.job_id;
END;
",
    "
ALTER TABLE workspaces ADD COLUMN sandbox INTEGER NOT NULL DEFAULT 0;

CREATE TABLE sandboxes (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    sandbox_id   TEXT NOT NULL UNIQUE,
    name         TEXT,
    principal    TEXT NOT NULL,
    metadata     TEXT NOT NULL,
    created_ms   INTEGER NOT NULL,
    expires_ms   INTEGER NOT NULL,
    isolation    TEXT NOT NULL,
    notes        TEXT NOT NULL,
    ended_ms     INTEGER,
    end_reason   TEXT
) STRICT;
CREATE INDEX sandboxes_running ON sandboxes (seq) WHERE ended_ms IS NULL;
CREATE INDEX sandboxes_ended ON sandboxes (ended_ms) WHERE ended_ms IS NOT NULL;
",
    "
ALTER TABLE sandboxes ADD COLUMN loopback_only INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN remaining_ms INTEGER;
ALTER TABLE sandboxes ADD COLUMN layers TEXT NOT NULL DEFAULT '[]';
ALTER TABLE sandboxes ADD COLUMN blueprint TEXT;
ALTER TABLE sandboxes ADD COLUMN snapshot_id TEXT;

CREATE TABLE snapshots (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    snapshot_id  TEXT NOT NULL UNIQUE,
    name         TEXT UNIQUE,
    principal    TEXT NOT NULL,
    sandbox_id   TEXT NOT NULL,
    blueprint    TEXT,
    layers       TEXT NOT NULL,
    form         TEXT NOT NULL,
    size_bytes   INTEGER NOT NULL,
    created_ms   INTEGER NOT NULL
) STRICT;

CREATE TABLE blueprints (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    blueprint_id TEXT NOT NULL UNIQUE,
    name         TEXT NOT NULL UNIQUE,
    principal    TEXT NOT NULL,
    definition   TEXT NOT NULL,
    commands     TEXT NOT NULL,
    files        TEXT NOT NULL,
    base         TEXT,
    layers       TEXT NOT NULL,
    form         TEXT NOT NULL,
    state        TEXT NOT NULL,
    log          TEXT NOT NULL,
    size_bytes   INTEGER NOT NULL,
    created_ms   INTEGER NOT NULL,
    ended_ms     INTEGER
) STRICT;
CREATE INDEX blueprints_definition ON blueprints (definition);
CREATE INDEX sandboxes_suspended ON sandboxes (seq) WHERE remaining_ms IS NOT NULL AND ended_ms IS NULL;
",
];

/// Takes the steps that the file lacks, after a copy of it was made beside it.
pub(super) fn run(connection: &mut Connection, path: &Path) -> Result<()> {
    let failed =
        |error: rusqlite::Error| Error::internal(format!("updating the records {}", path.display()), error);
    let version: i64 =
        connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(failed)?;
    let taken = usize::try_from(version).unwrap_or(usize::MAX);
    if taken > STEPS.len() {
        return Err(Error::internal(
            format!("opening the records {}", path.display()),
            format!(
                "they were written by a newer runlet-executor (version {taken}, this one knows {}); install that one \
                 again, or start on another SANDBOX_ROOT",
                STEPS.len()
            ),
        ));
    }
    if taken == STEPS.len() {
        return Ok(());
    }
    if taken > 0 {
        let copy = path.with_extension(format!("db.version-{taken}"));
        if !copy.exists() {
            connection.execute("VACUUM INTO ?1", [copy.to_string_lossy()]).map_err(failed)?;
        }
    }
    for (number, step) in (1_i64..).zip(STEPS).skip(taken) {
        let transaction = connection.transaction().map_err(failed)?;
        transaction.execute_batch(step).map_err(failed)?;
        transaction.pragma_update(None, "user_version", number).map_err(failed)?;
        transaction.commit().map_err(failed)?;
    }
    Ok(())
}
