//! What is noted when a job begins, to tell at its end what it did: the files it changed, and whether the kernel ended it.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::Touched;
use crate::file::{Base, Changes, Files, Presence, Root};
use crate::process::cgroup::{Limit, Memory};
use crate::process::spawn::Ended;
use crate::resources::Resources;
use crate::workspace::Lease;

/// What a look at few files may take of the time until a job's end is told. Longer ones go on after that.
const EARLY: Duration = Duration::from_millis(2);

/// What was noted.
#[derive(Debug)]
pub(super) struct Opening {
    files: Files,
    root: Arc<Root>,
    /// Held as long as the job may change files; `None` where it runs in something that has its own.
    presence: Option<Presence>,
    base: Base,
    memory: Arc<Memory>,
    kills: Option<u64>,
}

/// Changes that were counted, with their names; or why they were not.
#[derive(Debug, Clone)]
pub(super) struct Count {
    pub touched: Touched,
    pub names: Option<Changes>,
}

/// A count that goes on.
pub(super) type Counting = Pin<Box<dyn Future<Output = Count> + Send>>;

impl Opening {
    /// Notes what is there before a job begins. One that runs in a named shell is covered by the shell's presence.
    pub(super) async fn note(resources: &Resources, lease: &Lease, in_shell: bool) -> Self {
        let (files, root) = (resources.files.clone(), Arc::clone(&lease.root));
        let memory = Arc::clone(lease.memory.as_ref().unwrap_or(&resources.memory));
        let presence = (!in_shell).then(|| root.presence());
        let base = files.base(&root, u32::from(!in_shell)).await;
        let kills = memory.kills();
        Self { files, root, presence, base, memory, kills }
    }

    /// The limit that made the kernel end something of the job, if that is what happened. Where the job has no count of its
    /// own: the kernel has ended something meanwhile, and the job's program, or what that waited for, was killed by nobody
    /// else. `killed` says that the executor did.
    pub(super) fn out_of_memory(&self, ended: &Ended, killed: bool) -> Option<Limit> {
        let by_kill = || ended.exit.shell_code() == 128 + libc::SIGKILL && !killed;
        let happened = ended.out_of_memory.unwrap_or_else(|| by_kill() && self.memory.kills() > self.kills);
        happened.then(|| self.memory.limit())
    }

    /// Begins to count what has changed by the end of the program. Where few files are to be looked at, the count is
    /// there when this returns.
    pub(super) async fn count(&mut self, ended: &Ended) -> Result<Count, Counting> {
        if ended.leftovers == 0 {
            self.presence = None;
        }
        let changes = self.files.clone().changes(Arc::clone(&self.root), self.base.clone());
        let mut counting: Counting = Box::pin(async move {
            match changes.await {
                Ok(changes) => Count {
                    touched: Touched::Counted {
                        created: changes.created.count,
                        changed: changes.changed.count,
                        deleted: changes.deleted.count,
                    },
                    names: (changes != Changes::default()).then_some(changes),
                },
                Err(why) => Count { touched: Touched::Uncounted(why.to_string()), names: None },
            }
        });
        if self.base.settles_soon() {
            match tokio::time::timeout(EARLY, &mut counting).await {
                Ok(count) => return Ok(count),
                Err(_elapsed) => {}
            }
        }
        Err(counting)
    }
}

/// The end of a count; never for none.
pub(super) async fn counted(counting: Option<&mut Counting>) -> Count {
    match counting {
        Some(counting) => counting.await,
        None => std::future::pending().await,
    }
}
