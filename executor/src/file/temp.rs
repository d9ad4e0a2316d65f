//! A file in the making. It has no name until it is finished, so that a crash leaves nothing behind; where the file
//! system can't do that, it has a hidden name that goes with the value. It refuses to know what is written.

use std::{
    ffi::OsStr,
    fs::File,
    os::fd::{AsRawFd as _, BorrowedFd},
};

use data_encoding::BASE32_NOPAD;
use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, linkat, renameat, renameat_with, unlinkat},
    io::{self, Errno},
    rand::{GetRandomFlags, getrandom},
};

use super::path::{ATTEMPTS, open_beneath};

/// A file that is being written, to be named in the directory it was made in or one below it.
#[derive(Debug)]
pub(super) struct Temp<'a> {
    directory: BorrowedFd<'a>,
    file: File,
    /// Its hidden name, while it has one.
    name: Option<String>,
}

impl<'a> Temp<'a> {
    /// An empty file with `mode`, on the file system of `directory`.
    pub(super) fn create(directory: BorrowedFd<'a>, mode: Mode) -> io::Result<Self> {
        match open_beneath(directory, ".", OFlags::TMPFILE | OFlags::RDWR, mode) {
            Ok(file) => Ok(Self { directory, file: file.into(), name: None }),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {
                Self::named(directory, mode)
            }
            Err(e) => Err(e),
        }
    }

    /// As [`Temp::create`], on a file system that can't make files without a name.
    fn named(directory: BorrowedFd<'a>, mode: Mode) -> io::Result<Self> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW;
        let (name, file) = with_hidden_name(|name| open_beneath(directory, name, flags, mode))?;
        Ok(Self { directory, file: file.into(), name: Some(name) })
    }

    /// The file.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Names the file in `folder`, which is on the same file system, unless the name is taken: then false.
    pub(super) fn name_new(mut self, folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<bool> {
        let named = match &self.name {
            None => self.link(folder, name),
            Some(hidden) => {
                renameat_with(self.directory, hidden.as_str(), folder, name, RenameFlags::NOREPLACE)
            }
        };
        match named {
            Ok(()) => {
                self.name = None;
                Ok(true)
            }
            Err(Errno::EXIST) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Names the file, in place of what has the name.
    pub(super) fn name_over(mut self, name: &OsStr) -> io::Result<()> {
        // A link never replaces, so the file has a hidden name for this moment.
        if self.name.is_none() {
            let (hidden, ()) = with_hidden_name(|hidden| self.link(self.directory, OsStr::new(hidden)))?;
            self.name = Some(hidden);
        }
        if let Some(hidden) = &self.name {
            renameat(self.directory, hidden.as_str(), self.directory, name)?;
        }
        self.name = None;
        Ok(())
    }

    fn link(&self, folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
        let file = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        linkat(CWD, file, folder, name, AtFlags::SYMLINK_FOLLOW)
    }
}

impl Drop for Temp<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // The change has failed already; that error is the one to tell.
            let _: io::Result<()> = unlinkat(self.directory, name.as_str(), AtFlags::empty());
        }
    }
}

/// Whether a file of this name is one in the making.
pub(super) fn is_hidden_name(name: &OsStr) -> bool {
    let inner = name.to_str().and_then(|name| name.strip_prefix(".runlet-")?.strip_suffix(".tmp"));
    inner.is_some_and(|inner| inner.len() == 16 && inner.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

/// Tries `make` with hidden names until one is free.
fn with_hidden_name<T>(mut make: impl FnMut(&str) -> io::Result<T>) -> io::Result<(String, T)> {
    for _ in 0..ATTEMPTS {
        let mut random = [0; 10];
        getrandom(&mut random, GetRandomFlags::empty())?;
        let name = format!(".runlet-{}.tmp", BASE32_NOPAD.encode(&random).to_ascii_lowercase());
        match make(&name) {
            Err(Errno::EXIST) => {}
            result => return result.map(|made| (name, made)),
        }
    }
    Err(Errno::EXIST)
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write as _, os::fd::AsFd as _};

    use super::*;

    fn names(directory: &tempfile::TempDir) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn both_kinds_replace_create_refuse_and_leave_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let opened = File::open(&directory).unwrap();
        for make in [Temp::create, Temp::named] {
            fs::write(directory.path().join("old"), "old").unwrap();
            let temp = make(opened.as_fd(), Mode::from_raw_mode(0o600)).unwrap();
            temp.file().write_all(b"new").unwrap();
            assert!(!temp.name_new(opened.as_fd(), OsStr::new("old")).unwrap());
            assert_eq!(names(&directory), ["old"]);
            assert_eq!(fs::read(directory.path().join("old")).unwrap(), b"old");

            let temp = make(opened.as_fd(), Mode::from_raw_mode(0o600)).unwrap();
            temp.file().write_all(b"new").unwrap();
            temp.name_over(OsStr::new("old")).unwrap();
            assert_eq!(fs::read(directory.path().join("old")).unwrap(), b"new");

            let temp = make(opened.as_fd(), Mode::from_raw_mode(0o600)).unwrap();
            assert!(temp.name_new(opened.as_fd(), OsStr::new("fresh")).unwrap());
            drop(make(opened.as_fd(), Mode::from_raw_mode(0o600)).unwrap());
            assert_eq!(names(&directory), ["fresh", "old"]);
            fs::remove_file(directory.path().join("fresh")).unwrap();
        }
    }
}
