//! Reading a download.

use std::fs::File;

use super::registry::Transfers;
use super::{Link, LinkKind};
use crate::error::{Error, Result};

impl Transfers {
    /// Opens a download. The file stays open, whatever becomes of the link.
    pub async fn open(&self, secret_link: &str) -> Result<(Link, File)> {
        let link = self.entry(secret_link, LinkKind::Download)?.link.clone();
        let path = self.directory.join(link.id.as_str());
        match tokio::fs::File::open(&path).await {
            Ok(file) => Ok((link, file.into_std().await)),
            // It has ended since.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(Error::LinkNotFound { link_id: String::new() })
            }
            Err(error) => Err(Error::internal("opening a snapshot", error)),
        }
    }
}
