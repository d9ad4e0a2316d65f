//! Repositories behind HTTPS, served by git's own `http-backend`. What stands before the repository's name in a path says
//! how the server behaves: `/open/r.git`, `/private/r.git` and so on, see [`GitServer::url`].

use std::convert::Infallible;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Bytes that `/stops/` sends of what is fetched.
pub const STOP_AFTER: usize = 1 << 20;

/// How long `/slow/` thinks before each answer to a POST. A clone makes two: it asks for the branches, and fetches.
pub const SLOW: Duration = Duration::from_secs(2);

/// The server. It ends with this value.
#[derive(Debug)]
pub struct GitServer {
    directory: tempfile::TempDir,
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for GitServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A request that came.
#[derive(Debug, Clone)]
pub struct Seen {
    /// What was asked for.
    pub path: String,
    /// Name and port that the client called the server by.
    pub host: String,
    /// The credential, as `user:password`.
    pub credential: Option<String>,
}

struct Site {
    repositories: PathBuf,
    seen: Arc<Mutex<Vec<Seen>>>,
    address: SocketAddr,
    login: String,
    plain: String,
}

impl GitServer {
    /// Starts a server. `login` is the `user:password` that `/private/` asks for; `plain` is where `/to-plain/` leads.
    pub async fn start(login: &str, plain: &str) -> Self {
        let directory = tempfile::Builder::new().prefix("runlet-git-").tempdir().unwrap();
        open_to_all(directory.path());
        let repositories = directory.path().join("repositories");
        fs::create_dir(&repositories).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(identity(&directory.path().join("ca.pem"))));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let site = Arc::new(Site {
            repositories,
            seen: Arc::clone(&seen),
            address,
            login: login.to_owned(),
            plain: plain.to_owned(),
        });
        let task = tokio::spawn(async move {
            while let Ok((stream, _peer)) = listener.accept().await {
                let (acceptor, site) = (acceptor.clone(), Arc::clone(&site));
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request| {
                        let site = Arc::clone(&site);
                        async move { Ok::<_, Infallible>(site.answer(request).await) }
                    });
                    let _ended = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self { directory, address, seen, task }
    }

    /// URL of a repository. `manner` is `open`; `private`, which asks for the login; `stops`, which falls silent after
    /// [`STOP_AFTER`] bytes; `slow`, which takes [`SLOW`]; `to-plain`, which leads to the plain address; `to-other`, which
    /// leads to the private one under another host name.
    pub fn url(&self, manner: &str, repository: &str) -> String {
        format!("https://localhost:{}/{manner}/{repository}", self.address.port())
    }

    /// File of the authority that signed the server's certificate.
    pub fn ca_file(&self) -> String {
        self.directory.path().join("ca.pem").to_str().unwrap().to_owned()
    }

    /// What came so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Makes a bare repository by running `script` in a new repository whose branch is `main`. Returns what the script
    /// printed.
    pub async fn repository(&self, name: &str, script: &str) -> String {
        let work = self.directory.path().join(format!("{name}.work"));
        let bare = self.directory.path().join("repositories").join(name);
        fs::create_dir(&work).unwrap();
        git(&work, "git init -q -b main .").await;
        let printed = git(&work, script).await;
        let copy =
            format!("git clone -q --mirror . '{0}' && git -C '{0}' remote remove origin", bare.display());
        git(&work, &copy).await;
        let head = git(&work, "git symbolic-ref HEAD").await;
        git(&bare, &format!("git symbolic-ref HEAD {head}")).await;
        printed
    }
}

/// Lets every user pass through a directory, so that jobs can read what lies in it.
fn open_to_all(directory: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A certificate for localhost and 127.0.0.1, signed by an authority whose certificate is written to `ca_file`.
pub fn identity(ca_file: &Path) -> ServerConfig {
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    let ca = params.self_signed(&key).unwrap();
    fs::write(ca_file, ca.pem()).unwrap();
    let issuer = rcgen::Issuer::new(params, key);
    let key = rcgen::KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let certificate = rcgen::CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap()
}

async fn git(directory: &Path, script: &str) -> String {
    let output = tokio::process::Command::new("bash")
        .args(["-ec", script])
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .envs([("GIT_AUTHOR_NAME", "A"), ("GIT_COMMITTER_NAME", "A")])
        .envs([("GIT_AUTHOR_EMAIL", "a@example.com"), ("GIT_COMMITTER_EMAIL", "a@example.com")])
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

impl Site {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        let credential = credential(request.headers());
        let host = request.headers()[header::HOST].to_str().unwrap().to_owned();
        self.seen.lock().unwrap().push(Seen { path: path.clone(), host, credential: credential.clone() });
        let Some((manner, rest)) = path.trim_start_matches('/').split_once('/') else {
            return plain(StatusCode::NOT_FOUND);
        };
        let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
        match manner {
            "private" if credential.as_deref() != Some(self.login.as_str()) => {
                let mut response = plain(StatusCode::UNAUTHORIZED);
                let challenge = http::HeaderValue::from_static("Basic realm=\"test\"");
                response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
                response
            }
            "to-plain" => redirect(&format!("{}/open/{rest}{query}", self.plain)),
            "to-other" => {
                redirect(&format!("https://127.0.0.1:{}/private/{rest}{query}", self.address.port()))
            }
            "open" | "private" => self.backend(request, rest).await,
            "slow" => {
                if is_fetch(&request) {
                    tokio::time::sleep(SLOW).await;
                }
                self.backend(request, rest).await
            }
            "stops" => {
                let fetches = is_fetch(&request);
                let response = self.backend(request, rest).await;
                if fetches { stopping(response).await } else { response }
            }
            _ => plain(StatusCode::NOT_FOUND),
        }
    }

    /// Runs `git http-backend` as a CGI program.
    async fn backend(&self, request: Request<Incoming>, path: &str) -> Response<Body> {
        let text = |name: &str| {
            request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        let mut command = tokio::process::Command::new("git");
        command
            .args(["-c", "safe.directory=*", "http-backend"])
            .env("GIT_PROJECT_ROOT", &self.repositories)
            .env("GIT_HTTP_EXPORT_ALL", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("PATH_INFO", format!("/{path}"))
            .env("QUERY_STRING", request.uri().query().unwrap_or_default())
            .env("REQUEST_METHOD", request.method().as_str())
            .env("CONTENT_TYPE", text("content-type"))
            .env("HTTP_CONTENT_ENCODING", text("content-encoding"))
            .env("GIT_PROTOCOL", text("git-protocol"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let writing = tokio::spawn(async move {
            let _closed_early = stdin.write_all(&body).await;
        });
        let output = child.wait_with_output().await.unwrap();
        writing.await.unwrap();
        parse(output.stdout.into())
    }
}

fn is_fetch(request: &Request<Incoming>) -> bool {
    request.method() == Method::POST
}

/// The answer of a CGI program.
fn parse(output: Bytes) -> Response<Body> {
    let end = output.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let mut response = Response::new(Full::new(output.slice(end + 4..)).boxed_unsync());
    for line in String::from_utf8_lossy(&output[..end]).lines() {
        let (name, value) = line.split_once(": ").unwrap();
        if name == "Status" {
            *response.status_mut() = value[..3].parse().unwrap();
        } else {
            let name: http::HeaderName = name.parse().unwrap();
            response.headers_mut().insert(name, value.parse().unwrap());
        }
    }
    response
}

/// The first bytes of an answer, and then silence.
async fn stopping(response: Response<Body>) -> Response<Body> {
    let (parts, body) = response.into_parts();
    let whole = body.collect().await.unwrap_or_else(|never| match never {}).to_bytes();
    if whole.len() <= STOP_AFTER {
        return Response::from_parts(parts, Full::new(whole).boxed_unsync());
    }
    let first = stream::iter([Ok(Frame::data(whole.slice(..STOP_AFTER)))]).chain(stream::pending());
    Response::from_parts(parts, StreamBody::new(first).boxed_unsync())
}

fn plain(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Full::default().boxed_unsync());
    *response.status_mut() = status;
    response
}

fn redirect(target: &str) -> Response<Body> {
    let mut response = plain(StatusCode::FOUND);
    response.headers_mut().insert(header::LOCATION, target.parse().unwrap());
    response
}

fn credential(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Basic ")?;
    String::from_utf8(BASE64.decode(value).ok()?).ok()
}
