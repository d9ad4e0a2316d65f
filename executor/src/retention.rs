//! How long what has ended is kept: for a time, and as long as all logs together stay below a limit; the oldest go first.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::output::log;
use crate::store::{EndedRow, Store};
use crate::timestamp;

/// Rows removed in one step, so that the records' thread is never busy for long.
const STEP: usize = 500;

/// What is kept.
#[derive(Debug, Clone)]
pub struct Retention {
    /// How long an ended job or terminal is kept.
    pub age: Duration,
    /// Bytes that all logs may take.
    pub log_bytes: u64,
    /// Directory of the logs.
    pub logs: PathBuf,
}

impl Retention {
    /// Removes what is past its time or too much, and not among the `living`, which may have ended and left processes;
    /// returns how much went.
    pub async fn apply(&self, store: &Store, living: Vec<String>) -> Result<usize> {
        let ended = store.ended_by_age().await?;
        let this = self.clone();
        let condemned = tokio::task::spawn_blocking(move || this.choose(&ended, &living))
            .await
            .map_err(|error| Error::internal("measuring logs", error))??;
        for step in condemned.chunks(STEP) {
            // The row goes first: a log without a row is found at the next start, a row without its log would lie.
            store.remove_ended(step.to_vec()).await?;
            let paths: Vec<_> = step.iter().map(|id| self.logs.join(id)).collect();
            tokio::task::spawn_blocking(move || paths.iter().try_for_each(|path| log::remove(path)))
                .await
                .map_err(|error| Error::internal("removing logs", error))??;
        }
        Ok(condemned.len())
    }

    fn choose(&self, ended: &[EndedRow], living: &[String]) -> Result<Vec<String>> {
        let oldest_ms = timestamp::millis_ago(self.age);
        let mut sizes = Vec::with_capacity(ended.len());
        let mut total: u64 = 0;
        for row in ended {
            let bytes = if row.written_bytes == 0 { 0 } else { log::disk_bytes(&self.logs.join(&row.id))? };
            total += bytes;
            sizes.push((row, bytes));
        }
        for id in living {
            total += log::disk_bytes(&self.logs.join(id))?;
        }
        let mut condemned = Vec::new();
        for (row, bytes) in sizes {
            let too_much = total > self.log_bytes && bytes > 0;
            if (row.ended_ms < oldest_ms || too_much) && !living.contains(&row.id) {
                total -= bytes;
                condemned.push(row.id.clone());
            }
        }
        Ok(condemned)
    }
}

/// Removes logs of which there is no record.
pub async fn forget_strays(store: &Store, logs: &Path) -> Result<()> {
    let failed = |error| Error::internal(format!("listing {}", logs.display()), error);
    let mut entries = tokio::fs::read_dir(logs).await.map_err(failed)?;
    while let Some(entry) = entries.next_entry().await.map_err(failed)? {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !store.is_on_record(name).await? {
            log::remove(&entry.path())?;
        }
    }
    Ok(())
}
