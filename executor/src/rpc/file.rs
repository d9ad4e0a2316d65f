//! FileService.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use runlet_proto::v1::file_service_server::FileService;
use runlet_proto::{CHUNK_BYTES, v1};
use tonic::{Request, Response, Status, Streaming};

use super::convert;
use crate::error::Error;
use crate::file::{
    Change, Edit, EditedFile, Entry, IfMatch, Kind, LineEnding, ListRequest, Listing, Moved, PatchedFile,
    Range, ReadFile, SearchRequest, SearchResult, WriteOptions, WrittenFile,
};
use crate::image::{Facts, MAX_EDGE, PreviewedFile};
use crate::machine::Machine;

/// Rows on a page when the caller names no number.
const DEFAULT_LIST_PAGE: usize = 500;
const DEFAULT_SEARCH_PAGE: usize = 100;

pub(super) struct Service(pub Arc<Machine>);

type Chunks = tokio_stream::Iter<std::vec::IntoIter<Result<v1::ReadFileResponse, Status>>>;

#[tonic::async_trait]
impl FileService for Service {
    type ReadFileStream = Chunks;

    async fn read_file(&self, request: Request<v1::ReadFileRequest>) -> Result<Response<Chunks>, Status> {
        let v1::ReadFileRequest { workspace_id, path, range } = request.into_inner();
        let range = match range {
            None => Range::Lines { start: 1, count: u64::MAX },
            Some(v1::read_file_request::Range::Lines(lines)) => {
                let v1::read_file_request::LineRange { start_line, line_count } = lines;
                Range::Lines { start: start_line, count: line_count }
            }
            Some(v1::read_file_request::Range::Bytes(bytes)) => {
                let v1::read_file_request::ByteRange { offset, length } = bytes;
                // None asked for means as many as there are, up to the limit.
                let length = if length == 0 { self.0.config.max_file_bytes } else { length };
                Range::Bytes { offset, length }
            }
        };
        let lease = self.0.workspaces.enter(&workspace_id).await?;
        let read = self.0.files.read(Arc::clone(&lease.root), path.to_vec(), range).await?;
        Ok(Response::new(tokio_stream::iter(read_responses(read))))
    }

    async fn write_file(
        &self,
        request: Request<Streaming<v1::WriteFileRequest>>,
    ) -> Result<Response<v1::WriteFileResponse>, Status> {
        let mut parts = request.into_inner();
        let first = parts.message().await?.and_then(|message| message.part);
        let Some(v1::write_file_request::Part::Header(header)) = first else {
            return Err(Error::invalid("header", "expected as the first message").into());
        };
        let v1::write_file_request::Header { principal: _, workspace_id, path, if_match, executable, length } =
            header;
        let content = collect(&mut parts, length, self.0.config.max_file_bytes, &path).await?;
        let options = WriteOptions { if_match: IfMatch::parse(&if_match)?, executable };
        let lease = self.0.workspaces.enter(&workspace_id).await?;
        let root = Arc::clone(&lease.root);
        let WrittenFile { path, sha256, size_bytes, created } =
            self.0.files.write(root, path.to_vec(), content, options).await?;
        Ok(Response::new(v1::WriteFileResponse { path: wire_path(&path), sha256, size_bytes, created }))
    }

    async fn edit_file(
        &self,
        request: Request<v1::EditFileRequest>,
    ) -> Result<Response<v1::EditFileResponse>, Status> {
        let v1::EditFileRequest { principal: _, workspace_id, path, edits, if_match } = request.into_inner();
        let edits = edits
            .into_iter()
            .map(|v1::edit_file_request::Edit { old_text, new_text, replace_all }| Edit {
                old_text: old_text.into_bytes(),
                new_text: new_text.into_bytes(),
                replace_all,
            })
            .collect();
        let if_match = IfMatch::parse(&if_match)?;
        let lease = self.0.workspaces.enter(&workspace_id).await?;
        let EditedFile { path, sha256, size_bytes, replacements, diff, diff_truncated } =
            self.0.files.edit(Arc::clone(&lease.root), path.to_vec(), edits, if_match).await?;
        Ok(Response::new(v1::EditFileResponse {
            path: wire_path(&path),
            sha256,
            size_bytes,
            replacements,
            diff,
            diff_truncated,
        }))
    }

    async fn apply_patch(
        &self,
        request: Request<v1::ApplyPatchRequest>,
    ) -> Result<Response<v1::ApplyPatchResponse>, Status> {
        let v1::ApplyPatchRequest { principal: _, workspace_id, patch } = request.into_inner();
        let lease = self.0.workspaces.enter(&workspace_id).await?;
        let files = self.0.files.patch(Arc::clone(&lease.root), patch.to_vec()).await?;
        Ok(Response::new(v1::ApplyPatchResponse { files: files.into_iter().map(wire_patched).collect() }))
    }

    async fn list_files(
        &self,
        request: Request<v1::ListFilesRequest>,
    ) -> Result<Response<v1::ListFilesResponse>, Status> {
        let v1::ListFilesRequest { workspace_id, path, glob, depth, include_ignored, page_size, page_token } =
            request.into_inner();
        let list = ListRequest {
            path: path.to_vec(),
            glob,
            depth: usize::try_from(depth).unwrap_or(usize::MAX),
            include_ignored,
            page_size: page_size_or(page_size, DEFAULT_LIST_PAGE),
            page_token,
        };
        let lease = self.0.workspaces.enter(&workspace_id).await?;
        let Listing { path, entries, next_page_token, incomplete } =
            self.0.files.list(Arc::clone(&lease.root), list).await?;
        Ok(Response::new(v1::ListFilesResponse {
            path: wire_path(&path),
            entries: entries.into_iter().map(wire_entry).collect(),
            next_page_token,
            incomplete,
        }))
    }

    async fn search_files(
        &self,
        request: Request<v1::SearchFilesRequest>,
    ) -> Result<Response<v1::SearchFilesResponse>, Status> {
        let v1::SearchFilesRequest {
            workspace_id,
            pattern,
            path,
            glob,
            literal,
            ignore_case,
            context,
            page_size,
            page_token,
        } = request.into_inner();
        let search = SearchRequest {
            pattern,
            path: path.to_vec(),
            glob,
            literal,
            ignore_case,
            context: usize::try_from(context).unwrap_or(usize::MAX),
            page_size: page_size_or(page_size, DEFAULT_SEARCH_PAGE),
            page_token,
        };
        let lease = self.0.workspaces.enter(&workspace_id).await?;
        let SearchResult { lines, next_page_token, searched_files, binary_files, incomplete } =
            self.0.files.search(Arc::clone(&lease.root), search).await?;
        let line = |line: crate::file::FoundLine| v1::search_files_response::Line {
            path: wire_path(&line.path),
            line_number: line.number,
            text: line.text,
            is_match: line.is_match,
        };
        Ok(Response::new(v1::SearchFilesResponse {
            lines: lines.into_iter().map(line).collect(),
            next_page_token,
            searched_files,
            binary_files,
            incomplete,
        }))
    }

    async fn preview_image(
        &self,
        request: Request<v1::PreviewImageRequest>,
    ) -> Result<Response<v1::PreviewImageResponse>, Status> {
        let v1::PreviewImageRequest { workspace_id, path, max_edge } = request.into_inner();
        let max_edge = if max_edge == 0 { MAX_EDGE } else { max_edge };
        let lease = self.0.workspaces.enter(&workspace_id).await?;
        let root = Arc::clone(&lease.root);
        let PreviewedFile { path, sha256, size_bytes, facts, unchanged, content } =
            self.0.images.preview(root, path.to_vec(), max_edge).await?;
        let Facts { format, width, height, orientation, frames, remarks, sent, sent_width, sent_height } =
            facts;
        Ok(Response::new(v1::PreviewImageResponse {
            path: wire_path(&path),
            size_bytes,
            sha256,
            format: format.name().to_owned(),
            width,
            height,
            orientation: u32::from(orientation),
            frames,
            remarks,
            unchanged,
            sent_format: sent.name().to_owned(),
            sent_mime_type: sent.mime_type().to_owned(),
            sent_width,
            sent_height,
            content,
        }))
    }
}

/// Gathers the content of a write, which must be as long as its header says.
async fn collect(
    parts: &mut Streaming<v1::WriteFileRequest>,
    length: u64,
    limit: u64,
    path: &[u8],
) -> Result<Vec<u8>, Status> {
    if length > limit {
        let path = String::from_utf8_lossy(path).into_owned();
        return Err(Error::FileTooLarge { path, bytes: length, limit }.into());
    }
    let expected = usize::try_from(length).unwrap_or(usize::MAX);
    let mut content = Vec::with_capacity(expected);
    while let Some(message) = parts.message().await? {
        let Some(v1::write_file_request::Part::Content(piece)) = message.part else {
            return Err(Error::invalid("content", "expected nothing but content after the header").into());
        };
        if content.len() + piece.len() > expected {
            return Err(
                Error::invalid("content", format!("longer than the {length} bytes of the header")).into()
            );
        }
        content.extend_from_slice(&piece);
    }
    if content.len() == expected {
        Ok(content)
    } else {
        Err(Error::invalid("content", format!("{} bytes came of {length}", content.len())).into())
    }
}

fn read_responses(read: ReadFile) -> Vec<Result<v1::ReadFileResponse, Status>> {
    let ReadFile {
        path,
        size_bytes,
        sha256,
        offset,
        start_line,
        line_count,
        total_lines,
        byte_order_mark,
        line_ending,
        mode,
        content,
    } = read;
    let header = v1::read_file_response::Header {
        path: wire_path(&path),
        size_bytes,
        sha256: sha256.unwrap_or_default(),
        offset,
        length: u64::try_from(content.len()).unwrap_or(u64::MAX),
        start_line,
        line_count,
        total_lines,
        byte_order_mark,
        line_ending: match line_ending {
            LineEnding::Lf => "lf",
            LineEnding::Crlf => "crlf",
            LineEnding::Mixed => "mixed",
            LineEnding::None => "none",
        }
        .to_owned(),
        mode,
    };
    let message = |part| Ok(v1::ReadFileResponse { part: Some(part) });
    let mut content = Bytes::from(content);
    let mut responses = vec![message(v1::read_file_response::Part::Header(header))];
    while !content.is_empty() {
        let piece = content.split_to(content.len().min(CHUNK_BYTES));
        responses.push(message(v1::read_file_response::Part::Content(piece)));
    }
    responses
}

fn wire_patched(file: PatchedFile) -> v1::apply_patch_response::File {
    let PatchedFile { path, change, from, added, removed, sha256, size_bytes, executable, moved } = file;
    let change = match change {
        Change::Created => v1::apply_patch_response::Change::Created,
        Change::Modified => v1::apply_patch_response::Change::Modified,
        Change::Deleted => v1::apply_patch_response::Change::Deleted,
        Change::Renamed => v1::apply_patch_response::Change::Renamed,
        Change::Copied => v1::apply_patch_response::Change::Copied,
    };
    let moved = moved.into_iter().map(|Moved { hunk, lines }| v1::apply_patch_response::Moved {
        hunk: u32::try_from(hunk).unwrap_or(u32::MAX),
        lines,
    });
    v1::apply_patch_response::File {
        path: wire_path(&path),
        change: change.into(),
        from_path: from.as_deref().map(wire_path).unwrap_or_default(),
        added_lines: added,
        removed_lines: removed,
        sha256: sha256.unwrap_or_default(),
        size_bytes,
        executable,
        moved_hunks: moved.collect(),
    }
}

fn wire_entry(entry: Entry) -> v1::list_files_response::Entry {
    let Entry { path, kind, size_bytes, modified, mode, link_target } = entry;
    let kind = match kind {
        Kind::File => v1::list_files_response::Kind::File,
        Kind::Directory => v1::list_files_response::Kind::Directory,
        Kind::Symlink => v1::list_files_response::Kind::Symlink,
        Kind::Other => v1::list_files_response::Kind::Other,
    };
    v1::list_files_response::Entry {
        path: path.into(),
        kind: kind.into(),
        size_bytes,
        modify_time_seconds: modified,
        mode,
        link_target: link_target.into(),
    }
}

fn wire_path(path: &Path) -> Bytes {
    Bytes::copy_from_slice(path.as_os_str().as_bytes())
}

fn page_size_or(given: u32, default: usize) -> usize {
    if given == 0 { default } else { convert::size(given) }
}
