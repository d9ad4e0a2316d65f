//! Waiting for several things within one call.

use std::fmt::Write as _;

use runlet_proto::v1::{
    Condition, WaitForRequest, WaitForResponse,
    condition::{Kind, OutputMatches, WorkspacePath},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Context, Effect, Offered, Tool, with_wait};
use crate::{
    executor::{Repeat, system},
    failure::Failure,
    path,
    reply::{Reply, seconds, wire_seconds},
};

pub(super) fn tools() -> Vec<Offered> {
    vec![Offered::new::<WaitFor>("jobs")]
}

/// Waits until one of several conditions holds (any) or all of them (all). A condition has one key: job_ended: job or
/// terminal id; output_matches: {id, regex}; port_open: port; path_exists or path_changed: {workspace_id, path};
/// seconds: n.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WaitFor {
    any: Option<Vec<Map<String, Value>>>,
    all: Option<Vec<Map<String, Value>>>,
    #[serde(default = "timeout_seconds")]
    #[schemars(range(min = 0, max = 50))]
    timeout_seconds: u32,
}

fn timeout_seconds() -> u32 {
    50
}

impl Tool for WaitFor {
    const NAME: &'static str = "wait_for";
    const TITLE: &'static str = "Wait for something";
    const EFFECT: Effect = Effect::READS;

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let (given, all) = match (self.any, self.all) {
            (Some(any), None) => (any, false),
            (None, Some(all)) => (all, true),
            _ => return Err(Failure::argument("wait_for: expected either any or all, a list of conditions")),
        };
        let mut conditions = Vec::with_capacity(given.len());
        for (number, condition) in given.iter().enumerate() {
            let place = format!("{}[{number}]", if all { "all" } else { "any" });
            let kind = parse(condition)
                .map_err(|problem| Failure::argument(format!("wait_for: {place}: {problem}")))?;
            conditions.push(Condition { kind: Some(kind) });
        }
        let message = WaitForRequest { conditions, all, timeout: Some(wire_seconds(self.timeout_seconds)) };
        let send = |channel, request| async move { system(channel).wait_for(request).await };
        let answer =
            context.link.call(message, with_wait(self.timeout_seconds), Repeat::Always, send).await?;
        Ok(rendered(&given, all, &answer))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Given {
    JobEnded(String),
    OutputMatches(GivenMatch),
    PortOpen(u16),
    PathExists(GivenPath),
    PathChanged(GivenPath),
    Seconds(f64),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GivenMatch {
    id: String,
    regex: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GivenPath {
    workspace_id: String,
    path: String,
}

fn parse(condition: &Map<String, Value>) -> Result<Kind, String> {
    const KEYS: &str = "job_ended, output_matches, port_open, path_exists, path_changed or seconds";
    let mut keys = condition.keys();
    let (Some(key), None) = (keys.next(), keys.next()) else {
        return Err(format!("expected an object with one key: {KEYS}"));
    };
    let given = serde_json::from_value(Value::Object(condition.clone()));
    let given: Given = given.map_err(|error| format!("{key}: {error}"))?;
    let place = |given: GivenPath| WorkspacePath {
        workspace_id: given.workspace_id,
        path: path::to_bytes(&given.path),
    };
    Ok(match given {
        Given::JobEnded(id) => Kind::JobEnded(id),
        Given::OutputMatches(GivenMatch { id, regex }) => Kind::OutputMatches(OutputMatches { id, regex }),
        Given::PortOpen(port) => Kind::PortOpen(port.into()),
        Given::PathExists(given) => Kind::PathExists(place(given)),
        Given::PathChanged(given) => Kind::PathChanged(place(given)),
        Given::Seconds(time) => {
            let time = std::time::Duration::try_from_secs_f64(time)
                .map_err(|error| format!("seconds: expected a number of seconds: {error}"))?;
            Kind::Elapsed(time.try_into().map_err(|error| format!("seconds: {error}"))?)
        }
    })
}

fn rendered(given: &[Map<String, Value>], all: bool, answer: &WaitForResponse) -> Reply {
    let held = answer.conditions.iter().filter(|condition| condition.held).count();
    let waited = seconds(answer.duration.as_ref()).unwrap_or_default();
    let wanted = if all { "all" } else { "any" };
    let outcome = if answer.satisfied { "satisfied" } else { "not satisfied" };
    let mut text = format!("{wanted}: {outcome} after {waited:.1} s · {held} of {} held\n", given.len());
    let mut rows = Vec::with_capacity(given.len());
    for (condition, known) in given.iter().zip(&answer.conditions) {
        let mark = match (known.held, known.possible) {
            (true, _) => "held",
            (false, true) => "not yet",
            (false, false) => "can't hold any more",
        };
        let _ = writeln!(text, "{mark}: {} · {}", Value::Object(condition.clone()), known.state);
        rows.push(json!({ "condition": condition, "held": known.held, "possible": known.possible, "state": known.state }));
    }
    Reply::Text(text, json!({ "satisfied": answer.satisfied, "waited_seconds": waited, "conditions": rows }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(condition: Value) -> String {
        let Value::Object(condition) = condition else { panic!("expected an object") };
        parse(&condition).unwrap_err()
    }

    #[test]
    fn a_condition_has_one_key_that_is_known() {
        assert!(problem(json!({})).contains("one key: job_ended, output_matches"));
        assert!(problem(json!({ "seconds": 1, "port_open": 80 })).contains("one key"));
        assert!(problem(json!({ "job_end": "x" })).contains("job_end: unknown variant"));
        assert!(problem(json!({ "port_open": 70_000 })).starts_with("port_open: "));
        assert!(problem(json!({ "seconds": -1 })).starts_with("seconds: expected a number of seconds"));
        assert!(problem(json!({ "path_exists": { "workspace_id": "w" } })).contains("missing field `path`"));
    }

    #[test]
    fn the_answer_says_which_held() {
        let given = [json!({ "port_open": 80 }), json!({ "seconds": 2 })];
        let given: Vec<_> = given.iter().map(|one| one.as_object().unwrap().clone()).collect();
        let state = |held, state: &str| runlet_proto::v1::wait_for_response::State {
            held,
            possible: true,
            state: state.to_owned(),
        };
        let answer = WaitForResponse {
            satisfied: true,
            conditions: vec![state(false, "nothing listens"), state(true, "2.0 s")],
            duration: Some(wire_seconds(2)),
        };
        let Reply::Text(text, object) = rendered(&given, false, &answer) else { panic!("expected text") };
        assert_eq!(
            text,
            "any: satisfied after 2.0 s · 1 of 2 held\nnot yet: {\"port_open\":80} · nothing listens\n\
             held: {\"seconds\":2} · 2.0 s\n"
        );
        assert_eq!(object["conditions"][1]["held"], true);
    }
}
