//! Ids: a prefix that names the noun, and twelve characters of lower-case base32 from the system's random source.

use std::fmt;

use crate::error::{Error, Result};

/// Bytes of randomness in an id: 60 bits of them are used, twelve characters of five bits.
const RANDOM_BYTES: usize = 8;

/// Characters after the prefix.
const CHARACTERS: usize = 12;

/// RFC 4648 base32 in lower case, without padding.
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            /// A new id.
            pub fn generate() -> Result<Self> {
                Ok(Self(format!(concat!($prefix, "_{}"), random()?)))
            }

            /// The id in this text, if it has an id's form.
            pub fn parse(text: &str) -> Option<Self> {
                has_form(text, concat!($prefix, "_")).then(|| Self(text.to_owned()))
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id!(
    /// Id of a workspace, such as `ws_7f3k2m4qd4ra`.
    WorkspaceId,
    "ws"
);
id!(
    /// Id of a job, such as `job_7f3k2m4qd4ra`.
    JobId,
    "job"
);
id!(
    /// Id of a download, such as `dl_7f3k2m4qd4ra`.
    DownloadId,
    "dl"
);
id!(
    /// Id of an upload, such as `up_7f3k2m4qd4ra`.
    UploadId,
    "up"
);

id!(
    /// Id of a terminal, such as `term_7f3k2m4qd4ra`.
    TerminalId,
    "term"
);

id!(
    /// Id of a snapshot of a sandbox, such as `snap_7f3k2m4qd4ra`.
    SnapshotId,
    "snap"
);
id!(
    /// Id of a blueprint of sandboxes, such as `bp_7f3k2m4qd4ra`.
    BlueprintId,
    "bp"
);

fn random() -> Result<String> {
    let mut bytes = [0; RANDOM_BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::internal("reading random bytes", error.to_string()))?;
    let bits = u64::from_ne_bytes(bytes);
    let character = |index: usize| {
        let five = (bits >> (5 * index)) & 31;
        char::from(ALPHABET[usize::try_from(five).unwrap_or(0)])
    };
    Ok((0..CHARACTERS).map(character).collect())
}

fn has_form(text: &str, prefix: &str) -> bool {
    text.strip_prefix(prefix)
        .is_some_and(|rest| rest.len() == CHARACTERS && rest.bytes().all(|byte| ALPHABET.contains(&byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_id_has_the_form_of_an_id() {
        let id = JobId::generate().unwrap();
        assert_eq!(JobId::parse(id.as_str()), Some(id.clone()));
        assert_ne!(JobId::generate().unwrap(), id);
    }

    #[test]
    fn other_texts_are_no_ids() {
        for text in
            ["", "job_", "ws_aaaaaaaaaaaa", "job_AAAAAAAAAAAA", "job_aaaaaaaaaaaaa", "job_aaaaaaaaaaa1"]
        {
            assert_eq!(JobId::parse(text), None, "{text}");
        }
    }
}
