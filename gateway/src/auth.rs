//! Who a request comes from: tokens, the headers they arrive in, and the brake on guessing. It keeps digests, never
//! tokens, and knows nothing of MCP.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use http::{HeaderMap, HeaderName, header::AUTHORIZATION};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;

/// Who a token stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// Its name, in logs and in the executor's records.
    pub name: Arc<str>,
}

/// The tokens that are let in.
#[derive(Clone)]
pub struct Tokens(Vec<([u8; 32], Principal)>);

/// Fewest characters of a token.
pub const MIN_TOKEN_CHARS: usize = 32;

/// Words that show that a token is the placeholder of some example.
const PLACEHOLDERS: [&str; 9] = [
    "changeme",
    "change-me",
    "change_me",
    "example",
    "placeholder",
    "replace",
    "password",
    "yourtoken",
    "your-token",
];

impl Tokens {
    /// The one token of a deployment with a single principal, "default".
    ///
    /// # Errors
    ///
    /// A sentence that says why the token is too weak or can't be sent in a header. It doesn't repeat the token.
    pub fn single(token: &str) -> Result<Self, String> {
        let chars = token.chars().count();
        if chars < MIN_TOKEN_CHARS {
            return Err(format!(
                "the token has {chars} characters, expected {MIN_TOKEN_CHARS} or more, such as the output of \
                 `openssl rand -hex 32`"
            ));
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("the token holds characters other than printable ASCII without spaces".to_owned());
        }
        let lower = token.to_ascii_lowercase();
        let mut distinct: Vec<u8> = lower.bytes().collect();
        distinct.sort_unstable();
        distinct.dedup();
        if distinct.len() < 8 || PLACEHOLDERS.iter().any(|word| lower.contains(word)) {
            return Err("the token looks like a placeholder; make one with `openssl rand -hex 32`".to_owned());
        }
        let principal = Principal { name: Arc::from("default") };
        Ok(Self(vec![(Sha256::digest(token.as_bytes()).into(), principal)]))
    }

    /// The principal of this token. Takes the same time whichever it is, and whether or not it is known.
    pub(crate) fn find(&self, token: &[u8]) -> Option<Principal> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        let mut found = None;
        for (known, principal) in &self.0 {
            if bool::from(known.ct_eq(&digest)) {
                found = Some(principal.clone());
            }
        }
        found
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(_, principal)| principal)).finish()
    }
}

const SANDBOX_TOKEN: HeaderName = HeaderName::from_static("x-sandbox-token");
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Takes the token out of a request's headers, so that nothing behind sees it. `query` is looked into only when given.
/// `None` when there is no token, an empty one, a header twice, or two that differ.
pub(crate) fn take_token(headers: &mut HeaderMap, query: Option<&str>) -> Option<Vec<u8>> {
    let mut found: Vec<Vec<u8>> = Vec::new();
    let mut repeated = false;
    for name in [SANDBOX_TOKEN, API_KEY, AUTHORIZATION] {
        let mut values = headers.get_all(&name).iter();
        let first = values.next().map(|value| value.as_bytes().to_vec());
        repeated |= values.next().is_some();
        headers.remove(&name);
        match first {
            // Basic and other schemes belong to a proxy in front.
            Some(value) if name == AUTHORIZATION => found.extend(bearer(&value).map(<[u8]>::to_vec)),
            Some(value) => found.push(value.trim_ascii().to_vec()),
            None => {}
        }
    }
    found.extend(query.into_iter().flat_map(query_tokens));
    let token = found.pop()?;
    let same = found.iter().all(|other| bool::from(other.ct_eq(&token)));
    (same && !repeated && !token.is_empty()).then_some(token)
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked("bearer".len())?;
    if !scheme.eq_ignore_ascii_case(b"bearer") || !token.first().is_none_or(u8::is_ascii_whitespace) {
        return None;
    }
    Some(token.trim_ascii())
}

fn query_tokens(query: &str) -> impl Iterator<Item = Vec<u8>> {
    query.split('&').filter_map(|pair| pair.strip_prefix("api_key=")).map(percent_decoded)
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = (*first == b'%').then(|| tail.get(..2)).flatten();
        let escaped = escaped.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &tail[2..] } else { tail };
    }
    bytes
}

/// Counts wrong tokens by address, in a table of fixed size, and slows those who send many. Addresses that share an
/// entry are slowed together; a right token is never slowed.
pub(crate) struct Brake {
    entries: Mutex<Vec<Entry>>,
    hasher: RandomState,
    begin: Instant,
    waiting: Semaphore,
}

#[derive(Clone, Copy, Default)]
struct Entry {
    window: u64,
    failures: u32,
}

/// How a wrong token is answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// 401.
    Unauthorized,
    /// 429: too many are waiting for their 401 already.
    TooMany,
}

const ENTRIES: usize = 4096;
const WINDOW: Duration = Duration::from_secs(60);
const FREE_FAILURES: u32 = 10;
const DELAY: Duration = Duration::from_secs(1);
const MAX_WAITING: usize = 64;

impl Brake {
    pub(crate) fn new() -> Self {
        Self {
            entries: Mutex::new(vec![Entry::default(); ENTRIES]),
            hasher: RandomState::new(),
            begin: Instant::now(),
            waiting: Semaphore::new(MAX_WAITING),
        }
    }

    /// Counts a wrong token from this address and waits for as long as that costs.
    pub(crate) async fn wrong_token(&self, address: IpAddr) -> Refusal {
        if self.count(address) <= FREE_FAILURES {
            return Refusal::Unauthorized;
        }
        let Ok(_place) = self.waiting.try_acquire() else {
            return Refusal::TooMany;
        };
        tokio::time::sleep(DELAY).await;
        Refusal::Unauthorized
    }

    fn count(&self, address: IpAddr) -> u32 {
        // Whoever has one IPv6 address has the whole /64.
        let key = match address.to_canonical() {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits() >> 64,
        };
        let window = self.begin.elapsed().as_secs() / WINDOW.as_secs();
        let place = usize::try_from(self.hasher.hash_one(key) % ENTRIES as u64).unwrap_or_default();
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = &mut entries[place];
        if entry.window != window {
            *entry = Entry { window, failures: 0 };
        }
        entry.failures = entry.failures.saturating_add(1);
        entry.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn taken(pairs: &[(&'static str, &str)], query: Option<&str>) -> Option<String> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        let token = take_token(&mut headers, query).map(|token| String::from_utf8(token).unwrap());
        assert!(headers.is_empty(), "a token stayed in the headers");
        token
    }

    #[test]
    fn token_arrives_in_each_spelling() {
        for pair in [
            ("x-sandbox-token", "t"),
            ("x-api-key", "t"),
            ("authorization", "Bearer t"),
            ("authorization", "bearer  t"),
        ] {
            assert_eq!(taken(&[pair], None).as_deref(), Some("t"), "{pair:?}");
        }
        assert_eq!(taken(&[], Some("a=b&api_key=%74")).as_deref(), Some("t"));
        assert_eq!(
            taken(&[("authorization", "Basic dTpw"), ("x-sandbox-token", "t")], None).as_deref(),
            Some("t")
        );
        assert_eq!(
            taken(&[("authorization", "Bearer t"), ("x-sandbox-token", "t")], None).as_deref(),
            Some("t")
        );
    }

    #[test]
    fn doubtful_tokens_are_none() {
        assert_eq!(taken(&[], None), None);
        assert_eq!(taken(&[("x-sandbox-token", "")], None), None);
        assert_eq!(taken(&[("authorization", "Bearer ")], None), None);
        assert_eq!(taken(&[("x-sandbox-token", "t"), ("x-sandbox-token", "t")], None), None);
        assert_eq!(taken(&[("x-sandbox-token", "t"), ("x-api-key", "u")], None), None);
        assert_eq!(taken(&[("x-sandbox-token", "t"), ("x-api-key", "")], None), None);
        assert_eq!(taken(&[("authorization", "Bearert")], None), None);
    }

    #[test]
    fn weak_tokens_are_refused_without_being_repeated() {
        for weak in [
            "",
            "short",
            "changeme-changeme-changeme-changeme",
            &"a".repeat(40),
            "0123456789abcdef 0123456789abcdef",
        ] {
            let problem = Tokens::single(weak).err().unwrap();
            assert!(weak.is_empty() || !problem.contains(weak), "{problem}");
        }
        assert!(Tokens::single(TOKEN).is_ok());
    }

    #[test]
    fn only_the_token_is_found() {
        let tokens = Tokens::single(TOKEN).unwrap();
        assert_eq!(tokens.find(TOKEN.as_bytes()).unwrap().name.as_ref(), "default");
        assert_eq!(tokens.find(&TOKEN.as_bytes()[..31]), None);
        assert_eq!(tokens.find(b""), None);
    }

    #[tokio::test(start_paused = true)]
    async fn many_wrong_tokens_are_slowed_and_then_refused() {
        let brake = Arc::new(Brake::new());
        let address: IpAddr = "192.0.2.1".parse().unwrap();
        let start = tokio::time::Instant::now();
        for _ in 0..FREE_FAILURES {
            assert_eq!(brake.wrong_token(address).await, Refusal::Unauthorized);
        }
        assert!(start.elapsed() < DELAY);
        assert_eq!(brake.wrong_token(address).await, Refusal::Unauthorized);
        assert!(start.elapsed() >= DELAY);
        let crowd = (0..MAX_WAITING + 5).map(|_| brake.wrong_token(address));
        let answers = futures::future::join_all(crowd).await;
        assert_eq!(answers.iter().filter(|answer| **answer == Refusal::TooMany).count(), 5);
        assert_eq!(brake.count("192.0.2.77".parse().unwrap()), 1);
    }
}
