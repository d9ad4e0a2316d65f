//! Files of a workspace: read, write, edit, patch, list, search, view.

mod image;
mod render;

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use bytes::Bytes;
use futures::stream;
use runlet_proto::{
    CHUNK_BYTES,
    v1::{
        ApplyPatchRequest, EditFileRequest, ListFilesRequest, PreviewImageRequest, ReadFileRequest,
        SearchFilesRequest, WriteFileRequest,
        edit_file_request::Edit,
        read_file_request::{ByteRange, LineRange, Range},
        read_file_response::{self, Part},
        write_file_request::{self, Header},
    },
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{ANSWER_TIME, Context, Effect, Offered, Tool};
use crate::{
    executor::{Repeat, files},
    failure::Failure,
    path,
    reply::Reply,
};

pub(super) fn tools() -> Vec<Offered> {
    vec![
        Offered::new::<ReadFile>("files"),
        Offered::new::<WriteFile>("files"),
        Offered::new::<EditFile>("files"),
        Offered::new::<ApplyPatch>("files"),
        Offered::new::<ListFiles>("files"),
        Offered::new::<SearchFiles>("files"),
        Offered::new::<ViewImage>("files"),
    ]
}

/// A change waits for those before it on the same file.
const QUEUE_TIME: Duration = Duration::from_secs(60);

/// A preview waits for those before it, of which a few are made at a time.
const PREVIEW_TIME: Duration = Duration::from_secs(120);

#[derive(Deserialize, Serialize, JsonSchema, Clone, Copy, Default, PartialEq, Eq)]
enum Encoding {
    #[default]
    #[serde(rename = "utf-8")]
    Utf8,
    #[serde(rename = "base64")]
    Base64,
}

/// Reads a file by lines; with offset and length by bytes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadFile {
    workspace_id: String,
    /// Relative to the work directory, absolute inside the workspace, or ~/…
    path: String,
    /// Default: 1
    #[schemars(range(min = 1))]
    start_line: Option<u64>,
    /// Default: 2000
    #[schemars(range(min = 1))]
    line_count: Option<u64>,
    offset: Option<u64>,
    #[schemars(range(min = 1))]
    length: Option<u64>,
    #[serde(default)]
    encoding: Encoding,
}

const LINE_COUNT: u64 = 2_000;

impl Tool for ReadFile {
    const NAME: &'static str = "read_file";
    const TITLE: &'static str = "Read a file";
    const EFFECT: Effect = Effect::READS;

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let by_bytes = self.offset.is_some() || self.length.is_some();
        if by_bytes && (self.start_line.is_some() || self.line_count.is_some()) {
            return Err(Failure::argument(
                "read_file: expected start_line and line_count, or offset and length, not both",
            ));
        }
        let range = if by_bytes {
            Range::Bytes(ByteRange {
                offset: self.offset.unwrap_or_default(),
                length: self.length.unwrap_or_default(),
            })
        } else {
            Range::Lines(LineRange {
                start_line: self.start_line.unwrap_or(1),
                line_count: self.line_count.unwrap_or(LINE_COUNT),
            })
        };
        let message = ReadFileRequest {
            workspace_id: self.workspace_id,
            path: path::to_bytes(&self.path),
            range: Some(range),
        };
        // Whole lines end where a host would cut the text; bytes were asked for by number.
        let most = if by_bytes { usize::MAX } else { render::MAX_TEXT_BYTES };
        let (header, content) = read(context, message, most).await?;
        Ok(render::content(&self.path, &header, content, self.encoding == Encoding::Base64))
    }
}

/// Reads a file until there are `most` bytes of it.
async fn read(
    context: &Context,
    message: ReadFileRequest,
    most: usize,
) -> Result<(read_file_response::Header, Vec<u8>), Failure> {
    let send = move |channel, request| async move {
        let mut parts = files(channel).read_file(request).await?.into_inner();
        let (mut header, mut content) = (None, Vec::new());
        while content.len() <= most
            && let Some(message) = parts.message().await?
        {
            match message.part {
                Some(Part::Header(part)) => header = Some(part),
                Some(Part::Content(part)) => content.extend_from_slice(&part),
                None => {}
            }
        }
        Ok(tonic::Response::new((header.unwrap_or_default(), content)))
    };
    Ok(context.link.call(message, QUEUE_TIME, Repeat::Always, send).await?)
}

/// The whole content of a file.
pub(super) async fn read_whole(
    context: &Context,
    workspace_id: String,
    path: &str,
) -> Result<Vec<u8>, Failure> {
    let range = Some(Range::Bytes(ByteRange::default()));
    let message = ReadFileRequest { workspace_id, path: path::to_bytes(path), range };
    let (header, content) = read(context, message, usize::MAX).await?;
    let (total, sent) = (header.size_bytes, content.len());
    if u64::try_from(sent).is_ok_and(|sent| sent < total) {
        let problem = format!("{path} has {total} bytes, of which {sent} can be sent at once");
        return Err(Failure::argument(format!("{problem}; create_download makes a link to all of it")));
    }
    Ok(content)
}

/// Bytes given as base64.
pub(super) fn decoded(tool: &str, content: &str) -> Result<Bytes, Failure> {
    let expected = |error| Failure::argument(format!("{tool}: content: expected standard base64: {error}"));
    BASE64.decode(content).map(Bytes::from).map_err(expected)
}

/// Creates or replaces a whole file, with its parents. To change a part use edit_file.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WriteFile {
    workspace_id: String,
    path: String,
    content: String,
    #[serde(default)]
    encoding: Encoding,
    /// sha256 expected now, or "absent"
    if_match: Option<String>,
    executable: Option<bool>,
}

impl Tool for WriteFile {
    const NAME: &'static str = "write_file";
    const TITLE: &'static str = "Write a file";
    const EFFECT: Effect = Effect::REMOVES;
    const RECORD: &'static [(&'static str, &'static str)] = &[("sha256", "string"), ("created", "boolean")];

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let content: Bytes = match self.encoding {
            Encoding::Utf8 => self.content.into(),
            Encoding::Base64 => decoded(Self::NAME, &self.content)?,
        };
        let header = Header {
            principal: context.principal(),
            workspace_id: self.workspace_id,
            path: path::to_bytes(&self.path),
            if_match: self.if_match.unwrap_or_default(),
            executable: self.executable,
            length: content.len() as u64,
        };
        write(context, header, content).await
    }
}

/// Writes a whole file.
pub(super) async fn write(context: &Context, header: Header, content: Bytes) -> Result<Reply, Failure> {
    let send = |channel, request: tonic::Request<(Header, Bytes)>| async move {
        let request = request.map(|(header, content)| stream::iter(write_messages(header, content)));
        files(channel).write_file(request).await
    };
    let answer = context.link.call((header, content), QUEUE_TIME, Repeat::Unsent, send).await?;
    Ok(Reply::Record(json!({
        "path": path::to_text(&answer.path),
        "sha256": answer.sha256,
        "bytes": answer.size_bytes,
        "created": answer.created,
    })))
}

fn write_messages(header: Header, mut content: Bytes) -> impl Iterator<Item = WriteFileRequest> {
    let mut header = Some(header);
    std::iter::from_fn(move || {
        let part = match header.take() {
            Some(header) => write_file_request::Part::Header(header),
            None if content.is_empty() => return None,
            None => write_file_request::Part::Content(content.split_to(content.len().min(CHUNK_BYTES))),
        };
        Some(WriteFileRequest { part: Some(part) })
    })
}

/// Replaces exact texts in a file, all or none; old_text must occur once unless replace_all.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EditFile {
    workspace_id: String,
    path: String,
    #[schemars(length(min = 1))]
    edits: Vec<TextEdit>,
    /// sha256 expected now
    if_match: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TextEdit {
    old_text: String,
    new_text: String,
    #[serde(default)]
    replace_all: bool,
}

impl Tool for EditFile {
    const NAME: &'static str = "edit_file";
    const TITLE: &'static str = "Edit a file";
    const EFFECT: Effect = Effect::CHANGES;

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let edits = self.edits.into_iter().map(|TextEdit { old_text, new_text, replace_all }| Edit {
            old_text,
            new_text,
            replace_all,
        });
        let message = EditFileRequest {
            principal: context.principal(),
            workspace_id: self.workspace_id,
            path: path::to_bytes(&self.path),
            edits: edits.collect(),
            if_match: self.if_match.unwrap_or_default(),
        };
        let send = |channel, request| async move { files(channel).edit_file(request).await };
        let answer = context.link.call(message, QUEUE_TIME, Repeat::Unsent, send).await?;
        Ok(render::edited(&answer))
    }
}

/// Applies a unified diff (git diff, diff -u) to several files, all or none; also creates, deletes and renames. Lines
/// must match exactly, line numbers need not.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ApplyPatch {
    workspace_id: String,
    #[schemars(length(min = 1))]
    patch: String,
}

impl Tool for ApplyPatch {
    const NAME: &'static str = "apply_patch";
    const TITLE: &'static str = "Apply a patch";
    const EFFECT: Effect = Effect::CHANGES;

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let message = ApplyPatchRequest {
            principal: context.principal(),
            workspace_id: self.workspace_id,
            patch: self.patch.into(),
        };
        let send = |channel, request| async move { files(channel).apply_patch(request).await };
        let answer = context.link.call(message, QUEUE_TIME, Repeat::Unsent, send).await?;
        Ok(render::patched(&answer))
    }
}

/// Lists a directory tree, without hidden and git-ignored files unless include_ignored.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListFiles {
    workspace_id: String,
    #[serde(default = "here")]
    path: String,
    glob: Option<String>,
    #[serde(default = "depth")]
    #[schemars(range(min = 1, max = 1000))]
    depth: u32,
    #[serde(default)]
    include_ignored: bool,
    #[serde(default = "list_page_size")]
    #[schemars(range(min = 1, max = 5000))]
    page_size: u32,
    page_token: Option<String>,
}

fn here() -> String {
    ".".to_owned()
}

fn depth() -> u32 {
    2
}

fn list_page_size() -> u32 {
    500
}

impl Tool for ListFiles {
    const NAME: &'static str = "list_files";
    const TITLE: &'static str = "List files";
    const EFFECT: Effect = Effect::READS;
    const RECORD: &'static [(&'static str, &'static str)] = &[("entries", "array")];

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let message = ListFilesRequest {
            workspace_id: self.workspace_id,
            path: path::to_bytes(&self.path),
            glob: self.glob.unwrap_or_default(),
            depth: self.depth,
            include_ignored: self.include_ignored,
            page_size: self.page_size,
            page_token: self.page_token.unwrap_or_default(),
        };
        let send = |channel, request| async move { files(channel).list_files(request).await };
        let answer = context.link.call(message, ANSWER_TIME, Repeat::Always, send).await?;
        Ok(render::listed(answer))
    }
}

/// Searches files for lines that match a regex, or hold a text with literal; binary and git-ignored files are left
/// out.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SearchFiles {
    workspace_id: String,
    #[schemars(length(min = 1))]
    pattern: String,
    #[serde(default = "here")]
    path: String,
    glob: Option<String>,
    #[serde(default)]
    literal: bool,
    #[serde(default)]
    ignore_case: bool,
    #[serde(default)]
    #[schemars(range(min = 0, max = 10))]
    context: u32,
    #[serde(default = "search_page_size")]
    #[schemars(range(min = 1, max = 1000))]
    page_size: u32,
    page_token: Option<String>,
}

fn search_page_size() -> u32 {
    100
}

impl Tool for SearchFiles {
    const NAME: &'static str = "search_files";
    const TITLE: &'static str = "Search files";
    const EFFECT: Effect = Effect::READS;

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let message = SearchFilesRequest {
            workspace_id: self.workspace_id,
            pattern: self.pattern,
            path: path::to_bytes(&self.path),
            glob: self.glob.unwrap_or_default(),
            literal: self.literal,
            ignore_case: self.ignore_case,
            context: self.context,
            page_size: self.page_size,
            page_token: self.page_token.unwrap_or_default(),
        };
        let send = |channel, request| async move { files(channel).search_files(request).await };
        let answer = context.link.call(message, ANSWER_TIME, Repeat::Always, send).await?;
        Ok(render::found(answer))
    }
}

/// Shows an image: PNG, JPEG, WebP, GIF or SVG, scaled to max_edge.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ViewImage {
    workspace_id: String,
    path: String,
    #[serde(default = "max_edge")]
    #[schemars(range(min = 1, max = 1568))]
    max_edge: u32,
}

fn max_edge() -> u32 {
    1568
}

impl Tool for ViewImage {
    const NAME: &'static str = "view_image";
    const TITLE: &'static str = "View an image";
    const EFFECT: Effect = Effect::READS;

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let message = PreviewImageRequest {
            workspace_id: self.workspace_id,
            path: path::to_bytes(&self.path),
            max_edge: self.max_edge,
        };
        let send = |channel, request| async move { files(channel).preview_image(request).await };
        let answer = context.link.call(message, PREVIEW_TIME, Repeat::Always, send).await?;
        Ok(image::previewed(&self.path, answer))
    }
}
