//! The list of tools as it is written down for people, and what it costs a model.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Map, Value};
use support::world::program;

/// Most tokens that the list may take, at four characters each.
const MOST_TOKENS: usize = 8_000;

fn tools() -> Vec<Value> {
    let printed = Command::new(program("runlet-gateway")).arg("--print-tools").output().unwrap();
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    serde_json::from_slice(&printed.stdout).unwrap()
}

#[test]
fn tool_list_is_cheap() {
    let tools = tools();
    let tokens = |tool: &Value| tool.to_string().chars().count() / 4;
    for tool in &tools {
        println!("{:>6} {}", tokens(tool), tool["name"].as_str().unwrap());
    }
    let total: usize = tools.iter().map(tokens).sum();
    println!("{total:>6} tokens for {} tools", tools.len());
    assert!(total <= MOST_TOKENS, "{total} tokens");
}

#[test]
fn tools_are_documented() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/tools.md");
    let expected = page(&tools());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "docs/tools.md does not say what runlet-gateway offers; write it anew with \
         UPDATE_DOCS=1 cargo test -p runlet-tests --test clients tools_are_documented"
    );
}

/// The whole page.
fn page(tools: &[Value]) -> String {
    let mut page = String::from(
        "# Tools\n\n\
         <!-- Written by `UPDATE_DOCS=1 cargo test -p runlet-tests --test clients tools_are_documented`. -->\n\n\
         What an agent reads about each tool, and the arguments it may give. `runlet-gateway --print-tools` prints the\n\
         same as JSON; `RUNLET_TOOLSETS` offers some of them only.\n\n\
         | Tool | Effect |\n| --- | --- |\n",
    );
    for tool in tools {
        let name = tool["name"].as_str().unwrap();
        writeln!(page, "| [`{name}`](#{name}) | {} |", effect(&tool["annotations"])).unwrap();
    }
    tools.iter().for_each(|tool| push_tool(&mut page, tool));
    page
}

fn push_tool(page: &mut String, tool: &Value) {
    let name = tool["name"].as_str().unwrap();
    let description = escaped(tool["description"].as_str().unwrap());
    writeln!(page, "\n## {name}\n\n{description}\n\n| Argument | Type | |\n| --- | --- | --- |").unwrap();
    let schema = &tool["inputSchema"];
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let none = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&none);
    // What must be given comes first.
    let (first, rest): (Vec<_>, Vec<_>) =
        properties.iter().partition(|(argument, _)| required.contains(&Value::from(argument.as_str())));
    for (argument, property) in first.iter().chain(&rest) {
        let needed = required.contains(&Value::from(argument.as_str()));
        let remark = remark(property, needed);
        writeln!(page, "| `{argument}` | {} | {remark} |", escaped(&kind(property))).unwrap();
    }
    match tool["outputSchema"]["properties"].as_object() {
        Some(fields) => {
            let fields: Vec<String> = fields.keys().map(|field| format!("`{field}`")).collect();
            writeln!(page, "\nReturns a record with {}.", fields.join(", ")).unwrap();
        }
        None => page.push_str("\nReturns text; the same as an object is in `_meta[\"runlet/result\"]`.\n"),
    }
}

fn effect(annotations: &Value) -> &'static str {
    match (annotations["readOnlyHint"] == true, annotations["destructiveHint"] == true) {
        (true, _) => "reads",
        (false, true) => "changes or removes",
        (false, false) => "adds",
    }
}

fn kind(schema: &Value) -> String {
    if let Some(values) = schema["enum"].as_array() {
        return values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(" or ");
    }
    if let Some(forms) = schema["anyOf"].as_array() {
        return forms.iter().map(kind).collect::<Vec<_>>().join(" or ");
    }
    match schema["type"].as_str() {
        Some("array") => format!("list of {}", kind(&schema["items"])),
        Some("object") if schema["additionalProperties"].is_object() => {
            format!("object of {}", kind(&schema["additionalProperties"]))
        }
        Some("object") => {
            let properties = schema["properties"].as_object();
            let names =
                properties.into_iter().flatten().map(|(name, inner)| format!("{name}: {}", kind(inner)));
            format!("{{{}}}", names.collect::<Vec<_>>().join(", "))
        }
        Some(kind) => kind.to_owned(),
        None => "any".to_owned(),
    }
}

fn remark(schema: &Value, needed: bool) -> String {
    let mut parts = Vec::new();
    if needed {
        parts.push("required".to_owned());
    }
    if let Some(description) = schema["description"].as_str() {
        parts.push(escaped(description));
    }
    match (schema["minimum"].as_i64(), schema["maximum"].as_i64()) {
        (Some(least), Some(most)) => parts.push(format!("from {least} to {most}")),
        (None, Some(most)) => parts.push(format!("at most {most}")),
        (Some(least), None) => parts.push(format!("at least {least}")),
        (None, None) => {}
    }
    if let Some(default) = schema.get("default") {
        parts.push(format!("default `{default}`"));
    }
    parts.join("; ")
}

/// Text that stands in a table.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}
