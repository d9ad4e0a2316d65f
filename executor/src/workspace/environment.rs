//! The environment of a workspace's commands. It is built, never inherited: of the executor's own environment only the
//! search path is taken, as far as the jobs' user can use it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Workspace;
use crate::error::{Error, Result};
use crate::process::identity::Identity;
use crate::process::veil::may_pass;

/// Searched after what the executor's own path offers.
const SYSTEM_PATH: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Longest `NAME=value`, in bytes: the kernel refuses a string of 32 pages or more, its final NUL counted.
const MAX_VARIABLE_BYTES: usize = 32 * 4096 - 1;

/// Variables that every command has. No pager and no prompt may wait for a key that nobody presses; text is UTF-8, which
/// `LC_CTYPE` says alone, since with `LANG` each program would load eleven more files that say the same as the C locale;
/// times are UTC; Python's output comes as it is printed.
const FIXED: [(&str, &str); 14] = [
    ("LC_CTYPE", "C.UTF-8"),
    ("TZ", "UTC"),
    ("TERM", "dumb"),
    ("SHELL", "/bin/bash"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("MANPAGER", "cat"),
    ("SYSTEMD_PAGER", ""),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("PYTHONUNBUFFERED", "1"),
    ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
    ("PIP_NO_INPUT", "1"),
    ("npm_config_update_notifier", "false"),
];

/// Directories in which jobs find programs: those of `own_path` that their user may enter, then the system's.
pub fn search_path(own_path: &str, identity: &Identity) -> Vec<PathBuf> {
    let mut directories: Vec<PathBuf> = Vec::new();
    let own = own_path.split(':').filter(|part| part.starts_with('/')).map(Path::new);
    for directory in own.chain(SYSTEM_PATH.iter().map(Path::new)) {
        let enterable = directory.is_dir() && directory.ancestors().all(|part| may_pass(part, identity));
        if enterable && !directories.iter().any(|known| known == directory) {
            directories.push(directory.to_owned());
        }
    }
    directories
}

/// Directories as the value of `PATH`.
pub fn path_variable(directories: &[PathBuf]) -> String {
    let texts: Vec<_> = directories.iter().map(|directory| directory.to_string_lossy()).collect();
    texts.join(":")
}

/// The program of this name on a search path.
pub fn find_program(directories: &[PathBuf], name: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    directories.iter().map(|directory| directory.join(name)).find(|path| {
        path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    })
}

/// The environment for a command in `workspace`, with `extra` on top.
pub fn environment(
    workspace: &Workspace,
    search_path: &[PathBuf],
    identity: &Identity,
    extra: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut variables: BTreeMap<String, String> =
        FIXED.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let seen = &workspace.seen;
    let mut path = vec![seen.home.join(".local/bin")];
    if workspace.python_version.is_some() {
        path.insert(0, seen.venv.join("bin"));
        variables.insert("VIRTUAL_ENV".to_owned(), text(&seen.venv));
    }
    path.extend_from_slice(search_path);
    let user = if workspace.enclosed { "root".to_owned() } else { identity.name.clone() };
    for (name, value) in [
        ("PATH", path_variable(&path)),
        ("HOME", text(&seen.home)),
        ("TMPDIR", text(&seen.tmp)),
        ("USER", user.clone()),
        ("LOGNAME", user),
        ("RUNLET_WORKSPACE_ID", workspace.id.as_str().to_owned()),
        // The data root may lie in a repository, which is none of the workspace's.
        ("GIT_CEILING_DIRECTORIES", text(&seen.root)),
    ] {
        variables.insert(name.to_owned(), value);
    }
    for given in [&workspace.env, extra] {
        variables.extend(given.iter().map(|(name, value)| (name.clone(), value.clone())));
    }
    // Ours would outweigh a language that was given.
    let chosen = [&workspace.env, extra].iter().any(|given| given.contains_key("LC_CTYPE"));
    if variables.contains_key("LANG") && !chosen {
        variables.remove("LC_CTYPE");
    }
    variables
}

/// Checks variables given by a caller.
pub fn check(variables: &BTreeMap<String, String>) -> Result<()> {
    for (name, value) in variables {
        let shown = name.chars().take(60).collect::<String>();
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(Error::invalid("env", format!("'{shown}' can't be the name of a variable")));
        }
        if value.contains('\0') {
            return Err(Error::invalid(
                "env",
                format!("the value of {shown} holds a NUL, which no variable can"),
            ));
        }
        let bytes = name.len() + 1 + value.len();
        if bytes > MAX_VARIABLE_BYTES {
            return Err(Error::invalid(
                "env",
                format!(
                    "{shown} has {bytes} bytes with its name; the system allows {MAX_VARIABLE_BYTES}; write the value to a \
                     file and pass its path"
                ),
            ));
        }
    }
    Ok(())
}
