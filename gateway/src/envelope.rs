//! The outside of a JSON-RPC message, read without its inside; and what is answered without running the protocol's
//! machinery: lists, which are the same for everybody and made once, and calls of tools about which nothing is peculiar.

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use rmcp::model::{
    CacheScope, CallToolResult, ClientCapabilities, Implementation, JsonObject, ListToolsResult,
    ProtocolVersion, Tool,
};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, value::RawValue};

/// A message, its parts as they stand in the body.
#[derive(Deserialize)]
pub(crate) struct Envelope<'a> {
    #[serde(borrow)]
    jsonrpc: Option<Cow<'a, str>>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

/// Why a body is no message.
#[derive(Debug)]
pub(crate) struct Malformed {
    /// Code of JSON-RPC.
    pub(crate) code: i32,
    pub(crate) message: String,
}

impl<'a> Envelope<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        if body.trim_ascii_start().starts_with(b"[") {
            let message =
                "expected one JSON-RPC message; batches are not taken, send the messages one by one"
                    .to_owned();
            return Err(Malformed { code: -32600, message });
        }
        let envelope: Self = serde_json::from_slice(body).map_err(|error| Malformed {
            code: if error.is_data() { -32600 } else { -32700 },
            message: format!("the body is no JSON-RPC message: {error}"),
        })?;
        if envelope.jsonrpc.as_deref() != Some("2.0") {
            return Err(Malformed { code: -32600, message: "expected \"jsonrpc\": \"2.0\"".to_owned() });
        }
        Ok(envelope)
    }

    pub(crate) fn method(&self) -> Option<&str> {
        self.method.as_deref()
    }

    /// The id as it stands in the body, if it may stand in an answer.
    fn plain_id(&self) -> Option<&'a str> {
        let id = self.id?.get();
        (id.starts_with('"') || id.parse::<i64>().is_ok()).then_some(id)
    }

    /// The id, if it may stand in an answer.
    pub(crate) fn id(&self) -> Value {
        let id = self.id.and_then(|id| serde_json::from_str(id.get()).ok());
        id.filter(|id: &Value| id.is_string() || id.is_i64()).unwrap_or_default()
    }
}

/// Answers that are the same for everybody.
pub(crate) struct Prepared {
    legacy_tools: String,
    modern_tools: String,
}

/// How long a client may take the list of tools for true.
const LIST_TTL_MS: u64 = 300_000;

/// The list of tools as peers of this version get it.
pub(crate) fn list_of_tools(tools: Vec<Tool>, is_modern: bool) -> ListToolsResult {
    let list = ListToolsResult::with_all_items(tools);
    // The list depends on settings, not on the token.
    if is_modern { list.with_ttl_ms(LIST_TTL_MS).with_cache_scope(CacheScope::Public) } else { list }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params<'a> {
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
struct Meta<'a> {
    #[serde(borrow, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<Cow<'a, str>>,
    #[serde(rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: Option<ClientCapabilities>,
    #[serde(rename = "io.modelcontextprotocol/clientInfo")]
    _client: Option<Implementation>,
    #[serde(rename = "progressToken")]
    progress_token: Option<IgnoredAny>,
}

impl<'a> Meta<'a> {
    fn read(meta: Option<&'a RawValue>) -> Option<Self> {
        meta.map_or_else(|| Some(Self::default()), |meta| serde_json::from_str(meta.get()).ok())
    }
}

/// A call of a tool that is answered by its result and nothing else.
pub(crate) struct PlainCall {
    id: String,
    is_modern: bool,
    /// Name of the tool.
    pub(crate) tool: String,
    /// What it is given.
    pub(crate) arguments: JsonObject,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallParams<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    arguments: Option<JsonObject>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

impl PlainCall {
    /// The call in this message, unless something about it takes the protocol's machinery: reports of progress, a name
    /// in the headers that is not the one in the body, parameters of later revisions.
    pub(crate) fn read(headers: &HeaderMap, envelope: &Envelope<'_>) -> Option<Self> {
        let method = envelope.method().filter(|method| *method == "tools/call")?;
        let id = envelope.plain_id()?;
        let CallParams { name, arguments, meta } = serde_json::from_str(envelope.params?.get()).ok()?;
        let meta = Meta::read(meta).filter(|meta| meta.progress_token.is_none())?;
        let has_parameters = headers.keys().any(|name| name.as_str().starts_with("mcp-param-"));
        let is_modern = is_modern(headers, method, Some(&name), &meta).filter(|_| !has_parameters)?;
        Some(Self {
            id: id.to_owned(),
            is_modern,
            tool: name.into_owned(),
            arguments: arguments.unwrap_or_default(),
        })
    }

    pub(crate) fn id(&self) -> Value {
        serde_json::from_str(&self.id).unwrap_or_default()
    }

    /// The message that answers it.
    pub(crate) fn answer(&self, mut result: CallToolResult) -> serde_json::Result<Bytes> {
        if !self.is_modern {
            result.result_type = None;
        }
        Ok(message(&self.id, &serde_json::to_string(&result)?))
    }
}

impl Prepared {
    pub(crate) fn new(tools: &[Tool]) -> serde_json::Result<Self> {
        let mut legacy = list_of_tools(tools.to_vec(), false);
        legacy.result_type = None;
        let modern = list_of_tools(tools.to_vec(), true);
        Ok(Self {
            legacy_tools: serde_json::to_string(&legacy)?,
            modern_tools: serde_json::to_string(&modern)?,
        })
    }

    /// The answer to `tools/list` and `ping`, where nothing about the request is peculiar.
    pub(crate) fn answer(&self, headers: &HeaderMap, envelope: &Envelope<'_>) -> Option<Bytes> {
        let id = envelope.plain_id()?;
        let method = envelope.method().filter(|method| matches!(*method, "tools/list" | "ping"))?;
        let meta = match envelope.params {
            None => None,
            Some(params) => serde_json::from_str::<Params<'_>>(params.get()).ok()?.meta,
        };
        let result = match (method, is_modern(headers, method, None, &Meta::read(meta)?)?) {
            ("tools/list", true) => &self.modern_tools,
            ("tools/list", false) => &self.legacy_tools,
            ("ping", false) => "{}",
            _ => return None,
        };
        Some(message(id, result))
    }
}

/// A response, put together from texts of JSON.
fn message(id: &str, result: &str) -> Bytes {
    [r#"{"jsonrpc":"2.0","id":"#, id, r#","result":"#, result, "}"].concat().into()
}

/// The era of a request, if headers and body agree on it. `name` is what the header `Mcp-Name` must be.
fn is_modern(headers: &HeaderMap, method: &str, name: Option<&str>, meta: &Meta<'_>) -> Option<bool> {
    let header = single(headers, "mcp-protocol-version")?;
    let named = single(headers, "mcp-method")?;
    let modern = ProtocolVersion::V_2026_07_28;
    match &meta.version {
        Some(version) => {
            let agrees = version == modern.as_str()
                && header.is_some_and(|header| header == modern.as_str())
                && named.is_some_and(|named| named == method)
                && meta.capabilities.is_some()
                && single(headers, "mcp-name")?.map(HeaderValue::as_bytes) == name.map(str::as_bytes);
            agrees.then_some(true)
        }
        None => {
            let known = |header: &HeaderValue| {
                ProtocolVersion::KNOWN_VERSIONS
                    .iter()
                    .any(|version| *version != modern && header == version.as_str())
            };
            header.is_none_or(known).then_some(false)
        }
    }
}

/// The header's value, or that there is none; `None` when it stands twice.
fn single<'a>(headers: &'a HeaderMap, name: &str) -> Option<Option<&'a HeaderValue>> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    values.next().is_none().then_some(first)
}
