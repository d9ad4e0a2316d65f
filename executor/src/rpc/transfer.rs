//! TransferService.

use std::pin::Pin;
use std::sync::Arc;

use futures::stream::{self, Stream};
use runlet_proto::content::Content;
use runlet_proto::v1::receive_upload_request::{End, Header, Part};
use runlet_proto::v1::transfer_service_server::TransferService;
use runlet_proto::{CHUNK_BYTES, v1};
use tonic::{Request, Response, Status, Streaming};

use super::convert;
use crate::error::Error;
use crate::file::WrittenFile;
use crate::machine::Machine;
use crate::transfer::{Format, Incoming, Link, LinkKind, MadeDownload, MadeUpload, NewDownload, NewUpload};

pub(super) struct Service(pub Arc<Machine>);

type Pieces = Pin<Box<dyn Stream<Item = Result<v1::ReadDownloadResponse, Status>> + Send>>;

#[tonic::async_trait]
impl TransferService for Service {
    async fn create_download(
        &self,
        request: Request<v1::CreateDownloadRequest>,
    ) -> Result<Response<v1::CreateDownloadResponse>, Status> {
        let format = match request.get_ref().archive() {
            v1::create_download_request::Archive::Unspecified => None,
            v1::create_download_request::Archive::TarGz => Some(Format::TarGz),
            v1::create_download_request::Archive::Zip => Some(Format::Zip),
        };
        let v1::CreateDownloadRequest { principal, workspace_id, paths, lifetime, name, archive: _ } =
            request.into_inner();
        let new = NewDownload {
            principal,
            paths: paths.into_iter().map(Into::into).collect(),
            lifetime: convert::from_duration("expires_in_seconds", lifetime)?,
            name: convert::some(name),
            format,
        };
        let lease = self.0.workspaces.enter(&workspace_id).await?;
        let MadeDownload { link, secret_link, entries, notes } =
            self.0.transfers.create_download(lease, new).await?;
        let link = Some(wire_link(link));
        Ok(Response::new(v1::CreateDownloadResponse { link, secret_link, entries, notes }))
    }

    async fn create_upload(
        &self,
        request: Request<v1::CreateUploadRequest>,
    ) -> Result<Response<v1::CreateUploadResponse>, Status> {
        let v1::CreateUploadRequest { principal, workspace_id, path, max_bytes, lifetime } =
            request.into_inner();
        let lifetime = convert::from_duration("expires_in_seconds", lifetime)?;
        let new = NewUpload { principal, path: path.into(), max_bytes, lifetime };
        let lease = self.0.workspaces.enter(&workspace_id).await?;
        let MadeUpload { link, secret_link, replaces_bytes } =
            self.0.transfers.create_upload(lease, new).await?;
        let link = Some(wire_link(link));
        Ok(Response::new(v1::CreateUploadResponse { link, secret_link, replaces_bytes }))
    }

    async fn find_link(
        &self,
        request: Request<v1::FindLinkRequest>,
    ) -> Result<Response<v1::FindLinkResponse>, Status> {
        let kind = match request.get_ref().kind() {
            v1::link::Kind::Upload => LinkKind::Upload,
            v1::link::Kind::Download | v1::link::Kind::Unspecified => LinkKind::Download,
        };
        let v1::FindLinkRequest { secret_link, kind: _ } = request.into_inner();
        let link = self.0.transfers.find(&secret_link, kind)?;
        Ok(Response::new(v1::FindLinkResponse { link: Some(wire_link(link)) }))
    }

    type ReadDownloadStream = Pieces;

    async fn read_download(
        &self,
        request: Request<v1::ReadDownloadRequest>,
    ) -> Result<Response<Pieces>, Status> {
        let v1::ReadDownloadRequest { secret_link, offset, length } = request.into_inner();
        let (link, file) = self.0.transfers.open(&secret_link).await?;
        let size = link.size_bytes;
        if offset.checked_add(length).is_none_or(|end| end > size) {
            let problem = format!("{length} bytes from {offset} on lie past the end, which is at {size}");
            return Err(Error::invalid("offset", problem).into());
        }
        Ok(Response::new(Box::pin(pieces(Content::new(file, offset, length, CHUNK_BYTES)))))
    }

    async fn receive_upload(
        &self,
        request: Request<Streaming<v1::ReceiveUploadRequest>>,
    ) -> Result<Response<v1::ReceiveUploadResponse>, Status> {
        let mut parts = request.into_inner();
        let first = parts.message().await?.and_then(|message| message.part);
        let Some(Part::Header(Header { secret_link, length })) = first else {
            return Err(Error::invalid("header", "expected as the first message").into());
        };
        let workspace_id = self.0.transfers.workspace_of(&secret_link)?;
        let lease = self.0.workspaces.enter(&workspace_id).await?;
        let incoming = self.0.transfers.receive(lease, &secret_link, length)?;
        let WrittenFile { path, sha256, size_bytes, created } = take(incoming, &mut parts).await?;
        let path = path.into_os_string().into_encoded_bytes().into();
        Ok(Response::new(v1::ReceiveUploadResponse { path, size_bytes, sha256, created }))
    }

    async fn list_links(
        &self,
        request: Request<v1::ListLinksRequest>,
    ) -> Result<Response<v1::ListLinksResponse>, Status> {
        let v1::ListLinksRequest { workspace_id } = request.into_inner();
        let workspace = convert::some(workspace_id).map(|id| self.0.workspaces.get(&id)).transpose()?;
        let links = self.0.transfers.list(workspace.as_ref().map(|workspace| &workspace.id));
        Ok(Response::new(v1::ListLinksResponse { links: links.into_iter().map(wire_link).collect() }))
    }

    async fn revoke_link(
        &self,
        request: Request<v1::RevokeLinkRequest>,
    ) -> Result<Response<v1::RevokeLinkResponse>, Status> {
        let v1::RevokeLinkRequest { principal, link_id } = request.into_inner();
        let revoked = self.0.transfers.revoke(&link_id).await?;
        tracing::info!(principal, revoked, "revoked a link");
        Ok(Response::new(v1::RevokeLinkResponse { link_id, revoked }))
    }
}

/// Each piece is read when the one before it is on its way, so that a slow reader costs one.
fn pieces(content: Content) -> impl Stream<Item = Result<v1::ReadDownloadResponse, Status>> + Send {
    stream::try_unfold(content, |mut content| async move {
        let piece = content.next().await.map_err(|error| Error::internal("reading a snapshot", error))?;
        Ok(piece.map(|piece| (v1::ReadDownloadResponse { content: piece }, content)))
    })
}

async fn take(
    mut incoming: Incoming,
    parts: &mut Streaming<v1::ReceiveUploadRequest>,
) -> Result<WrittenFile, Status> {
    let interrupted = incoming.interrupted();
    tokio::pin!(interrupted);
    loop {
        let message = tokio::select! {
            message = parts.message() => message?,
            error = &mut interrupted => return Err(error.into()),
        };
        match message.and_then(|message| message.part) {
            Some(Part::Content(piece)) => incoming.write(piece).await?,
            Some(Part::End(End { length })) => return Ok(incoming.finish(length).await?),
            Some(Part::Header(_)) | None => return Err(incoming.cut_short().into()),
        }
    }
}

pub(super) fn wire_link(link: Link) -> v1::Link {
    let Link {
        id,
        workspace_id,
        principal: _,
        path,
        name,
        size_bytes,
        sha256,
        replaces: _,
        created,
        expires,
    } = link;
    let kind = match id.kind() {
        LinkKind::Download => v1::link::Kind::Download,
        LinkKind::Upload => v1::link::Kind::Upload,
    };
    v1::Link {
        link_id: id.as_str().to_owned(),
        kind: kind.into(),
        workspace_id: workspace_id.to_string(),
        path: path.into(),
        name,
        size_bytes,
        sha256,
        create_time: Some(convert::timestamp(created)),
        expire_time: Some(convert::timestamp(expires)),
    }
}
