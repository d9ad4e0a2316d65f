//! The tools: a declaration, one call to the executor and one rendering each. Here is what they share: how a tool is
//! declared, found and called. What the arguments may be is said by their schema alone, which is also what they are
//! checked against.

mod file;
mod job;
mod sandbox;
mod schema;
mod terminal;
mod transfer;
mod wait;
mod workspace;

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use rmcp::model::{JsonObject, ToolAnnotations};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{auth::Principal, executor::Link, failure::Failure, reply::Reply};

/// A tool, declared on the type of its arguments. The type's doc comment is the description that models read, and the
/// fields' doc comments are those of the arguments.
trait Tool: DeserializeOwned + JsonSchema + Send + 'static {
    const NAME: &'static str;
    const TITLE: &'static str;
    const EFFECT: Effect;
    /// Names and JSON types of the main fields of the record it returns; none for a tool that answers with text.
    const RECORD: &'static [(&'static str, &'static str)] = &[];

    fn call(self, context: &Context) -> impl Future<Output = Result<Reply, Failure>> + Send;
}

/// What a tool does to the world.
struct Effect {
    read_only: bool,
    destructive: bool,
    idempotent: bool,
    open_world: bool,
}

impl Effect {
    /// Changes nothing.
    const READS: Self = Self { read_only: true, destructive: false, idempotent: true, open_world: false };
    /// Adds something.
    const ADDS: Self = Self { read_only: false, destructive: false, idempotent: false, open_world: false };
    /// Changes or removes something; twice is the same as once.
    const REMOVES: Self = Self { read_only: false, destructive: true, idempotent: true, open_world: false };
    /// Changes something; twice is not the same as once.
    const CHANGES: Self = Self { read_only: false, destructive: true, idempotent: false, open_world: false };
}

/// What a call needs beside its arguments.
pub(crate) struct Context {
    pub(crate) link: Arc<Link>,
    pub(crate) principal: Principal,
    /// Where the client reaches this server, without a slash at its end.
    pub(crate) base: Arc<str>,
}

impl Context {
    fn principal(&self) -> String {
        self.principal.name.as_ref().to_owned()
    }
}

/// Time that the executor has for a call, beside the wait that the caller asked for.
const ANSWER_TIME: Duration = Duration::from_secs(30);

fn with_wait(seconds: u32) -> Duration {
    ANSWER_TIME + Duration::from_secs(u64::from(seconds))
}

type Handler =
    Box<dyn Fn(Arc<Context>, JsonObject) -> BoxFuture<'static, Result<Reply, Failure>> + Send + Sync>;

/// A tool as it is offered.
pub(crate) struct Offered {
    pub(crate) declaration: rmcp::model::Tool,
    set: &'static str,
    handler: Handler,
}

impl Offered {
    fn new<T: Tool>(set: &'static str) -> Self {
        let (description, input) = schema::of_arguments::<T>();
        let published = Arc::new(schema::published(&input));
        let Effect { read_only, destructive, idempotent, open_world } = T::EFFECT;
        let hints = ToolAnnotations::from_raw(
            None,
            Some(read_only),
            Some(destructive),
            Some(idempotent),
            Some(open_world),
        );
        let mut declaration = rmcp::model::Tool::new(T::NAME, description, published);
        declaration.title = Some(T::TITLE.to_owned());
        declaration.annotations = Some(hints);
        declaration.output_schema = record_schema(T::RECORD);
        let handler: Handler = Box::new(move |context, mut arguments| {
            // For an optional argument, null is the same as nothing.
            arguments.retain(|_, value| !value.is_null());
            let arguments = schema::check(&input, &arguments).and_then(|()| {
                serde_json::from_value::<T>(Value::Object(arguments)).map_err(|error| error.to_string())
            });
            Box::pin(async move {
                match arguments {
                    Ok(arguments) => arguments.call(&context).await,
                    Err(problem) => Err(Failure::argument(format!("{}: {problem}", T::NAME))),
                }
            })
        });
        Self { declaration, set, handler }
    }

    /// Calls the tool. The future may be dropped at any time; what was started goes on.
    pub(crate) fn call(
        &self,
        context: Arc<Context>,
        arguments: JsonObject,
    ) -> BoxFuture<'static, Result<Reply, Failure>> {
        (self.handler)(context, arguments)
    }
}

/// The schema of a record, without the inside of its fields: the text is the same JSON and speaks for itself, and every
/// token of a schema is paid for in each conversation.
fn record_schema(fields: &[(&str, &str)]) -> Option<Arc<JsonObject>> {
    if fields.is_empty() {
        return None;
    }
    let mut properties = JsonObject::new();
    for (name, kind) in fields {
        properties.insert((*name).to_owned(), json!({ "type": kind }));
    }
    match json!({ "type": "object", "properties": properties }) {
        Value::Object(schema) => Some(Arc::new(schema)),
        _ => None,
    }
}

/// Which tools are offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection(Vec<String>);

impl Selection {
    /// The tools named, one by one or by set; all when nothing is named.
    ///
    /// # Errors
    ///
    /// A sentence that names what is neither a tool nor a set.
    pub fn parse(names: &[String]) -> Result<Self, String> {
        let all = all();
        let known = |name: &String| all.iter().any(|tool| tool.set == name || tool.declaration.name == *name);
        match names.iter().find(|name| !known(name)) {
            None => Ok(Self(names.to_vec())),
            Some(name) => Err(format!(
                "RUNLET_TOOLSETS: '{name}' is neither a set (workspaces, jobs, terminals, files, links, sandboxes) nor the name of a tool"
            )),
        }
    }

    fn admits(&self, tool: &Offered) -> bool {
        let Self(names) = self;
        names.is_empty() || names.iter().any(|name| tool.set == name || tool.declaration.name == *name)
    }
}

/// The tools that are offered, in order of their names.
pub(crate) struct Toolbox(Vec<Arc<Offered>>);

impl Toolbox {
    pub(crate) fn new(selection: &Selection) -> Self {
        let mut tools = all();
        tools.retain(|tool| selection.admits(tool));
        tools.sort_by(|one, other| one.declaration.name.cmp(&other.declaration.name));
        Self(tools.into_iter().map(Arc::new).collect())
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Arc<Offered>> {
        let Self(tools) = self;
        let place = tools.binary_search_by(|tool| tool.declaration.name.as_ref().cmp(name)).ok()?;
        tools.get(place)
    }

    pub(crate) fn declarations(&self) -> Vec<rmcp::model::Tool> {
        let own = self.0.iter().map(|tool| tool.declaration.clone());
        #[cfg(feature = "conformance")]
        let own = own.chain(crate::conformance::declarations());
        own.collect()
    }
}

fn all() -> Vec<Offered> {
    let sets = [
        workspace::tools(),
        job::tools(),
        terminal::tools(),
        wait::tools(),
        file::tools(),
        transfer::tools(),
        sandbox::tools(),
    ];
    sets.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_are_complete_sorted_and_portable() {
        let tools = Toolbox::new(&Selection(Vec::new())).declarations();
        assert_eq!(tools.len(), 46);
        assert!(tools.is_sorted_by(|one, other| one.name < other.name));
        for tool in &tools {
            let name = &tool.name;
            let description = tool.description.as_deref().unwrap();
            assert!(!description.is_empty() && description.len() <= 1_000, "{name}: {description}");
            assert!(tool.title.is_some() && tool.annotations.is_some(), "{name}");
            let text = serde_json::to_string(tool).unwrap();
            for unportable in ["$ref", "$schema", "\"null\"", "uint", "oneOf", "allOf", "\"format\""] {
                assert!(!text.contains(unportable), "{name} holds {unportable}: {text}");
            }
            for schema in [Some(&tool.input_schema), tool.output_schema.as_ref()].into_iter().flatten() {
                assert_eq!(schema.get("type"), Some(&json!("object")), "{name}");
                assert!(!schema.contains_key("anyOf"), "{name}");
            }
        }
    }

    #[test]
    fn declarations_take_no_more_tokens_than_they_may() {
        let tools = Toolbox::new(&Selection(Vec::new())).declarations();
        let mut total = 0;
        for tool in &tools {
            let tokens = serde_json::to_string(tool).unwrap().chars().count() / 4;
            println!("{:>5} {}", tokens, tool.name);
            total += tokens;
        }
        println!("{total:>5} tokens in all");
        assert!(total <= 6_700, "{total} tokens");
    }

    #[test]
    fn selection_is_by_set_or_name() {
        let names = |list: &[&str]| {
            let names: Vec<String> = list.iter().map(|name| (*name).to_owned()).collect();
            let toolbox = Toolbox::new(&Selection::parse(&names).unwrap());
            toolbox.declarations().iter().map(|tool| tool.name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(&["read_file", "workspaces"]).len(), 6);
        assert_eq!(names(&["read_file"]), ["read_file"]);
        assert!(Selection::parse(&["nothing".to_owned()]).unwrap_err().contains("'nothing'"));
    }
}
