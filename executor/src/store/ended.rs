//! Rows of whatever has ended and left a log: jobs and terminals alike.

use super::{Durability, Store};
use crate::error::Result;

/// Something that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedRow {
    /// Id of the job or terminal.
    pub id: String,
    /// When it ended, in milliseconds since 1970.
    pub ended_ms: i64,
    /// Bytes that were written to its logs.
    pub written_bytes: u64,
}

impl Store {
    /// Whatever has ended, oldest end first.
    pub async fn ended_by_age(&self) -> Result<Vec<EndedRow>> {
        self.call("reading what has ended", |connection| {
            connection
                .prepare_cached(
                    "SELECT job_id, ended_ms, output_bytes + stderr_bytes FROM jobs WHERE ended_ms IS NOT NULL
                     UNION ALL
                     SELECT terminal_id, ended_ms, output_bytes FROM terminals WHERE ended_ms IS NOT NULL
                     ORDER BY 2",
                )?
                .query_map([], |row| {
                    let bytes: i64 = row.get(2)?;
                    let written_bytes = u64::try_from(bytes).unwrap_or(0);
                    Ok(EndedRow { id: row.get(0)?, ended_ms: row.get(1)?, written_bytes })
                })?
                .collect()
        })
        .await
    }

    /// Removes the rows of these jobs and terminals.
    pub async fn remove_ended(&self, ids: Vec<String>) -> Result<()> {
        self.write("removing records of jobs", Durability::Process, move |transaction| {
            let mut job = transaction.prepare_cached("DELETE FROM jobs WHERE job_id = ?1")?;
            let mut terminal = transaction.prepare_cached("DELETE FROM terminals WHERE terminal_id = ?1")?;
            for id in ids {
                if job.execute([&id])? == 0 {
                    terminal.execute([&id])?;
                }
            }
            Ok(())
        })
        .await
    }

    /// Whether a job or terminal with this id is on record.
    pub async fn is_on_record(&self, id: String) -> Result<bool> {
        self.call("reading a record", move |connection| {
            connection
                .prepare_cached(
                    "SELECT EXISTS (SELECT 1 FROM jobs WHERE job_id = ?1)
                         OR EXISTS (SELECT 1 FROM terminals WHERE terminal_id = ?1)",
                )?
                .query_row([id], |row| row.get(0))
        })
        .await
    }
}
