//! Owner and extended attributes of a file, handed on to the one that replaces it.

use std::{ffi::CString, fs::File, os::fd::BorrowedFd};

use rustix::{
    fs::{Gid, Uid, XattrFlags, fchown, fgetxattr, flistxattr, fremovexattr, fsetxattr},
    io::{self, Errno},
};

use super::meta::Meta;

/// Largest value, and largest list of names, that the kernel allows.
const MAX_BYTES: usize = 64 * 1024;

/// The attribute that holds the access list.
const ACCESS_LIST: &str = "system.posix_acl_access";

/// Gives `new` the owner and the extended attributes of `old`, whose facts are `meta`. False when it can't be done with
/// the rights at hand. Attributes of the security modules are theirs to set; capabilities end with the content.
pub(super) fn copy_attributes(old: BorrowedFd<'_>, new: &File, meta: &Meta) -> io::Result<bool> {
    let now = Meta::of(new)?;
    if (now.uid, now.gid) != (meta.uid, meta.gid) {
        match fchown(new, Some(Uid::from_raw(meta.uid)), Some(Gid::from_raw(meta.gid))) {
            Ok(()) => {}
            Err(Errno::PERM | Errno::INVAL) => return Ok(false),
            Err(e) => return Err(e),
        }
    }
    let names = match read_into(|buffer| flistxattr(old, buffer)) {
        Ok(names) => names,
        Err(Errno::OPNOTSUPP) => return Ok(true),
        Err(e) => return Err(e),
    };
    if !names.split(|byte| *byte == 0).any(|name| name == ACCESS_LIST.as_bytes()) {
        // A directory may hand an access list to whatever is made in it.
        match fremovexattr(new, ACCESS_LIST) {
            Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            Err(e) => return Err(e),
        }
    }
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        if name.starts_with(b"security.") {
            continue;
        }
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        let copied = read_into(|buffer| fgetxattr(old, &name, buffer))
            .and_then(|value| fsetxattr(new, &name, &value, XattrFlags::empty()));
        match copied {
            // Taken away meanwhile: the file has changed, which is noticed later.
            Ok(()) | Err(Errno::NODATA) => {}
            Err(Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP) => return Ok(false),
            Err(e) => return Err(e),
        }
    }
    Ok(true)
}

fn read_into(read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; MAX_BYTES];
    let length = read(&mut buffer)?;
    buffer.truncate(length);
    Ok(buffer)
}
