//! The token that clients send: made at the first start and kept in a file that only its owner can read.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Bytes of randomness in a token.
const BYTES: usize = 32;

/// The token in `file`; made there if the file does not exist.
pub(crate) fn keep(file: &Path) -> io::Result<String> {
    match fs::read_to_string(file) {
        Ok(token) => return Ok(token.trim().to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    let token = data_encoding::BASE64URL_NOPAD.encode(&bytes);
    let mut created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    writeln!(created, "{token}")?;
    created.sync_all()?;
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_token_is_made_once_and_closed_to_others() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        let token = keep(&file).unwrap();
        assert_eq!((token.len(), keep(&file).unwrap()), (43, token));
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
