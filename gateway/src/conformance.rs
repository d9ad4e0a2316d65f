//! Tools that the official conformance suite calls by name, in builds for that suite alone. They lie beside Runlet's own,
//! behind the same HTTP, token and protocol; the executor knows nothing of them.

use std::{sync::Arc, time::Duration};

use rmcp::{
    RoleServer,
    model::{CallToolResult, ContentBlock, JsonObject, ProgressNotificationParam, Tool},
    service::RequestContext,
};
use serde_json::{Value, json};
use tokio::time::sleep;

/// One red pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
/// No sound, 8,000 samples a second.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";

const FAILING: &str = "test_error_handling";
const PROGRESS: &str = "test_tool_with_progress";

/// The tools, in order of their names.
pub(crate) fn declarations() -> Vec<Tool> {
    let mut schema = JsonObject::new();
    schema.insert("type".to_owned(), "object".into());
    schema.insert("properties".to_owned(), json!({}));
    let schema = Arc::new(schema);
    let names = [
        "test_audio_content",
        "test_embedded_resource",
        FAILING,
        "test_image_content",
        "test_multiple_content_types",
        "test_simple_text",
        PROGRESS,
    ];
    names.map(|name| Tool::new(name, "Answers the conformance suite", Arc::clone(&schema))).to_vec()
}

/// The answer of one of the tools, if it is one.
pub(crate) async fn call(name: &str, context: &RequestContext<RoleServer>) -> Option<CallToolResult> {
    let content: Vec<ContentBlock> = serde_json::from_value(content(name)?).ok()?;
    if name == PROGRESS {
        tell_progress(context).await;
    }
    Some(if name == FAILING { CallToolResult::error(content) } else { CallToolResult::success(content) })
}

async fn tell_progress(context: &RequestContext<RoleServer>) {
    for part in [0_u32, 50, 100] {
        if let Some(token) = context.meta.get_progress_token() {
            let told = ProgressNotificationParam::new(token, f64::from(part)).with_total(100.0);
            let _told = context.peer.notify_progress(told).await;
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// The content that the suite wants of a tool.
fn content(name: &str) -> Option<Value> {
    let text = |text: &str| json!({ "type": "text", "text": text });
    let image = || json!({ "type": "image", "data": PNG, "mimeType": "image/png" });
    let resource = |uri: &str, kind: &str, text: &str| json!({ "type": "resource", "resource": { "uri": uri, "mimeType": kind, "text": text } });
    Some(match name {
        "test_audio_content" => json!([{ "type": "audio", "data": WAV, "mimeType": "audio/wav" }]),
        "test_embedded_resource" => {
            json!([resource(
                "test://embedded-resource",
                "text/plain",
                "This is an embedded resource content."
            )])
        }
        FAILING => json!([text("This tool intentionally returns an error for testing")]),
        "test_image_content" => json!([image()]),
        "test_multiple_content_types" => json!([
            text("Multiple content types test:"),
            image(),
            resource("test://mixed-content-resource", "application/json", r#"{"test":"data","value":123}"#),
        ]),
        "test_simple_text" => json!([text("This is a simple text response for testing.")]),
        PROGRESS => json!([text("done")]),
        _ => return None,
    })
}
