//! The token that clients send: made at the first start and kept in a file that only its owner can read.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Bytes of randomness in a token.
const BYTES: usize = 32;

/// Name of the file below the data root.
const FILE: &str = "token";

/// A token and where it is from.
pub(crate) struct Found {
    pub(crate) token: String,
    pub(crate) source: String,
}

/// The file in which the token is kept.
pub(crate) fn file(root: &Path) -> PathBuf {
    root.join(FILE)
}

/// The token that a client sends: from the file that is named, from the environment, or from the file in which it is kept.
/// An error is a sentence that says what to do.
pub(crate) fn find(named: Option<&Path>, root: &Path) -> Result<Found, String> {
    let given = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let (file, source) = match (named, given("SANDBOX_TOKEN"), given("SANDBOX_TOKEN_FILE")) {
        (Some(file), ..) => (file.to_owned(), format!("--token-file {}", file.display())),
        (None, Some(token), _) => {
            let token = token.into_string().unwrap_or_default().trim().to_owned();
            return Ok(Found { token, source: "SANDBOX_TOKEN".to_owned() });
        }
        (None, None, Some(path)) => {
            let source = format!("SANDBOX_TOKEN_FILE {}", path.display());
            (PathBuf::from(path), source)
        }
        (None, None, None) => (self::file(root), self::file(root).display().to_string()),
    };
    match fs::read_to_string(&file) {
        Ok(token) if !token.trim().is_empty() => Ok(Found { token: token.trim().to_owned(), source }),
        Ok(_) => Err(format!("{source}: the file is empty; expected the gateway's token")),
        Err(error) => Err(format!(
            "{source}: no token to be had ({error}); name the file that holds the gateway's token with --token-file, or set \
             SANDBOX_TOKEN"
        )),
    }
}

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
