//! Downloads and uploads: links for a person, or for a program without a token.

use std::{fmt::Write as _, time::Duration};

use rmcp::model::Resource;
use runlet_proto::v1::{
    CreateDownloadRequest, CreateUploadRequest, Link, ListLinksRequest, RevokeLinkRequest,
    create_download_request::Archive, link::Kind,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{ANSWER_TIME, Context, Effect, Offered, Tool};
use crate::{
    disposition::{media_type, url_name},
    executor::{Repeat, transfers},
    failure::Failure,
    path,
    reply::{Reply, counted, fields, filled, time_text, wire_seconds},
};

pub(super) fn tools() -> Vec<Offered> {
    vec![
        Offered::new::<CreateDownload>("links"),
        Offered::new::<ListDownloads>("links"),
        Offered::new::<RevokeDownload>("links"),
        Offered::new::<CreateUpload>("links"),
    ]
}

/// Links that are listed at most.
const ROWS: usize = 100;

/// A snapshot takes its time; the executor has a limit of its own, which comes first.
const SNAPSHOT_TIME: Duration = Duration::from_secs(120);

#[derive(Deserialize, JsonSchema, Clone, Copy)]
enum Form {
    #[serde(rename = "tar.gz")]
    TarGz,
    #[serde(rename = "zip")]
    Zip,
}

fn lifetime() -> u32 {
    3_600
}

/// Makes a URL by which anyone can download a file as it is now; a folder, or paths, become an archive.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CreateDownload {
    workspace_id: String,
    /// Or paths
    path: Option<String>,
    #[schemars(length(min = 1))]
    paths: Option<Vec<String>>,
    #[serde(default = "lifetime")]
    #[schemars(range(min = 1, max = 604800))]
    expires_in_seconds: u32,
    filename: Option<String>,
    /// Default for folders: tar.gz
    archive: Option<Form>,
}

impl Tool for CreateDownload {
    const NAME: &'static str = "create_download";
    const TITLE: &'static str = "Make a download link";
    const EFFECT: Effect = Effect::ADDS;

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let paths = match (self.path, self.paths) {
            (Some(path), None) => vec![path],
            (None, Some(paths)) => paths,
            _ => return Err(Failure::argument("create_download: expected path or paths, and not both")),
        };
        let archive = match self.archive {
            None => Archive::Unspecified,
            Some(Form::TarGz) => Archive::TarGz,
            Some(Form::Zip) => Archive::Zip,
        };
        if self.filename.as_deref() == Some("") {
            return Err(Failure::argument("create_download: filename: expected a name, or no such argument"));
        }
        let message = CreateDownloadRequest {
            principal: context.principal(),
            workspace_id: self.workspace_id,
            paths: paths.iter().map(|path| path::to_bytes(path)).collect(),
            lifetime: Some(wire_seconds(self.expires_in_seconds)),
            name: self.filename.unwrap_or_default(),
            archive: archive.into(),
        };
        let send = |channel, request| async move { transfers(channel).create_download(request).await };
        let answer = context.link.call(message, SNAPSHOT_TIME, Repeat::Unsent, send).await?;
        let link = answer.link.unwrap_or_default();
        let url = format!("{}/downloads/{}/{}", context.base, answer.secret_link, url_name(&link.name));
        Ok(downloadable(&link, url, answer.entries, answer.notes))
    }
}

fn downloadable(link: &Link, url: String, entries: u64, notes: Vec<String>) -> Reply {
    let expires_at = time_text(link.expire_time.as_ref()).unwrap_or_default();
    let mut text = format!("{} {} · {}", link.link_id, link.name, counted(link.size_bytes, "byte"));
    if entries > 0 {
        let entries = counted(entries, "entry");
        let _ = write!(text, " · {}", entries.replace("entrys", "entries"));
    }
    let _ = writeln!(text, " · expires {expires_at}\n{url}\nsha256 {}", link.sha256);
    for note in &notes {
        let _ = writeln!(text, "note: {note}");
    }
    let _ = writeln!(
        text,
        "Whoever has this URL can download it until then; revoke_download(download_id=\"{}\") ends it.",
        link.link_id
    );
    let mut object = link_record(link);
    object.insert("url".to_owned(), url.clone().into());
    if entries > 0 {
        object.insert("entries".to_owned(), entries.into());
    }
    if !notes.is_empty() {
        object.insert("notes".to_owned(), notes.into());
    }
    let resource =
        Resource::new(url, &link.name).with_mime_type(media_type(&link.name)).with_size(link.size_bytes);
    Reply::Link { text, object: Value::Object(object), link: Box::new(resource) }
}

/// Makes a URL to which one file can be sent by PUT, once. A file at path now will be replaced; one that appears later
/// will not.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CreateUpload {
    workspace_id: String,
    path: String,
    #[serde(default = "max_bytes")]
    #[schemars(range(min = 1))]
    max_bytes: u64,
    #[serde(default = "lifetime")]
    #[schemars(range(min = 1, max = 604800))]
    expires_in_seconds: u32,
}

fn max_bytes() -> u64 {
    104_857_600
}

impl Tool for CreateUpload {
    const NAME: &'static str = "create_upload";
    const TITLE: &'static str = "Make an upload link";
    const EFFECT: Effect = Effect::ADDS;

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let message = CreateUploadRequest {
            principal: context.principal(),
            workspace_id: self.workspace_id,
            path: path::to_bytes(&self.path),
            max_bytes: self.max_bytes,
            lifetime: Some(wire_seconds(self.expires_in_seconds)),
        };
        let send = |channel, request| async move { transfers(channel).create_upload(request).await };
        let answer = context.link.call(message, ANSWER_TIME, Repeat::Unsent, send).await?;
        let link = answer.link.unwrap_or_default();
        let url = format!("{}/uploads/{}", context.base, answer.secret_link);
        let (place, expires_at) = (path::to_text(&link.path), time_text(link.expire_time.as_ref()));
        let expires_at = expires_at.unwrap_or_default();
        let most = counted(link.size_bytes, "byte");
        let mut text =
            format!("{} to {place} · at most {most} · expires {expires_at}\n{url}\n", link.link_id);
        if let Some(bytes) = answer.replaces_bytes {
            let _ = writeln!(text, "It will replace the file there, which has {}.", counted(bytes, "byte"));
        }
        let _ = writeln!(
            text,
            "Send the file: curl -fT FILE '{url}'\nIt can be used once; the answer has the sha256."
        );
        let mut object = link_record(&link);
        object.insert("url".to_owned(), url.into());
        object.insert("replaces_bytes".to_owned(), answer.replaces_bytes.into());
        Ok(Reply::Text(text, Value::Object(object)))
    }
}

/// Lists the download and upload links that live, without their secrets.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListDownloads {
    workspace_id: Option<String>,
}

impl Tool for ListDownloads {
    const NAME: &'static str = "list_downloads";
    const TITLE: &'static str = "List links";
    const EFFECT: Effect = Effect::READS;
    const RECORD: &'static [(&'static str, &'static str)] = &[("downloads", "array")];

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let message = ListLinksRequest { workspace_id: self.workspace_id.unwrap_or_default() };
        let send = |channel, request| async move { transfers(channel).list_links(request).await };
        let answer = context.link.call(message, ANSWER_TIME, Repeat::Always, send).await?;
        let rows: Vec<_> = answer.links.iter().take(ROWS).map(link_record).collect();
        let mut object = json!({ "downloads": rows });
        if let Some(older) = answer.links.len().checked_sub(ROWS).filter(|older| *older > 0) {
            object["older_not_shown"] = older.into();
        }
        Ok(Reply::Record(object))
    }
}

/// Ends a download or upload link; what is being fetched completes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RevokeDownload {
    /// Or an upload's id
    download_id: String,
}

impl Tool for RevokeDownload {
    const NAME: &'static str = "revoke_download";
    const TITLE: &'static str = "Revoke a link";
    const EFFECT: Effect = Effect::REMOVES;
    const RECORD: &'static [(&'static str, &'static str)] =
        &[("download_id", "string"), ("revoked", "boolean")];

    async fn call(self, context: &Context) -> Result<Reply, Failure> {
        let message = RevokeLinkRequest { principal: context.principal(), link_id: self.download_id };
        let send = |channel, request| async move { transfers(channel).revoke_link(request).await };
        let answer = context.link.call(message, ANSWER_TIME, Repeat::Always, send).await?;
        let mut object = json!({ "download_id": answer.link_id, "revoked": answer.revoked });
        if !answer.revoked {
            object["note"] = "it had ended already".into();
        }
        Ok(Reply::Record(object))
    }
}

/// A link as a record, without its secret.
pub(super) fn link_record(link: &Link) -> Map<String, Value> {
    let is_upload = link.kind() == Kind::Upload;
    let size = if is_upload { "max_bytes" } else { "size" };
    let object = json!({
        "download_id": link.link_id,
        "kind": if is_upload { "upload" } else { "download" },
        "workspace_id": link.workspace_id,
        "path": path::to_text(&link.path),
        "name": link.name,
        size: link.size_bytes,
        "sha256": filled(link.sha256.clone()),
        "created_at": time_text(link.create_time.as_ref()),
        "expires_at": time_text(link.expire_time.as_ref()),
    });
    let mut record = fields(object);
    if is_upload {
        record.remove("sha256");
    }
    record
}
