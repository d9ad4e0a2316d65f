//! Threads that do the work of the file tools with the file rights of the jobs' user: each switches its file-system
//! user and groups (setfsuid(2)), which drops every override of file modes that root has, and leaves who may signal or
//! trace the executor as it was. So a file tool can read and change what a job could, and nothing else.

use std::sync::{Arc, Mutex, mpsc};

use tokio::sync::oneshot;

use super::identity::Identity;
use crate::error::{Error, Result};

/// Threads of the pool. Twice what a small machine has processors, since file work waits for disks.
const THREADS: usize = 8;

/// Calls that may wait for a thread; further callers wait asynchronously for a place in the queue.
const QUEUE: usize = 256;

type Work = Box<dyn FnOnce() + Send>;

/// The pool.
#[derive(Debug, Clone)]
pub struct Workers {
    queue: mpsc::SyncSender<Work>,
    places: Arc<tokio::sync::Semaphore>,
}

impl Workers {
    /// Starts the threads.
    pub fn start(identity: &Identity) -> Result<Self> {
        let (queue, work) = mpsc::sync_channel::<Work>(QUEUE);
        let work = Arc::new(Mutex::new(work));
        for number in 0..THREADS {
            let (work, identity) = (Arc::clone(&work), identity.clone());
            let (ready, started) = mpsc::sync_channel(1);
            std::thread::Builder::new()
                .name(format!("runlet-file-{number}"))
                .spawn(move || {
                    let switched = assume_file_rights(&identity);
                    let usable = switched.is_ok();
                    if ready.send(switched).is_ok() && usable {
                        serve(&work);
                    }
                })
                .map_err(|error| Error::internal("starting a thread for file work", error))?;
            started
                .recv()
                .map_err(|error| Error::internal("starting a thread for file work", error))?
                .map_err(|error| Error::internal("taking the file rights of the jobs' user", error))?;
        }
        Ok(Self { queue, places: Arc::new(tokio::sync::Semaphore::new(QUEUE)) })
    }

    /// Runs `work` on one of the threads. Work that was queued is done even if the caller goes away.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let place = Arc::clone(&self.places)
            .acquire_owned()
            .await
            .map_err(|error| Error::internal("queueing file work", error))?;
        let (answer, result) = oneshot::channel();
        let job: Work = Box::new(move || {
            let done = work();
            drop(place);
            // The caller may be gone.
            let _unheard = answer.send(done).is_err();
        });
        self.queue.try_send(job).map_err(|error| Error::internal("queueing file work", error.to_string()))?;
        result.await.map_err(|error| Error::internal("doing file work", error))
    }
}

fn serve(work: &Mutex<mpsc::Receiver<Work>>) {
    loop {
        let next = match work.lock() {
            Ok(queue) => queue.recv(),
            Err(_poisoned) => return,
        };
        let Ok(job) = next else { return };
        // A panic ends one call, which its caller is told of, and not the thread.
        let _outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
    }
}

/// Makes this thread's file accesses those of the jobs' user.
fn assume_file_rights(identity: &Identity) -> std::io::Result<()> {
    if !identity.switch {
        return Ok(());
    }
    #[expect(unsafe_code, reason = "neither std nor rustix knows these calls for a single thread")]
    // SAFETY: the raw calls change the credentials of this thread alone; the pointer is valid for `groups.len()` ids.
    // setfsgid and setfsuid report no error; calling them again with an impossible id returns the present one.
    let (group, user) = unsafe {
        if libc::syscall(libc::SYS_setgroups, identity.groups.len(), identity.groups.as_ptr()) < 0 {
            return Err(std::io::Error::last_os_error());
        }
        libc::setfsgid(identity.gid);
        libc::setfsuid(identity.uid);
        (libc::setfsgid(u32::MAX), libc::setfsuid(u32::MAX))
    };
    if i64::from(group) == i64::from(identity.gid) && i64::from(user) == i64::from(identity.uid) {
        Ok(())
    } else {
        Err(std::io::Error::other(format!("the kernel refused to switch to user {}", identity.uid)))
    }
}
