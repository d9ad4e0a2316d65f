//! How long ended jobs are kept: for a time, and as long as all logs together stay below a limit; the oldest go first.

use std::time::Duration;

use time::OffsetDateTime;

use super::registry::Jobs;
use crate::error::{Error, Result};
use crate::id::JobId;
use crate::output::log;
use crate::timestamp;

/// Rows removed in one step, so that the records' thread is never busy for long.
const STEP: usize = 500;

/// What is kept.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// How long an ended job is kept.
    pub age: Duration,
    /// Bytes that all logs may take.
    pub log_bytes: u64,
}

impl Jobs {
    /// Removes what is past its time or too much; returns how many jobs went.
    pub async fn clean(&self, retention: Retention) -> Result<usize> {
        let ended = self.store.ended_jobs_by_age().await?;
        let logs = self.logs.clone();
        let oldest =
            OffsetDateTime::now_utc().checked_sub(retention.age.try_into().unwrap_or(time::Duration::MAX));
        let oldest = oldest.map_or(0, timestamp::to_millis);
        let living: Vec<JobId> = self.living(None).into_iter().map(|job| job.id).collect();
        let condemned =
            tokio::task::spawn_blocking(move || choose(&ended, &living, oldest, retention.log_bytes, &logs))
                .await
                .map_err(|error| Error::internal("measuring logs", error))??;
        for step in condemned.chunks(STEP) {
            // The row goes first: a log without a job is found at the next start, a job without its log would lie.
            self.store.remove_jobs(step.to_vec()).await?;
            let paths: Vec<_> = step.iter().map(|id| self.logs.join(id)).collect();
            tokio::task::spawn_blocking(move || paths.iter().try_for_each(|path| log::remove(path)))
                .await
                .map_err(|error| Error::internal("removing logs", error))??;
        }
        Ok(condemned.len())
    }

    /// Removes logs of jobs that are not on record.
    pub(super) async fn forget_strays(&self) -> Result<()> {
        let failed = |error| Error::internal(format!("listing {}", self.logs.display()), error);
        let mut entries = tokio::fs::read_dir(&self.logs).await.map_err(failed)?;
        while let Some(entry) = entries.next_entry().await.map_err(failed)? {
            let name = entry.file_name().to_string_lossy().into_owned();
            if self.store.job(name).await?.is_none() {
                log::remove(&entry.path())?;
            }
        }
        Ok(())
    }
}

fn choose(
    ended: &[(String, i64, u64)],
    living: &[JobId],
    oldest_ms: i64,
    most_bytes: u64,
    logs: &std::path::Path,
) -> Result<Vec<String>> {
    let mut sizes = Vec::with_capacity(ended.len());
    let mut total: u64 = 0;
    for (id, ended_ms, written) in ended {
        let bytes = if *written == 0 { 0 } else { log::disk_bytes(&logs.join(id))? };
        total += bytes;
        sizes.push((id, *ended_ms, bytes));
    }
    for id in living {
        total += log::disk_bytes(&logs.join(id.as_str()))?;
    }
    let mut condemned = Vec::new();
    for (id, ended_ms, bytes) in sizes {
        let too_much = total > most_bytes && bytes > 0;
        let kept_by_processes = living.iter().any(|living| living.as_str() == id);
        if (ended_ms < oldest_ms || too_much) && !kept_by_processes {
            total -= bytes;
            condemned.push(id.clone());
        }
    }
    Ok(condemned)
}
