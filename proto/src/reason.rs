//! Reasons of errors on the wire: a gRPC status with a `google.rpc.ErrorInfo` in its details, both directions.

use std::collections::HashMap;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

pub use crate::v1::ErrorReason;

/// The `domain` of every `ErrorInfo` of ours.
pub const DOMAIN: &str = "runlet";

const PREFIX: &str = "ERROR_REASON_";

impl ErrorReason {
    /// The reason's name on the wire, such as `JOB_NOT_FOUND`.
    pub fn name(self) -> &'static str {
        let name = self.as_str_name();
        name.strip_prefix(PREFIX).unwrap_or(name)
    }

    /// The reason with this name on the wire.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::from_str_name(&format!("{PREFIX}{name}"))
    }
}

/// Why a call failed, as far as the wire tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The reason.
    pub reason: ErrorReason,
    /// A sentence for the caller.
    pub message: String,
    /// Ids and numbers that go with the reason.
    pub metadata: HashMap<String, String>,
}

impl Failure {
    /// Packs the failure into a status with this code.
    pub fn into_status(self, code: Code) -> Status {
        let details = ErrorDetails::with_error_info(self.reason.name(), DOMAIN, self.metadata);
        Status::with_error_details(code, self.message, details)
    }

    /// Unpacks a status. `None` when it carries no reason of ours, as when the connection broke.
    pub fn from_status(status: &Status) -> Option<Self> {
        let info = status.get_details_error_info().filter(|info| info.domain == DOMAIN)?;
        Some(Self {
            reason: ErrorReason::from_name(&info.reason)?,
            message: status.message().to_owned(),
            metadata: info.metadata,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_survives_the_wire() {
        let failure = Failure {
            reason: ErrorReason::JobNotFound,
            message: "no job has the id job_x".to_owned(),
            metadata: HashMap::from([("job_id".to_owned(), "job_x".to_owned())]),
        };
        let status = failure.clone().into_status(Code::NotFound);
        assert_eq!(status.code(), Code::NotFound);
        assert_eq!(Failure::from_status(&status), Some(failure));
    }

    #[test]
    fn status_of_another_kind_has_no_failure() {
        assert_eq!(Failure::from_status(&Status::unavailable("connection reset")), None);
    }

    #[test]
    fn names_carry_no_prefix() {
        assert_eq!(ErrorReason::TooManyJobs.name(), "TOO_MANY_JOBS");
        assert_eq!(ErrorReason::from_name("TOO_MANY_JOBS"), Some(ErrorReason::TooManyJobs));
    }
}
