//! Jobs through the tools: starting one, waiting for its end.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{Client, wait};

impl Client {
    /// Starts a command and returns at once, with the job.
    pub async fn start(&self, workspace: &str, command: &str) -> Value {
        self.run_with(workspace, command, json!({ "wait_seconds": 0 })).await
    }

    /// Runs a command with further arguments and returns the job.
    pub async fn run_with(&self, workspace: &str, command: &str, more: Value) -> Value {
        self.call("run_command", arguments(workspace, command, more)).await.expect()
    }

    /// Runs a command that must not be taken, and returns the error.
    pub async fn refused(&self, workspace: &str, command: &str, more: Value) -> Value {
        self.call("run_command", arguments(workspace, command, more)).await.expect_error()
    }

    /// The job as it is now, with the first of its output.
    pub async fn job(&self, job_id: &str) -> Value {
        self.call("read_output", json!({ "job_id": job_id })).await.expect()
    }

    /// Waits until a job has ended and returns it.
    pub async fn ended(&self, job_id: &str) -> Value {
        // No output matches this, so the call returns at the end.
        let read = json!({ "job_id": job_id, "cursor": "tail", "until": r"[^\s\S]", "wait_seconds": 20 });
        let mut job = Value::Null;
        wait::until("the end of a job", Duration::from_secs(120), async || {
            job = self.call("read_output", read.clone()).await.expect();
            job["status"] != json!("running")
        })
        .await;
        job
    }

    /// Ends a job and returns it.
    pub async fn cancel(&self, job_id: &str) -> Value {
        self.call("cancel_job", json!({ "job_id": job_id })).await.expect()["job"].clone()
    }
}

/// Id of a job.
#[track_caller]
pub fn id(job: &Value) -> &str {
    job["job_id"].as_str().unwrap()
}

/// Status and exit code of a job.
pub fn end(job: &Value) -> (Option<&str>, Option<i64>) {
    (job["status"].as_str(), job["exit_code"].as_i64())
}

fn arguments(workspace: &str, command: &str, more: Value) -> Value {
    let mut arguments = json!({ "workspace_id": workspace, "command": command, "wait_seconds": 20 });
    for (name, value) in more.as_object().unwrap() {
        arguments[name] = value.clone();
    }
    arguments
}
