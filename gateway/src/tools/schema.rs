//! Schemas of arguments: made from the types in the plainest form that every host understands, and what arguments are
//! checked against, so that an error always names the argument and says what was expected.

use crate::reply::fields;
use rmcp::model::JsonObject;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value};

/// The description and the schema of a tool's arguments.
pub(super) fn of_arguments<T: JsonSchema>() -> (String, JsonObject) {
    let mut settings = SchemaSettings::draft2020_12();
    settings.meta_schema = None;
    settings.inline_subschemas = true;
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    simplify(&mut schema);
    let mut schema = fields(schema);
    let description = match schema.remove("description") {
        Some(Value::String(description)) => description,
        _ => String::new(),
    };
    schema.remove("title");
    (description, schema)
}

/// Takes out what costs tokens or trips hosts: `format`, types that may be null, null defaults, line breaks of doc
/// comments.
fn simplify(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(simplify),
        Value::Object(object) => {
            object.remove("format");
            if object.get("default").is_some_and(Value::is_null) {
                object.remove("default");
            }
            if let Some(Value::Array(types)) = object.get_mut("type") {
                types.retain(|kind| kind != "null");
                if let [kind] = types.as_slice() {
                    let kind = kind.clone();
                    object.insert("type".to_owned(), kind);
                }
            }
            if let Some(Value::Array(values)) = object.get_mut("enum") {
                values.retain(|value| !value.is_null());
            }
            if let Some(Value::String(description)) = object.get_mut("description") {
                *description = description.split_whitespace().collect::<Vec<_>>().join(" ");
            }
            object.values_mut().for_each(simplify);
        }
        _ => {}
    }
}

/// The schema as clients get it. Every token of it is paid for in each conversation, so what goes without saying is
/// left out: that a number or text is not empty, that a switch is off by default, that other arguments are refused.
pub(super) fn published(schema: &JsonObject) -> JsonObject {
    let mut value = Value::Object(schema.clone());
    shorten(&mut value);
    fields(value)
}

fn shorten(schema: &mut Value) {
    let Value::Object(object) = schema else { return };
    object.retain(|key, value| match key.as_str() {
        "minLength" | "minItems" => false,
        "minimum" => value.as_i64().is_none_or(|least| least > 1),
        "default" => *value != Value::Bool(false),
        "additionalProperties" => value.is_object(),
        _ => true,
    });
    for key in ["items", "additionalProperties"] {
        object.get_mut(key).into_iter().for_each(shorten);
    }
    object.get_mut("properties").and_then(Value::as_object_mut).into_iter().for_each(|properties| {
        properties.values_mut().for_each(shorten);
    });
    object.get_mut("anyOf").and_then(Value::as_array_mut).into_iter().flatten().for_each(shorten);
}

/// Checks a call's arguments against the schema of its tool.
///
/// # Errors
///
/// A sentence that names the first argument that is wrong, with what was expected.
pub(super) fn check(schema: &JsonObject, arguments: &JsonObject) -> Result<(), String> {
    check_object(schema, arguments, "")
}

fn check_object(schema: &JsonObject, object: &JsonObject, path: &str) -> Result<(), String> {
    let none = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
    for (name, value) in object {
        let place = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match properties.get(name).or_else(|| schema.get("additionalProperties")) {
            Some(Value::Object(property)) => check_value(property, value, &place)?,
            Some(Value::Bool(false)) => {
                let names: Vec<&str> = properties.keys().map(String::as_str).collect();
                return Err(format!("unknown argument '{place}', expected one of: {}", names.join(", ")));
            }
            _ => {}
        }
    }
    let required = schema.get("required").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    match required.iter().filter_map(Value::as_str).find(|name| !object.contains_key(*name)) {
        None => Ok(()),
        Some(name) if path.is_empty() => Err(format!("the argument '{name}' is missing")),
        Some(name) => Err(format!("the argument '{path}.{name}' is missing")),
    }
}

fn check_value(schema: &JsonObject, value: &Value, path: &str) -> Result<(), String> {
    let wrong = || Err(format!("{path}: expected {}, got {}", expected(schema), shown(value)));
    if let Some(forms) = schema.get("anyOf").and_then(Value::as_array) {
        let fits = |form: &Value| form.as_object().is_some_and(|form| check_value(form, value, path).is_ok());
        return if forms.iter().any(fits) { Ok(()) } else { wrong() };
    }
    let fits = match schema.get("type").and_then(Value::as_str) {
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_u64() || value.is_i64(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => true,
    };
    let listed = schema.get("enum").and_then(Value::as_array).is_none_or(|values| values.contains(value));
    if !fits || !listed || schema.get("const").is_some_and(|only| only != value) || !in_range(schema, value) {
        return wrong();
    }
    match value {
        Value::Object(object) => check_object(schema, object, path),
        Value::Array(items) => {
            let Some(form) = schema.get("items").and_then(Value::as_object) else {
                return Ok(());
            };
            items
                .iter()
                .enumerate()
                .try_for_each(|(place, item)| check_value(form, item, &format!("{path}[{place}]")))
        }
        _ => Ok(()),
    }
}

fn in_range(schema: &JsonObject, value: &Value) -> bool {
    let bound = |key: &str| schema.get(key).and_then(Value::as_i64).map(i128::from);
    let size = match value {
        Value::Number(number) => number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from)),
        _ => None,
    };
    let length = match value {
        Value::String(text) => i64::try_from(text.chars().count()).ok().map(i128::from),
        Value::Array(items) => i64::try_from(items.len()).ok().map(i128::from),
        _ => None,
    };
    let least =
        |size: Option<i128>, key: &str| size.zip(bound(key)).is_none_or(|(size, least)| size >= least);
    let most = |size: Option<i128>, key: &str| size.zip(bound(key)).is_none_or(|(size, most)| size <= most);
    least(size, "minimum")
        && most(size, "maximum")
        && least(length, "minLength")
        && least(length, "minItems")
        && most(length, "maxLength")
}

fn expected(schema: &JsonObject) -> String {
    if let Some(forms) = schema.get("anyOf").and_then(Value::as_array) {
        let forms: Vec<String> = forms.iter().filter_map(Value::as_object).map(expected).collect();
        return forms.join(" or ");
    }
    if let Some(only) = schema.get("const") {
        return only.to_string();
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return values.iter().map(Value::to_string).collect::<Vec<_>>().join(" or ");
    }
    let kind = match schema.get("type").and_then(Value::as_str) {
        Some("string") if schema.contains_key("minLength") => "a string that is not empty",
        Some("string") => "a string",
        Some("boolean") => "true or false",
        Some("integer") => "an integer",
        Some("array") if schema.contains_key("minItems") => "an array that is not empty",
        Some("array") => "an array",
        Some("object") => "an object",
        _ => "another value",
    };
    match (schema.get("minimum"), schema.get("maximum")) {
        (Some(least), Some(most)) => format!("{kind} from {least} to {most}"),
        (Some(least), None) => format!("{kind} of {least} or more"),
        _ => kind.to_owned(),
    }
}

/// A value in an error: short ones as they are, but texts only by their length, for they may be secrets.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) if text.is_empty() => "an empty string".to_owned(),
        Value::String(text) if text.chars().count() <= 24 => format!("the string {value}"),
        Value::String(text) => format!("a string of {} characters", text.chars().count()),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    /// Does
    /// something.
    #[derive(JsonSchema)]
    #[schemars(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Sample {
        /// How
        /// long
        #[schemars(range(min = 0, max = 50))]
        wait_seconds: Option<u32>,
        #[schemars(length(min = 1))]
        name: String,
        env: Option<BTreeMap<String, String>>,
        edits: Option<Vec<Inner>>,
    }

    #[derive(JsonSchema)]
    #[schemars(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Inner {
        old: String,
    }

    #[test]
    fn schema_is_plain() {
        let (description, schema) = of_arguments::<Sample>();
        assert_eq!(description, "Does something.");
        let expected = json!({
            "type": "object",
            "additionalProperties": false,
            "required": ["name"],
            "properties": {
                "wait_seconds": { "type": "integer", "minimum": 0, "maximum": 50, "description": "How long" },
                "name": { "type": "string", "minLength": 1 },
                "env": { "type": "object", "additionalProperties": { "type": "string" } },
                "edits": { "type": "array", "items": {
                    "type": "object", "additionalProperties": false, "required": ["old"],
                    "properties": { "old": { "type": "string" } },
                } },
            },
        });
        assert_eq!(Value::Object(schema), expected);
    }

    #[test]
    fn published_schema_leaves_out_what_goes_without_saying() {
        let (_, schema) = of_arguments::<Sample>();
        let expected = json!({
            "type": "object",
            "required": ["name"],
            "properties": {
                "wait_seconds": { "type": "integer", "maximum": 50, "description": "How long" },
                "name": { "type": "string" },
                "env": { "type": "object", "additionalProperties": { "type": "string" } },
                "edits": { "type": "array", "items": {
                    "type": "object", "required": ["old"], "properties": { "old": { "type": "string" } },
                } },
            },
        });
        assert_eq!(Value::Object(published(&schema)), expected);
    }

    #[test]
    fn http_19_every_wrong_argument_is_named() {
        let (_, schema) = of_arguments::<Sample>();
        let problem =
            |arguments: Value| check(&schema, arguments.as_object().unwrap()).err().unwrap_or_default();
        assert_eq!(
            problem(
                json!({ "name": "a", "wait_seconds": 50, "env": { "A": "b" }, "edits": [{ "old": "" }] })
            ),
            ""
        );
        for (arguments, expected) in [
            (json!({}), "the argument 'name' is missing"),
            (json!({ "name": "" }), "name: expected a string that is not empty, got an empty string"),
            (json!({ "name": 5 }), "name: expected a string that is not empty, got 5"),
            (
                json!({ "name": "a", "wait_seconds": 51 }),
                "wait_seconds: expected an integer from 0 to 50, got 51",
            ),
            (
                json!({ "name": "a", "wait_seconds": -1 }),
                "wait_seconds: expected an integer from 0 to 50, got -1",
            ),
            (
                json!({ "name": "a", "wait_seconds": 1e18 }),
                "wait_seconds: expected an integer from 0 to 50, got 1e18",
            ),
            (
                json!({ "name": "a", "wait_seconds": "5" }),
                "wait_seconds: expected an integer from 0 to 50, got the string \"5\"",
            ),
            (
                json!({ "name": "a", "cmd": 1 }),
                "unknown argument 'cmd', expected one of: edits, env, name, wait_seconds",
            ),
            (json!({ "name": "a", "env": { "A": 1 } }), "env.A: expected a string, got 1"),
            (json!({ "name": "a", "edits": [{ "old": "" }, {}] }), "the argument 'edits[1].old' is missing"),
        ] {
            let got = problem(arguments);
            assert_eq!(got.replace("1e+18", "1e18").replace("1000000000000000000.0", "1e18"), expected);
        }
    }
}
