//! Cloning over HTTPS, and the state of a working tree. git runs as the jobs' user with an environment of its own in
//! which it can't ask, run a hook, or speak another protocol. A credential reaches it through a file in memory, for the
//! repository's host alone, and stays nowhere.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::environment::{find_program, path_variable};
use super::{Git, Paths};
use crate::error::{Error, Result};
use crate::process::capture::{Captured, capture, capture_until};
use crate::process::spawn::{ATTACHMENT_PATH, Attachment, Command, Spawner};

/// Longest URL accepted, in bytes.
const MAX_URL: usize = 2048;

/// Longest branch or tag accepted, in bytes.
const MAX_REFERENCE: usize = 255;

/// Longest time for asking a working tree for its state.
const STATUS_LIMIT: Duration = Duration::from_secs(5);

/// The user name that goes with a credential that is only a token. The hosts that ask for a token take any name.
const TOKEN_USER: &str = "x-access-token";

/// A repository to clone, as given.
#[derive(Debug, Clone)]
pub struct GitSource {
    /// HTTPS URL without user and password.
    pub url: String,
    /// Branch, tag or full commit id.
    pub reference: Option<String>,
    /// Number of commits; `None` for all.
    pub depth: Option<u32>,
    /// `user:password` or a token.
    pub credential: Option<Credential>,
}

/// A secret. It is shown nowhere.
#[derive(Clone)]
pub struct Credential(pub String);

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credential(…)")
    }
}

/// State of a working tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitStatus {
    /// Branch; empty when detached.
    pub branch: String,
    /// Commit; empty where there is none.
    pub commit: String,
    /// Paths that are changed, staged or untracked.
    pub changed_paths: u32,
}

/// A source that was found to be sound.
#[derive(Debug)]
pub(super) struct Checked {
    source: GitSource,
    /// `host` or `host:port`.
    host: String,
}

/// What a clone brought.
pub(super) struct Cloned {
    pub git: Git,
    pub notes: Vec<String>,
}

impl Checked {
    /// Refuses what git could take for an option, another protocol or a path.
    pub(super) fn new(source: GitSource) -> Result<Self> {
        let host = check_url(&source.url)?.to_owned();
        if let Some(reference) = &source.reference {
            let sound = !reference.is_empty()
                && reference.len() <= MAX_REFERENCE
                && !reference.starts_with('-')
                && !reference.contains("..")
                && !reference.chars().any(|c| c.is_control() || " ~^:?*[\\".contains(c));
            if !sound {
                return Err(Error::invalid(
                    "git_ref",
                    "expected the name of a branch or tag, or a full commit id of 40 hexadecimal digits",
                ));
            }
        }
        if source.depth == Some(0) {
            return Err(Error::invalid(
                "git_depth",
                "expected 1 or more; leave it out for the whole history",
            ));
        }
        if source.credential.as_ref().is_some_and(|c| c.0.is_empty() || c.0.chars().any(char::is_control)) {
            return Err(Error::invalid(
                "git_credential",
                "expected 'user:password' or a token, without line breaks",
            ));
        }
        Ok(Self { source, host })
    }
}

/// The host of a sound URL. Messages never repeat the URL: it may hold a password.
fn check_url(url: &str) -> Result<&str> {
    let invalid = |problem: &str| Error::invalid("git_url", problem);
    let rest = match url.get(..8) {
        Some(scheme) if scheme.eq_ignore_ascii_case("https://") => &url[8..],
        _ => {
            return Err(invalid(
                "only https:// URLs can be cloned; clone other repositories with git in a job",
            ));
        }
    };
    if url.len() > MAX_URL || url.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(invalid(
            "the URL holds white space or control characters, or is longer than 2,048 bytes",
        ));
    }
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if host.contains('@') {
        return Err(invalid(
            "the URL holds a user or password; pass those as git_credential ('user:password' or a token)",
        ));
    }
    if host.is_empty() || host.starts_with(['-', ':', '.']) || host.contains(['\\', '%']) {
        return Err(invalid("the URL has no host"));
    }
    if rest.len() == host.len() {
        return Err(invalid("the URL names a host but no repository"));
    }
    Ok(host)
}

/// Clones repositories.
pub(super) struct Cloner<'a> {
    pub spawner: &'a Spawner,
    pub search_path: &'a [PathBuf],
    pub env: &'a BTreeMap<String, String>,
    pub limit: Duration,
    /// Ends the clone when nobody wants it any more. Nothing of it runs once that is answered.
    pub abandoned: &'a CancellationToken,
}

impl Cloner<'_> {
    /// Clones into the empty work directory.
    pub(super) async fn clone_into(&self, paths: &Paths, checked: Checked) -> Result<Cloned> {
        let run = Run {
            git: git_program(self.search_path)?,
            cloner: self,
            paths,
            checked: &checked,
            deadline: Instant::now() + self.limit,
        };
        let Checked { source, .. } = &checked;
        match source.reference.as_deref().filter(|reference| is_commit_id(reference)) {
            Some(commit) => run.fetch_commit(commit).await?,
            None => run.clone().await?,
        }
        let commit = run.read(&["rev-parse", "--verify", "--quiet", "HEAD"]).await?.unwrap_or_default();
        let reference = run.read(&["symbolic-ref", "--short", "--quiet", "HEAD"]).await?;
        let mut notes = Vec::new();
        if commit.is_empty() {
            notes.push(
                "the repository has no commit at its default branch; the work directory is empty".to_owned(),
            );
        }
        if paths.work.join(".gitmodules").exists() {
            notes.push(
                "submodules not fetched; run `git submodule update --init` in a job if you need them"
                    .to_owned(),
            );
        }
        let pointers =
            run.read(&["ls-files", ":(attr:filter=lfs)"]).await?.map_or(0, |list| list.lines().count());
        if pointers > 0 {
            notes.push(format!(
                "{pointers} LFS file{} not fetched; run `git lfs pull` in a job if git-lfs is installed",
                if pointers == 1 { "" } else { "s" }
            ));
        }
        let tag = || source.reference.clone().filter(|reference| !is_commit_id(reference));
        let git =
            Git { url: source.url.clone(), reference: reference.or_else(tag).unwrap_or_default(), commit };
        Ok(Cloned { git, notes })
    }
}

struct Run<'a> {
    git: PathBuf,
    cloner: &'a Cloner<'a>,
    paths: &'a Paths,
    checked: &'a Checked,
    deadline: Instant,
}

impl Run<'_> {
    async fn clone(&self) -> Result<()> {
        let source = &self.checked.source;
        let depth = source.depth.map(|depth| depth.to_string());
        let mut arguments = vec!["clone", "--quiet", "--no-recurse-submodules", "--template="];
        if let Some(depth) = &depth {
            arguments.extend(["--depth", depth]);
        }
        if let Some(reference) = &source.reference {
            arguments.extend(["--branch", reference]);
        }
        arguments.extend(["--", &source.url, "."]);
        self.must(&arguments).await
    }

    /// Fetches one commit. A server that gives out only what its branches name gets asked for all of them.
    async fn fetch_commit(&self, commit: &str) -> Result<()> {
        let source = &self.checked.source;
        self.must(&["init", "--quiet", "--template=", "."]).await?;
        self.must(&["remote", "add", "--", "origin", &source.url]).await?;
        let depth = source.depth.map(|depth| depth.to_string());
        let mut arguments = vec!["fetch", "--quiet", "--no-recurse-submodules"];
        if let Some(depth) = &depth {
            arguments.extend(["--depth", depth]);
        }
        arguments.extend(["--", "origin", commit]);
        if !self.run(&arguments).await?.succeeded() {
            self.must(&["fetch", "--quiet", "--no-recurse-submodules", "--", "origin"]).await?;
        }
        self.must(&["checkout", "--quiet", "--detach", commit, "--"]).await
    }

    async fn must(&self, arguments: &[&str]) -> Result<()> {
        let captured = self.run(arguments).await?;
        let host = self.checked.host.clone();
        if captured.succeeded() {
            return Ok(());
        }
        if captured.exit.is_none() {
            return Err(Error::CloneTimedOut { host, seconds: self.cloner.limit.as_secs() });
        }
        let said = self.without_secret(&String::from_utf8_lossy(&captured.stderr));
        let refused = [
            "could not read Username",
            "could not read Password",
            "Authentication failed",
            "error: 401",
            "error: 403",
        ];
        if refused.iter().any(|sign| said.contains(sign)) {
            return Err(Error::CloneAuthentication { host });
        }
        Err(Error::CloneFailed { host, problem: summary(&said) })
    }

    /// What a command prints, without the final line end; `None` when it fails.
    async fn read(&self, arguments: &[&str]) -> Result<Option<String>> {
        let captured = self.run(arguments).await?;
        Ok(captured.succeeded().then(|| String::from_utf8_lossy(&captured.stdout).trim_end().to_owned()))
    }

    async fn run(&self, arguments: &[&str]) -> Result<Captured> {
        let credential = self.checked.source.credential.as_ref();
        // The helper is named for the host, so that a redirect elsewhere does not get the secret.
        let helper = format!("credential.https://{}.helper=!cat {ATTACHMENT_PATH} #", self.checked.host);
        let mut all = vec!["-c", "core.hooksPath=/dev/null", "-c", "credential.helper="];
        if credential.is_some() {
            all.extend(["-c", &helper]);
        }
        all.extend([
            "-c",
            "transfer.fsckObjects=true",
            "-c",
            "http.lowSpeedLimit=1",
            "-c",
            "http.lowSpeedTime=60",
        ]);
        all.extend(arguments);
        let mut command = command(&self.git, &all, self.paths, self.cloner.search_path, self.cloner.env)?;
        command.attachment = credential.map(|credential| Attachment::Bytes(credential_file(&credential.0)));
        let over = async {
            tokio::select! {
                () = tokio::time::sleep_until(self.deadline) => {}
                () = self.cloner.abandoned.cancelled() => {}
            }
        };
        capture_until(self.cloner.spawner, command, over).await
    }

    /// git prints no credential that it was not given in a URL; this makes sure of it.
    fn without_secret(&self, text: &str) -> String {
        let Some(Credential(secret)) = &self.checked.source.credential else { return text.to_owned() };
        let password = secret.split_once(':').map_or(secret.as_str(), |(_user, password)| password);
        text.replace(secret.as_str(), "…").replace(password, "…")
    }
}

/// git's credential format, see git-credential(1).
fn credential_file(credential: &str) -> Vec<u8> {
    let (user, password) = credential.split_once(':').unwrap_or((TOKEN_USER, credential));
    format!("username={user}\npassword={password}\n").into_bytes()
}

/// The last lines that say what went wrong, at most 600 characters.
fn summary(said: &str) -> String {
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let start = lines.len().saturating_sub(4);
    let text = lines[start..].join("; ");
    if text.is_empty() { "git gave no reason".to_owned() } else { text.chars().take(600).collect() }
}

fn is_commit_id(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn git_program(search_path: &[PathBuf]) -> Result<PathBuf> {
    find_program(search_path, "git").ok_or(Error::ProgramMissing { program: "git" })
}

fn command(
    git: &Path,
    arguments: &[&str],
    paths: &Paths,
    search_path: &[PathBuf],
    extra: &BTreeMap<String, String>,
) -> Result<Command> {
    let mut env: BTreeMap<String, String> = [
        ("PATH", path_variable(search_path).as_str()),
        ("HOME", &paths.home.to_string_lossy()),
        ("TMPDIR", &paths.tmp.to_string_lossy()),
        ("LC_CTYPE", "C.UTF-8"),
        ("GIT_CEILING_DIRECTORIES", &paths.root.to_string_lossy()),
        ("GIT_ALLOW_PROTOCOL", "https"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_ASKPASS", "/bin/false"),
        ("SSH_ASKPASS", "/bin/false"),
        ("GIT_SSH_COMMAND", "/bin/false"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_LFS_SKIP_SMUDGE", "1"),
        ("GIT_PAGER", "cat"),
        ("GIT_OPTIONAL_LOCKS", "0"),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .collect();
    env.extend(extra.iter().map(|(name, value)| (name.clone(), value.clone())));
    let argv = std::iter::once(git.as_os_str().as_encoded_bytes().to_vec())
        .chain(arguments.iter().map(|argument| argument.as_bytes().to_vec()))
        .collect();
    Ok(Command { argv, attachment: None, env, cwd: paths.work.clone(), stdin: false, separate_stderr: true })
}

/// State of the working tree in a workspace. `None` where there is none, or git is missing or too slow.
pub(super) async fn status(
    spawner: &Spawner,
    search_path: &[PathBuf],
    paths: &Paths,
) -> Result<Option<GitStatus>> {
    let Ok(git) = git_program(search_path) else { return Ok(None) };
    let arguments = [
        "-c",
        "core.fsmonitor=false",
        "-c",
        "core.hooksPath=/dev/null",
        "status",
        "--porcelain=v2",
        "--branch",
        "-z",
    ];
    let command = command(&git, &arguments, paths, search_path, &BTreeMap::new())?;
    let captured = capture(spawner, command, STATUS_LIMIT).await?;
    Ok(captured.succeeded().then(|| parse_status(&captured.stdout)))
}

/// Reads `git status --porcelain=v2 --branch -z`: headers start with `#`; a renamed path takes two records, of which the
/// second is the old path.
fn parse_status(output: &[u8]) -> GitStatus {
    let text = String::from_utf8_lossy(output);
    let mut status = GitStatus { branch: String::new(), commit: String::new(), changed_paths: 0 };
    let mut records = text.split('\0').filter(|record| !record.is_empty());
    while let Some(record) = records.next() {
        if let Some(commit) = record.strip_prefix("# branch.oid ") {
            status.commit = commit.strip_prefix("(initial)").map_or(commit, |_| "").to_owned();
        } else if let Some(branch) = record.strip_prefix("# branch.head ") {
            status.branch = branch.strip_prefix("(detached)").map_or(branch, |_| "").to_owned();
        } else if !record.starts_with('#') {
            status.changed_paths += 1;
            if record.starts_with("2 ") {
                records.next();
            }
        }
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(url: &str) -> GitSource {
        GitSource { url: url.to_owned(), reference: None, depth: None, credential: None }
    }

    #[test]
    fn git_04_06_only_https_urls_of_a_host_are_taken() {
        for url in [
            "ext::sh -c \"touch /tmp/pwned\"",
            "EXT::sh",
            "fd::17",
            "file:///srv/other.git",
            "/srv/other.git",
            "../../other",
            "http://host/r.git",
            "ssh://new-host/r",
            "git@host:r.git",
            "--upload-pack=touch /tmp/pwned",
            "https://",
            "https:///r.git",
            "https://-oProxyCommand=x/r.git",
            "https://host",
            "https://host/r\n.git",
        ] {
            let error = Checked::new(source(url)).unwrap_err().to_string();
            assert!(error.starts_with("git_url: "), "{url}: {error}");
        }
        assert_eq!(Checked::new(source("https://host:8443/a/r.git")).unwrap().host, "host:8443");
    }

    #[test]
    fn git_02_a_password_in_the_url_is_refused_and_not_repeated() {
        for url in
            ["https://u:CANARY@127.0.0.1:1/r.git", "https://CANARY@host/r.git", "https://u:p%40ss@host/r"]
        {
            let error = Checked::new(source(url)).unwrap_err().to_string();
            assert!(
                error.contains("git_credential") && !error.contains("CANARY") && !error.contains("ss@"),
                "{error}"
            );
        }
        let with_credential =
            GitSource { credential: Some(Credential("CANARY".into())), ..source("https://h/r") };
        assert!(!format!("{:?}", Checked::new(with_credential)).contains("CANARY"));
    }

    #[test]
    fn references_can_be_no_options() {
        for reference in ["--upload-pack=x", "a..b", "a b", "", "a:b", "x\ny"] {
            let given = GitSource { reference: Some(reference.to_owned()), ..source("https://h/r") };
            assert!(Checked::new(given).is_err(), "{reference:?}");
        }
    }

    #[test]
    fn a_status_is_read_with_renames() {
        let output =
            b"# branch.oid abc\0# branch.head main\x001 .M N... x y\x002 R. N... new\0old\0? untracked\0";
        let status = parse_status(output);
        assert_eq!(status, GitStatus { branch: "main".into(), commit: "abc".into(), changed_paths: 3 });
        assert_eq!(parse_status(b"# branch.oid (initial)\0# branch.head main\0").commit, "");
    }
}
