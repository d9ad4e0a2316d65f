//! Either program killed, stopped or starved at a bad moment: the records tell the truth, nothing is left, nothing torn.
#![expect(clippy::unwrap_used, reason = "a test that can't go on must fail")]

mod gateway_killed;
mod killed;
mod lock;
mod records;
mod stopped;
mod supervisors;
mod writes;

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use support::{Client, probe, wait};

/// "At once" on a busy machine.
const PROMPTLY: Duration = Duration::from_secs(5);

/// A command that starts processes that try to get away, each with `marker` as an argument, and then stays.
fn escapees(marker: &str) -> String {
    format!(
        "setsid sleep {marker} & (setsid sh -c 'sleep {marker} & exit' &) ; nohup sleep {marker} >/dev/null 2>&1 & \
         env -i /bin/sh -c 'trap \"\" HUP TERM INT; exec sleep {marker}' & echo up; "
    )
}

/// Starts such a command, waits for its four processes, and returns the id of its job.
async fn start_escapees(client: &Client, workspace: &str, marker: &str, then: &str) -> String {
    let job = client.start(workspace, &(escapees(marker) + then)).await;
    wait::until("the processes to be there", PROMPTLY, async || probe::marked(marker).len() == 4).await;
    support::jobs::id(&job).to_owned()
}

/// Waits until no process has `marker` as an argument.
async fn until_gone(marker: &str) {
    wait::until("the processes to be gone", PROMPTLY, async || probe::marked(marker).is_empty()).await;
}

fn send(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}
