//! Which names a request may be addressed to, and which web pages it may come from: the guard against DNS rebinding
//! and cross-site calls. It sees headers only.

use std::sync::Arc;

use http::{HeaderMap, Uri, header::HOST, header::ORIGIN, uri::Authority};

/// The names and origins that are let in.
#[derive(Debug, Clone)]
pub struct HostRules {
    hosts: Vec<String>,
    origins: Vec<OriginRule>,
    /// Where clients reach this server, without a slash at its end.
    public_url: Option<Arc<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct OriginRule {
    scheme: String,
    host: String,
    /// `None` for any.
    port: Option<u16>,
}

/// Why a request is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// No host, several, or one that is none.
    BadHost,
    /// A host that is not let in.
    Host(String),
    /// An origin that is not let in.
    Origin(String),
}

const LOOPBACK_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

impl HostRules {
    /// Rules that let in loopback names, the host and origin of `public_url`, and what is listed: `hosts` as names with
    /// or without a port (any port is let in), `origins` as `scheme://host[:port]`, where the port may be `*`.
    ///
    /// # Errors
    ///
    /// A sentence that names the setting and the entry that can't be read.
    pub fn new(public_url: Option<&str>, hosts: &[String], origins: &[String]) -> Result<Self, String> {
        let mut rules =
            Self { hosts: LOOPBACK_HOSTS.map(str::to_owned).to_vec(), origins: Vec::new(), public_url: None };
        for host in LOOPBACK_HOSTS {
            rules.origins.push(OriginRule { scheme: "http".to_owned(), host: host.to_owned(), port: None });
        }
        for host in hosts {
            let name = authority_host(host).ok_or_else(|| {
                format!("RUNLET_ALLOWED_HOSTS: '{host}' is no host name, such as mcp.example.com")
            })?;
            rules.hosts.push(name);
        }
        for origin in origins {
            let rule = OriginRule::parse(origin).ok_or_else(|| {
                format!("RUNLET_ALLOWED_ORIGINS: '{origin}' is no origin, such as https://app.example.com or http://localhost:*")
            })?;
            rules.origins.push(rule);
        }
        if let Some(url) = public_url {
            let rule = url.parse::<Uri>().ok().filter(|uri| {
                matches!(uri.scheme_str(), Some("http" | "https")) && !url.contains(['?', '#', '@'])
            });
            let rule = rule.and_then(|uri| {
                OriginRule::parse(&format!("{}://{}", uri.scheme_str()?, uri.authority()?.as_str()))
            });
            let rule = rule.ok_or_else(|| {
                format!("RUNLET_PUBLIC_URL: '{url}' is no URL, such as https://mcp.example.com")
            })?;
            rules.hosts.push(rule.host.clone());
            rules.origins.push(rule);
            rules.public_url = Some(Arc::from(url.trim_end_matches('/')));
        }
        rules.hosts.dedup();
        Ok(rules)
    }

    /// The names that are let in.
    pub(crate) fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// Checks every name the request gives for this server: `:authority` of HTTP/2, an absolute target, `Host`.
    pub(crate) fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Refused> {
        let mut given = Vec::new();
        given.extend(uri.authority().map(Authority::as_str));
        for value in headers.get_all(HOST) {
            given.push(value.to_str().map_err(|_| Refused::BadHost)?);
        }
        if given.is_empty() || headers.get_all(HOST).iter().count() > 1 {
            return Err(Refused::BadHost);
        }
        for name in given {
            let host = authority_host(name).ok_or(Refused::BadHost)?;
            if !self.hosts.contains(&host) {
                return Err(Refused::Host(host));
            }
        }
        Ok(())
    }

    /// Where the client of a request, whose host was let in, reaches this server: the public URL, or plain HTTP at the
    /// name that the request gives.
    pub(crate) fn base(&self, uri: &Uri, headers: &HeaderMap) -> Arc<str> {
        if let Some(url) = &self.public_url {
            return Arc::clone(url);
        }
        let host = headers.get(HOST).and_then(|value| value.to_str().ok());
        let host = uri.authority().map(Authority::as_str).or(host).unwrap_or("localhost");
        format!("http://{host}").into()
    }

    /// Checks where a browser says that the request comes from. Programs send no origin and pass.
    pub(crate) fn check_origin(&self, headers: &HeaderMap) -> Result<(), Refused> {
        for value in headers.get_all(ORIGIN) {
            let text = String::from_utf8_lossy(value.as_bytes());
            let known = OriginRule::parse(&text)
                .filter(|origin| origin.port.is_some())
                .is_some_and(|origin| self.origins.iter().any(|rule| rule.admits(&origin)));
            if !known {
                return Err(Refused::Origin(text.into_owned()));
            }
        }
        Ok(())
    }
}

impl OriginRule {
    /// Reads `scheme://host[:port]`. A port that is left out is the scheme's; `*` is any.
    fn parse(text: &str) -> Option<Self> {
        let (scheme, authority) = text.split_once("://")?;
        let scheme = scheme.to_ascii_lowercase();
        let default_port = match scheme.as_str() {
            "http" => 80,
            "https" => 443,
            _ => return None,
        };
        if let Some(host) = authority.strip_suffix(":*") {
            return Some(Self { host: authority_host(host)?, scheme, port: None });
        }
        let port = authority.parse::<Authority>().ok()?.port_u16().unwrap_or(default_port);
        Some(Self { host: authority_host(authority)?, scheme, port: Some(port) })
    }

    fn admits(&self, origin: &Self) -> bool {
        self.scheme == origin.scheme
            && self.host == origin.host
            && (self.port.is_none() || self.port == origin.port)
    }
}

/// The host of `host[:port]`, in lower case and without the dot that may end it.
fn authority_host(text: &str) -> Option<String> {
    let authority: Authority = text.parse().ok().filter(|_| !text.contains('@'))?;
    // `port_u16` is also none for a port that is no number.
    if authority.port_u16().is_none() && authority.as_str() != authority.host() {
        return None;
    }
    let host = authority.host().to_ascii_lowercase();
    let host = host.strip_suffix('.').unwrap_or(&host);
    (!host.is_empty()).then(|| host.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> HostRules {
        HostRules::new(
            Some("https://mcp.example.com/path"),
            &["Other.example.com:8443".to_owned()],
            &["https://app.example.com".to_owned(), "http://lan.example:*".to_owned()],
        )
        .unwrap()
    }

    fn host(value: &str) -> Result<(), Refused> {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, value.parse().unwrap());
        rules().check_host(&Uri::from_static("/mcp"), &headers)
    }

    #[test]
    fn http_07_every_spelling_of_a_name_that_is_let_in() {
        for name in [
            "mcp.example.com",
            "mcp.example.com:443",
            "MCP.Example.COM",
            "mcp.example.com.",
            "[::1]:8080",
            "localhost:1",
            "127.0.0.1",
            "other.example.com",
        ] {
            assert_eq!(host(name), Ok(()), "{name}");
        }
        assert_eq!(host("evil.com"), Err(Refused::Host("evil.com".to_owned())));
        assert_eq!(
            host("mcp.example.com.evil.com"),
            Err(Refused::Host("mcp.example.com.evil.com".to_owned()))
        );
        assert_eq!(host("mcp.example.com:x"), Err(Refused::BadHost));
        assert_eq!(host("user@mcp.example.com"), Err(Refused::BadHost));
    }

    #[test]
    fn http_07_no_host_two_hosts_and_authority() {
        let (rules, mut headers) = (rules(), HeaderMap::new());
        assert_eq!(rules.check_host(&Uri::from_static("/mcp"), &headers), Err(Refused::BadHost));
        assert_eq!(rules.check_host(&Uri::from_static("http://mcp.example.com/mcp"), &headers), Ok(()));
        headers.append(HOST, "evil.com".parse().unwrap());
        let mixed = rules.check_host(&Uri::from_static("http://mcp.example.com/mcp"), &headers);
        assert_eq!(mixed, Err(Refused::Host("evil.com".to_owned())));
        headers.insert(HOST, "localhost".parse().unwrap());
        headers.append(HOST, "localhost".parse().unwrap());
        assert_eq!(rules.check_host(&Uri::from_static("/mcp"), &headers), Err(Refused::BadHost));
    }

    #[test]
    fn links_begin_with_the_public_url_or_the_name_that_was_called() {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, "localhost:81".parse().unwrap());
        let target = Uri::from_static("/mcp");
        assert_eq!(&*rules().base(&target, &headers), "https://mcp.example.com/path");
        let plain = HostRules::new(None, &[], &[]).unwrap();
        assert_eq!(&*plain.base(&target, &headers), "http://localhost:81");
        let other = Uri::from_static("http://127.0.0.1:82/mcp");
        assert_eq!(&*plain.base(&other, &headers), "http://127.0.0.1:82");
        let slash = HostRules::new(Some("https://a.example/"), &[], &[]).unwrap();
        assert_eq!(&*slash.base(&target, &headers), "https://a.example");
        for bad in
            ["https://a.example/?x=1", "https://a.example/#x", "https://u@a.example", "ftp://a.example"]
        {
            let problem = HostRules::new(Some(bad), &[], &[]).unwrap_err();
            assert!(problem.starts_with("RUNLET_PUBLIC_URL: "), "{problem}");
        }
    }

    #[test]
    fn http_08_origins() {
        let check = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(ORIGIN, value.parse().unwrap());
            rules().check_origin(&headers).is_ok()
        };
        for good in [
            "https://app.example.com",
            "https://app.example.com:443",
            "http://lan.example:9",
            "http://localhost:3000",
            "http://127.0.0.1:8000",
            "https://mcp.example.com",
        ] {
            assert!(check(good), "{good}");
        }
        for bad in [
            "null",
            "https://evil.com",
            "http://app.example.com",
            "https://app.example.com:8443",
            "https://app.example.com.evil.com",
            "",
            "file://",
            "http://lan.example:*",
        ] {
            assert!(!check(bad), "{bad}");
        }
        assert_eq!(rules().check_origin(&HeaderMap::new()), Ok(()));
    }

    #[test]
    fn settings_that_cannot_be_read_are_named() {
        let problem = HostRules::new(None, &["a b".to_owned()], &[]).unwrap_err();
        assert!(problem.contains("RUNLET_ALLOWED_HOSTS") && problem.contains("a b"), "{problem}");
        let problem = HostRules::new(None, &[], &["app.example.com".to_owned()]).unwrap_err();
        assert!(problem.contains("RUNLET_ALLOWED_ORIGINS"), "{problem}");
        let problem = HostRules::new(Some("mcp.example.com"), &[], &[]).unwrap_err();
        assert!(problem.contains("RUNLET_PUBLIC_URL"), "{problem}");
    }
}
