//! Rows of jobs.

use rusqlite::{OptionalExtension, Row, named_params};

use super::{Durability, Store};
use crate::error::Result;

/// A row of the table `jobs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRow {
    /// Order of start; 0 before the insert.
    pub seq: i64,
    /// Id.
    pub job_id: String,
    /// Workspace it ran in.
    pub workspace_id: String,
    /// The command.
    pub command: String,
    /// `running`, `exited`, `killed`, `timed_out` or `lost`.
    pub state: String,
    /// Who started it.
    pub principal: String,
    /// Id of the request that started it, if any.
    pub request_id: Option<String>,
    /// Named shell; empty for none.
    pub shell: String,
    /// Whether standard error has a log of its own.
    pub separate_stderr: bool,
    /// Time limit.
    pub timeout_ms: i64,
    /// Milliseconds since 1970.
    pub started_ms: i64,
    /// What is known since its end.
    pub end: JobEndRow,
}

/// The columns that are written when a job ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobEndRow {
    /// Milliseconds since 1970.
    pub ended_ms: Option<i64>,
    /// Microseconds on the monotonic clock.
    pub duration_us: Option<i64>,
    /// Status as a shell shows it.
    pub exit_code: Option<i32>,
    /// Name of the signal that ended it.
    pub signal: Option<String>,
    /// Processor time.
    pub cpu_us: Option<i64>,
    /// Largest resident set.
    pub max_rss_bytes: Option<i64>,
    /// Whether the kernel ended it for want of memory.
    pub oom_killed: bool,
    /// Name of the limit that it ran into.
    pub limit_name: Option<String>,
    /// That limit.
    pub limit_value: Option<i64>,
    /// Processes left behind that live.
    pub leftovers: u32,
    /// Processes left behind at its end, as a JSON array of arrays of id and command.
    pub left: String,
    /// Files created while it ran.
    pub files_created: Option<i64>,
    /// Files changed.
    pub files_changed: Option<i64>,
    /// Files deleted.
    pub files_deleted: Option<i64>,
    /// Why they were not counted.
    pub files_note: Option<String>,
    /// Bytes of output.
    pub output_bytes: i64,
    /// Bytes of separate errors.
    pub stderr_bytes: i64,
    /// Notes as a JSON array.
    pub notes: String,
}

/// A row of the table `job_files`: the first names of the files that a job changed, each ended by a NUL.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobFilesRow {
    /// Those that were created.
    pub created: Vec<u8>,
    /// Those that were changed.
    pub changed: Vec<u8>,
    /// Those that were deleted.
    pub deleted: Vec<u8>,
}

impl JobRow {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            seq: row.get("seq")?,
            job_id: row.get("job_id")?,
            workspace_id: row.get("workspace_id")?,
            command: row.get("command")?,
            state: row.get("state")?,
            principal: row.get("principal")?,
            request_id: row.get("request_id")?,
            shell: row.get("shell")?,
            separate_stderr: row.get("separate_stderr")?,
            timeout_ms: row.get("timeout_ms")?,
            started_ms: row.get("started_ms")?,
            end: JobEndRow {
                ended_ms: row.get("ended_ms")?,
                duration_us: row.get("duration_us")?,
                exit_code: row.get("exit_code")?,
                signal: row.get("signal")?,
                cpu_us: row.get("cpu_us")?,
                max_rss_bytes: row.get("max_rss_bytes")?,
                oom_killed: row.get("oom_killed")?,
                limit_name: row.get("limit_name")?,
                limit_value: row.get("limit_value")?,
                leftovers: row.get("leftovers")?,
                left: row.get("left_behind")?,
                files_created: row.get("files_created")?,
                files_changed: row.get("files_changed")?,
                files_deleted: row.get("files_deleted")?,
                files_note: row.get("files_note")?,
                output_bytes: row.get("output_bytes")?,
                stderr_bytes: row.get("stderr_bytes")?,
                notes: row.get("notes")?,
            },
        })
    }
}

/// Which jobs to list, newest first.
#[derive(Debug, Clone, Default)]
pub struct JobFilter {
    /// Only those of this workspace.
    pub workspace_id: Option<String>,
    /// Only those in this state.
    pub state: Option<String>,
    /// Only those started before the one with this `seq`.
    pub before_seq: Option<i64>,
    /// Only those that ended at or after this time.
    pub ended_since_ms: Option<i64>,
    /// At most this many.
    pub limit: u32,
}

impl Store {
    /// Adds a job that is about to run. A request that exists is a conflict.
    pub async fn insert_job(&self, row: JobRow) -> Result<()> {
        self.write("recording a job", Durability::Process, move |transaction| {
            transaction
                .prepare_cached(
                    "INSERT INTO jobs (job_id, workspace_id, command, state, principal, request_id, shell,
                                       separate_stderr, timeout_ms, started_ms)
                     VALUES (:job_id, :workspace_id, :command, :state, :principal, :request_id, :shell,
                             :separate_stderr, :timeout_ms, :started_ms)",
                )?
                .execute(named_params! {
                    ":job_id": row.job_id, ":workspace_id": row.workspace_id, ":command": row.command,
                    ":state": row.state, ":principal": row.principal, ":request_id": row.request_id,
                    ":shell": row.shell, ":separate_stderr": row.separate_stderr, ":timeout_ms": row.timeout_ms,
                    ":started_ms": row.started_ms,
                })?;
            Ok(())
        })
        .await
    }

    /// Writes a job's state and what goes with it; also the names of changed files, if there are any.
    pub async fn update_job(
        &self,
        job_id: String,
        state: &'static str,
        end: JobEndRow,
        files: Option<JobFilesRow>,
    ) -> Result<()> {
        self.write("recording a job's end", Durability::Process, move |transaction| {
            transaction
                .prepare_cached(
                    "UPDATE jobs SET state = :state, ended_ms = :ended_ms, duration_us = :duration_us,
                            exit_code = :exit_code, signal = :signal, cpu_us = :cpu_us, max_rss_bytes = :max_rss_bytes,
                            oom_killed = :oom_killed, limit_name = :limit_name, limit_value = :limit_value,
                            leftovers = :leftovers, left_behind = :left, files_created = :files_created,
                            files_changed = :files_changed, files_deleted = :files_deleted, files_note = :files_note,
                            output_bytes = :output_bytes, stderr_bytes = :stderr_bytes, notes = :notes
                     WHERE job_id = :job_id",
                )?
                .execute(named_params! {
                    ":job_id": &job_id, ":state": state, ":ended_ms": end.ended_ms, ":duration_us": end.duration_us,
                    ":exit_code": end.exit_code, ":signal": end.signal, ":cpu_us": end.cpu_us,
                    ":max_rss_bytes": end.max_rss_bytes, ":oom_killed": end.oom_killed,
                    ":limit_name": end.limit_name, ":limit_value": end.limit_value, ":leftovers": end.leftovers,
                    ":left": end.left, ":files_created": end.files_created, ":files_changed": end.files_changed,
                    ":files_deleted": end.files_deleted, ":files_note": end.files_note,
                    ":output_bytes": end.output_bytes, ":stderr_bytes": end.stderr_bytes, ":notes": end.notes,
                })?;
            let Some(files) = files else { return Ok(()) };
            transaction
                .prepare_cached("INSERT OR REPLACE INTO job_files (job_id, created, changed, deleted) VALUES (?1, ?2, ?3, ?4)")?
                .execute((job_id, files.created, files.changed, files.deleted))?;
            Ok(())
        })
        .await
    }

    /// The row with this id.
    pub async fn job(&self, job_id: String) -> Result<Option<JobRow>> {
        self.call("reading a job", move |connection| {
            connection
                .prepare_cached("SELECT * FROM jobs WHERE job_id = ?1")?
                .query_row([job_id], JobRow::read)
                .optional()
        })
        .await
    }

    /// Names of the files that a job changed.
    pub async fn job_files(&self, job_id: String) -> Result<Option<JobFilesRow>> {
        self.call("reading the files of a job", move |connection| {
            connection
                .prepare_cached("SELECT created, changed, deleted FROM job_files WHERE job_id = ?1")?
                .query_row([job_id], |row| {
                    Ok(JobFilesRow { created: row.get(0)?, changed: row.get(1)?, deleted: row.get(2)? })
                })
                .optional()
        })
        .await
    }

    /// The row that this request of this principal made.
    pub async fn job_of_request(&self, principal: String, request_id: String) -> Result<Option<JobRow>> {
        self.call("reading a job", move |connection| {
            connection
                .prepare_cached("SELECT * FROM jobs WHERE principal = ?1 AND request_id = ?2")?
                .query_row([principal, request_id], JobRow::read)
                .optional()
        })
        .await
    }

    /// Jobs by the filter, newest first.
    pub async fn jobs(&self, filter: JobFilter) -> Result<Vec<JobRow>> {
        self.call("reading jobs", move |connection| {
            let mut sql = String::from("SELECT * FROM jobs WHERE seq < :before");
            let mut values: Vec<(&str, Box<dyn rusqlite::ToSql>)> = vec![
                (":before", Box::new(filter.before_seq.unwrap_or(i64::MAX))),
                (":limit", Box::new(filter.limit)),
            ];
            if let Some(workspace_id) = filter.workspace_id {
                sql.push_str(" AND workspace_id = :workspace_id");
                values.push((":workspace_id", Box::new(workspace_id)));
            }
            if let Some(state) = filter.state {
                sql.push_str(" AND state = :state");
                values.push((":state", Box::new(state)));
            }
            if let Some(since) = filter.ended_since_ms {
                sql.push_str(" AND ended_ms >= :since");
                values.push((":since", Box::new(since)));
            }
            sql.push_str(" ORDER BY seq DESC LIMIT :limit");
            let values: Vec<(&str, &dyn rusqlite::ToSql)> =
                values.iter().map(|(name, value)| (*name, value.as_ref())).collect();
            connection.prepare_cached(&sql)?.query_map(values.as_slice(), JobRow::read)?.collect()
        })
        .await
    }

    /// Jobs on record as running, or as having left processes behind.
    pub async fn jobs_with_processes(&self) -> Result<Vec<JobRow>> {
        self.call("reading jobs", |connection| {
            connection
                .prepare_cached("SELECT * FROM jobs WHERE state = 'running' OR leftovers > 0")?
                .query_map([], JobRow::read)?
                .collect()
        })
        .await
    }

    /// How many jobs ended at or after this time.
    pub async fn count_ended_jobs(&self, since_ms: i64) -> Result<u32> {
        self.call("counting jobs", move |connection| {
            connection
                .prepare_cached("SELECT count(*) FROM jobs WHERE ended_ms >= ?1")?
                .query_row([since_ms], |row| row.get(0))
        })
        .await
    }
}
