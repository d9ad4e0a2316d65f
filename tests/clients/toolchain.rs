//! The programs that the tests drive: where they are installed, and running one of them to its end.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use support::{World, world::TOKEN};
use tokio::process::Command;

/// Installing may take a while, but only the first time.
const INSTALL: Duration = Duration::from_secs(900);

/// This directory, in the source tree.
pub(crate) fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients")
}

/// What `install.sh` installs.
pub(crate) struct Toolchain(PathBuf);

/// What a program did.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// What a program that must not have failed wrote.
    #[track_caller]
    pub(crate) fn expect(self) -> String {
        assert_eq!(self.code, Some(0), "{}\n{}", self.stdout, self.stderr);
        self.stdout
    }
}

impl Toolchain {
    /// Installs what is missing, beside what cargo builds.
    pub(crate) async fn installed() -> Self {
        let own = std::env::current_exe().unwrap();
        let into = own.ancestors().nth(3).unwrap().join("clients");
        let mut install = Command::new("bash");
        install.arg(source().join("install.sh")).arg(&into);
        let ended = run(install, INSTALL).await;
        assert_eq!(ended.code, Some(0), "can't install the clients:\n{}{}", ended.stdout, ended.stderr);
        Self(into)
    }

    /// A Python that has one line of the SDK.
    pub(crate) fn python(&self, line: u32) -> PathBuf {
        self.0.join(format!("python-{line}/bin/python"))
    }

    /// A program of a package, to be run by Node.js of the version that the packages want.
    pub(crate) fn package_program(&self, name: &str) -> Command {
        let mut command = Command::new(self.node());
        command.arg(self.0.join("node/node_modules/.bin").join(name));
        command
    }

    /// A script to be run by Node.js, beside the package.json of its directory and where the packages are found.
    pub(crate) fn script(&self, script: &Path, world: &World) -> Command {
        let directory = world.directory().join("script");
        if std::fs::create_dir(&directory).is_ok() {
            symlink(self.0.join("node/node_modules"), directory.join("node_modules")).unwrap();
        }
        let copy = directory.join(script.file_name().unwrap());
        std::fs::copy(script, &copy).unwrap();
        std::fs::copy(script.with_file_name("package.json"), directory.join("package.json")).unwrap();
        let mut command = Command::new(self.node());
        command.arg(copy);
        command
    }

    /// Not through `.bin`, where old versions of npm put no link to it.
    fn node(&self) -> PathBuf {
        let machine = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
        self.0.join(format!("node/node_modules/node-linux-{machine}/bin/node"))
    }
}

/// Tells a program where the gateway is.
pub(crate) fn tell(command: &mut Command, world: &World) {
    command.env("RUNLET_URL", format!("{}/mcp", world.base())).env("SANDBOX_TOKEN", TOKEN);
}

/// Runs a program to its end.
pub(crate) async fn run(mut command: Command, limit: Duration) -> Ended {
    let started = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let ended = tokio::time::timeout(limit, started).await;
    let ended = ended.unwrap_or_else(|_| panic!("{command:?} did not end within {limit:?}")).unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ended { code: ended.status.code(), stdout: text(ended.stdout), stderr: text(ended.stderr) }
}
