//! What a listing or a search leaves out: hidden names, and what `.gitignore`, `.git/info/exclude`, `.ignore` and
//! `.rgignore` name, as ripgrep does it. As there, `.gitignore` counts within a git repository only. The settings of a
//! user or a machine are not read.

use std::{
    ffi::OsStr,
    fs::File,
    io::Read as _,
    os::{fd::AsFd, unix::ffi::OsStrExt as _},
    path::Path,
    sync::Arc,
};

use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};
use rustix::fs::{Mode, OFlags};

use super::{
    meta::{Kind, Meta},
    path::{FILE_FLAGS, open_beneath},
};

/// Most bytes of a file of rules that are read.
const MAX_BYTES: u64 = 1024 * 1024;

/// The rules of a directory and of those above it.
#[derive(Debug)]
pub(super) struct Rules {
    above: Option<Arc<Self>>,
    /// Length of the directory's path, with a slash at its end.
    prefix: usize,
    /// `.ignore` and `.rgignore`.
    own: Gitignore,
    /// `.gitignore` and `.git/info/exclude`.
    git: Gitignore,
    /// Whether a repository starts here.
    repository: bool,
    /// Whether this is in a repository.
    within_repository: bool,
}

/// Which files of rules a directory holds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RuleFiles {
    git: bool,
    gitignore: bool,
    ignore: bool,
    rgignore: bool,
}

impl RuleFiles {
    /// Notes a name that the directory holds.
    pub(super) fn note(&mut self, name: &[u8]) {
        match name {
            b".git" => self.git = true,
            b".gitignore" => self.gitignore = true,
            b".ignore" => self.ignore = true,
            b".rgignore" => self.rgignore = true,
            _ => {}
        }
    }

    /// Looks which of them `directory` holds.
    pub(super) fn of(directory: impl AsFd) -> Self {
        let mut files = Self::default();
        for name in [".git", ".gitignore", ".ignore", ".rgignore"] {
            if Meta::at(&directory, name).is_ok() {
                files.note(name.as_bytes());
            }
        }
        files
    }

    fn any(self) -> bool {
        self.git || self.gitignore || self.ignore || self.rgignore
    }
}

impl Rules {
    /// Rules for what lies in `directory`, whose path has `prefix` bytes with a slash at its end. A file of rules that
    /// can't be read has none; neither has a line that can't be understood.
    pub(super) fn read(
        above: Option<&Arc<Self>>,
        directory: impl AsFd,
        prefix: usize,
        files: RuleFiles,
    ) -> Option<Arc<Self>> {
        if !files.any() {
            return above.cloned();
        }
        let (mut own, mut git) = (GitignoreBuilder::new(""), GitignoreBuilder::new(""));
        if files.git {
            add(&mut git, &directory, ".git/info/exclude");
        }
        if files.gitignore {
            add(&mut git, &directory, ".gitignore");
        }
        if files.ignore {
            add(&mut own, &directory, ".ignore");
        }
        if files.rgignore {
            add(&mut own, &directory, ".rgignore");
        }
        let build = |builder: GitignoreBuilder| builder.build().unwrap_or_else(|_| Gitignore::empty());
        Some(Arc::new(Self {
            prefix,
            own: build(own),
            git: build(git),
            repository: files.git,
            within_repository: files.git || above.is_some_and(|above| above.within_repository),
            above: above.cloned(),
        }))
    }

    /// Whether the entry at `path`, a path of the same kind as the prefixes, is left out.
    pub(super) fn leave_out(rules: Option<&Arc<Self>>, path: &[u8], name: &[u8], kind: Kind) -> bool {
        if name == b".git" {
            return true;
        }
        let directory = kind == Kind::Directory;
        match rules.map_or(Match::None, |rules| rules.matched(path, directory)) {
            Match::Ignore(()) => true,
            Match::Whitelist(()) => false,
            Match::None => name.starts_with(b"."),
        }
    }

    /// What the nearest rule says: one of `.ignore` before one of `.gitignore`.
    fn matched(&self, path: &[u8], directory: bool) -> Match<()> {
        let ask = |rules: &Gitignore, prefix: usize| {
            let below = Path::new(OsStr::from_bytes(&path[prefix..]));
            if rules.is_empty() { Match::None } else { rules.matched(below, directory).map(|_| ()) }
        };
        let levels = || std::iter::successors(Some(self), |level| level.above.as_deref());
        let own = levels().map(|level| ask(&level.own, level.prefix)).find(|found| !found.is_none());
        let mut git = Match::None;
        if own.is_none() && self.within_repository {
            for level in levels() {
                git = ask(&level.git, level.prefix);
                if !git.is_none() || level.repository {
                    break;
                }
            }
        }
        own.unwrap_or(git)
    }
}

fn add(rules: &mut GitignoreBuilder, directory: impl AsFd, name: &str) {
    let Ok(file) = open_beneath(directory, name, OFlags::RDONLY | FILE_FLAGS, Mode::empty()) else {
        return;
    };
    if !Meta::of(&file).is_ok_and(|meta| meta.kind == Kind::File) {
        return;
    }
    let mut text = Vec::new();
    if File::from(file).take(MAX_BYTES).read_to_end(&mut text).is_err() {
        return;
    }
    let text = String::from_utf8_lossy(&text);
    for line in text.trim_start_matches('\u{feff}').lines() {
        // A line that makes no sense is no rule, as for git.
        drop(rules.add_line(None, line));
    }
}
