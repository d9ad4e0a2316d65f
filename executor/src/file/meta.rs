//! What the kernel says of a file: the facts that the tools report, and those by which a file is known again.

use std::os::fd::AsFd;

use rustix::{
    fs::{AtFlags, FileType, Statx, StatxFlags, statx},
    io,
    path::Arg,
};

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Pipe, socket or device.
    Other,
}

/// A point in time: seconds since 1970, and nanoseconds.
pub(crate) type Stamp = (i64, u32);

/// Facts of one file at one moment. Equal facts mean: the same file, unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Meta {
    /// Major and minor number of the file system.
    pub(crate) device: (u32, u32),
    /// Number of the file in its file system.
    pub(crate) inode: u64,
    /// What it is.
    pub(crate) kind: Kind,
    /// Permission bits, with set-id and sticky bits.
    pub(crate) mode: u32,
    /// Owner.
    pub(crate) uid: u32,
    /// Group.
    pub(crate) gid: u32,
    /// Number of its names.
    pub(crate) links: u32,
    /// Size in bytes.
    pub(crate) size: u64,
    /// Last change of content.
    pub(crate) modified: Stamp,
    /// Last change of content or facts.
    pub(crate) changed: Stamp,
}

impl Meta {
    /// Facts of an open file.
    pub(crate) fn of(file: impl AsFd) -> io::Result<Self> {
        statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS).map(Self::from)
    }

    /// Facts of `name` in `directory`, without following a link.
    pub(crate) fn at(directory: impl AsFd, name: impl Arg) -> io::Result<Self> {
        statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS).map(Self::from)
    }

    /// Whether `other` is the same file, perhaps changed.
    pub(crate) fn same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

impl From<Statx> for Meta {
    fn from(facts: Statx) -> Self {
        let mode = u32::from(facts.stx_mode);
        Self {
            device: (facts.stx_dev_major, facts.stx_dev_minor),
            inode: facts.stx_ino,
            kind: FileType::from_raw_mode(mode).into(),
            mode: mode & 0o7777,
            uid: facts.stx_uid,
            gid: facts.stx_gid,
            links: facts.stx_nlink,
            size: facts.stx_size,
            modified: (facts.stx_mtime.tv_sec, facts.stx_mtime.tv_nsec),
            changed: (facts.stx_ctime.tv_sec, facts.stx_ctime.tv_nsec),
        }
    }
}

impl From<FileType> for Kind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
            _ => Self::Other,
        }
    }
}
