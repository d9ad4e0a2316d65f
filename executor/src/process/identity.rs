//! Who jobs run as: resolved once at start from the setting and `/etc/passwd`. It asks no name service, so that it
//! works in a static binary and an empty container alike.

use std::fs;

use crate::error::{Error, Result};

/// Users tried, in this order, when the executor may switch users and no user was named.
const DEFAULT_USERS: [&str; 2] = ["runlet-job", "runlet-jobs"];

/// The user of jobs when none of [`DEFAULT_USERS`] exists: a number outside the ranges that distributions give to
/// people (from 1000 on) and to services (below 1000).
const DEFAULT_UID: u32 = 20_000;

/// The user that jobs, and the threads that do the work of the file tools, run as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Name, or the number where `/etc/passwd` has no such user.
    pub name: String,
    /// Whether a process must switch to become this user. False when the executor runs as this user itself.
    pub switch: bool,
}

impl Identity {
    /// Resolves the setting `RUNLET_JOB_USER`: a name, a number, or nothing for the default.
    pub fn resolve(setting: Option<&str>) -> Result<Self> {
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let group = fs::read_to_string("/etc/group").unwrap_or_default();
        let own = rustix::process::geteuid().as_raw();
        Self::choose(setting, own, &passwd, &group)
    }

    /// Id of the user whom a setting names, by a name or a number.
    pub fn find_user(setting: &'static str, text: &str) -> Result<u32> {
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        by_name_or_number(setting, text, &passwd).map(|entry| entry.uid)
    }

    fn choose(setting: Option<&str>, own_uid: u32, passwd: &str, group: &str) -> Result<Self> {
        let entry = match setting {
            None if own_uid == 0 => DEFAULT_USERS
                .iter()
                .find_map(|name| find(passwd, |entry| entry.name == *name))
                .unwrap_or_else(|| Entry::unnamed(DEFAULT_UID)),
            None => by_uid(passwd, own_uid),
            Some(text) => by_name_or_number("RUNLET_JOB_USER", text, passwd)?,
        };
        if own_uid != 0 && entry.uid != own_uid {
            return Err(Error::invalid(
                "RUNLET_JOB_USER",
                format!(
                    "the executor runs as user {own_uid} and can't switch to '{}'; start it as root or leave this \
                     setting out",
                    entry.name
                ),
            ));
        }
        let groups = if entry.uid == own_uid { Vec::new() } else { memberships(group, entry.name) };
        Ok(Self {
            uid: entry.uid,
            gid: entry.gid,
            groups,
            name: if entry.name.is_empty() { entry.uid.to_string() } else { entry.name.to_owned() },
            switch: entry.uid != own_uid,
        })
    }
}

#[derive(Debug, Clone, Copy)]
struct Entry<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
}

impl Entry<'_> {
    const fn unnamed(uid: u32) -> Self {
        Self { name: "", uid, gid: uid }
    }
}

fn by_name_or_number<'a>(setting: &'static str, text: &str, passwd: &'a str) -> Result<Entry<'a>> {
    match text.parse::<u32>() {
        Ok(uid) => Ok(by_uid(passwd, uid)),
        Err(_) => find(passwd, |entry| entry.name == text).ok_or_else(|| {
            let problem = format!("there is no user '{text}' in /etc/passwd; create it, or give a number");
            Error::invalid(setting, problem)
        }),
    }
}

fn by_uid(passwd: &str, uid: u32) -> Entry<'_> {
    find(passwd, |entry| entry.uid == uid).unwrap_or_else(|| Entry::unnamed(uid))
}

fn find<'a>(passwd: &'a str, wanted: impl Fn(&Entry<'a>) -> bool) -> Option<Entry<'a>> {
    passwd
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(':');
            let (name, _password) = (fields.next()?, fields.next()?);
            Some(Entry { name, uid: fields.next()?.parse().ok()?, gid: fields.next()?.parse().ok()? })
        })
        .find(wanted)
}

fn memberships(group: &str, user: &str) -> Vec<u32> {
    group
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(':');
            let (_name, _password) = (fields.next()?, fields.next()?);
            let gid = fields.next()?.parse().ok()?;
            fields.next()?.split(',').any(|member| member == user && !user.is_empty()).then_some(gid)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0::/root:/bin/bash\nann:x:1000:100::/home/ann:/bin/sh\n";
    const GROUP: &str = "audio:x:29:ann,bob\nvideo:x:44:bob\n";

    #[test]
    fn root_switches_to_a_user_without_a_name_by_default() {
        let identity = Identity::choose(None, 0, PASSWD, GROUP).unwrap();
        assert_eq!((identity.uid, identity.gid, identity.switch), (20_000, 20_000, true));
        assert_eq!(identity.name, "20000");
    }

    #[test]
    fn root_prefers_the_user_made_for_jobs() {
        let passwd = format!("{PASSWD}runlet-job:x:990:990::/nonexistent:/usr/sbin/nologin\n");
        assert_eq!(Identity::choose(None, 0, &passwd, GROUP).unwrap().uid, 990);
    }

    #[test]
    fn a_named_user_brings_its_groups() {
        let identity = Identity::choose(Some("ann"), 0, PASSWD, GROUP).unwrap();
        assert_eq!((identity.uid, identity.gid, identity.groups), (1000, 100, vec![29]));
    }

    #[test]
    fn anybody_else_stays_who_it_is() {
        let identity = Identity::choose(None, 1000, PASSWD, GROUP).unwrap();
        assert_eq!((identity.name.as_str(), identity.switch), ("ann", false));
        let error = Identity::choose(Some("root"), 1000, PASSWD, GROUP).unwrap_err().to_string();
        assert!(error.starts_with("RUNLET_JOB_USER: the executor runs as user 1000"), "{error}");
    }

    #[test]
    fn an_unknown_user_is_refused_by_name() {
        let error = Identity::choose(Some("nosuch"), 0, PASSWD, GROUP).unwrap_err().to_string();
        assert!(error.contains("there is no user 'nosuch'"), "{error}");
    }
}
