//! What sandboxes don't see of the machine. Their root is an overlay over that of the machine in which root inside may
//! read what root may outside; so a layer between the two covers what the jobs' user may not read, what is the running
//! machine's rather than its system's, and people's homes. An overlay takes a device with number 0 as a file that is not
//! there, and a directory marked as opaque as all there is of it (kernel documentation, "Overlay Filesystem").

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, CWD, FileType, Mode, XattrFlags, access, mknodat, setxattr};

use super::Users;

/// What the system consists of. Installing packages changes nothing else (Filesystem Hierarchy Standard 3.0).
const SYSTEM: [&str; 10] = ["bin", "etc", "lib", "lib32", "lib64", "libx32", "opt", "sbin", "usr", "var"];

/// Empty in every sandbox, and there even where the machine has none.
pub(super) const EMPTY: [&str; 7] = ["dev", "home", "proc", "root", "run", "sys", "tmp"];

/// Where files may be that not everybody may read. The rest of `/usr` is what packages brought, and made to be shared.
const LOOKED_THROUGH: [&str; 4] = ["etc", "opt", "usr/local", "var"];

/// Large parts of those, which package managers keep for everybody to read.
const KNOWN_TO_BE_PUBLIC: [&str; 2] = ["var/lib/dpkg/info", "var/lib/rpm"];

/// What the machine wrote since it runs: of these there are the directories, and nothing in them.
const BEGUN_ANEW: [&str; 5] = ["var/backups", "var/log", "var/mail", "var/spool", "var/tmp"];

/// A file that is not there, as an overlay writes it.
const WHITEOUT: u64 = 0;

const OPAQUE: &str = "trusted.overlay.opaque";

/// Paths beneath the machine's root, parents before what is in them.
type Covered = BTreeMap<PathBuf, How>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// It is not there.
    Absent,
    /// It is there, and empty.
    Empty,
}

/// Makes the layer in an empty directory, for a sandbox with these users. It takes some milliseconds.
pub(super) fn draw(layer: &Path, users: Users) -> io::Result<()> {
    let layer = Layer { place: layer, users };
    layer.as_outside(Path::new(""))?;
    look()?.into_iter().try_for_each(|(path, how)| layer.cover(&path, how))
}

/// Directories at the machine's root that are not of its system and that this process may look into: sandboxes see them
/// as they are, to be read.
pub(super) fn shown_as_they_are() -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/")? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir()
            && !is_one_of(&SYSTEM, &path)
            && !is_one_of(&EMPTY, &path)
            && access(&path, Access::READ_OK | Access::EXEC_OK).is_ok()
        {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn is_one_of(names: &[&str], path: &Path) -> bool {
    names.iter().any(|name| path == Path::new("/").join(name))
}

fn look() -> io::Result<Covered> {
    let mut covered: Covered = EMPTY.iter().map(|name| (PathBuf::from(name), How::Empty)).collect();
    let device = fs::symlink_metadata("/")?.dev();
    for entry in fs::read_dir("/")? {
        let entry = entry?;
        let name = PathBuf::from(entry.file_name());
        let how = match entry.metadata() {
            Ok(data) if data.is_dir() => (!is_one_of(&SYSTEM, &entry.path())).then_some(How::Empty),
            Ok(data) => (!is_for_everybody(&data)).then_some(How::Absent),
            Err(_) => Some(How::Empty),
        };
        covered.extend(how.map(|how| (name, how)));
    }
    for place in LOOKED_THROUGH {
        look_through(Path::new(place), device, &mut covered);
    }
    for place in BEGUN_ANEW.map(Path::new) {
        let hidden = place.ancestors().any(|above| covered.get(above) == Some(&How::Empty));
        if !hidden && Path::new("/").join(place).is_dir() {
            // Whatever was found in it is beneath what is empty.
            covered.retain(|path, _how| !path.starts_with(place));
            covered.insert(place.to_owned(), How::Empty);
        }
    }
    Ok(covered)
}

/// Finds what not everybody may read. A directory that can't be looked at, or belongs to another file system, is empty: nobody
/// knows what is in there. What goes meanwhile needs no cover.
fn look_through(place: &Path, device: u64, covered: &mut Covered) {
    let is_open = |data: &Metadata| is_for_everybody(data) && data.dev() == device;
    match fs::symlink_metadata(Path::new("/").join(place)) {
        Ok(data) if data.is_dir() && is_open(&data) => {}
        Ok(data) if data.is_symlink() => return,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        _ => {
            covered.insert(place.to_owned(), How::Empty);
            return;
        }
    }
    let mut pending = vec![place.to_owned()];
    while let Some(directory) = pending.pop() {
        let entries = match fs::read_dir(Path::new("/").join(&directory)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(_) => {
                covered.insert(directory, How::Empty);
                continue;
            }
        };
        for entry in entries.flatten() {
            let path = directory.join(entry.file_name());
            let data = match entry.metadata() {
                Ok(data) => data,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(_) => {
                    covered.insert(path, How::Empty);
                    continue;
                }
            };
            match (data.is_dir(), is_open(&data)) {
                (true, true) => {
                    if !KNOWN_TO_BE_PUBLIC.iter().any(|known| path == Path::new(known)) {
                        pending.push(path);
                    }
                }
                (true, false) => drop(covered.insert(path, How::Empty)),
                (false, _) if is_for_everybody(&data) => {}
                (false, _) => drop(covered.insert(path, How::Absent)),
            }
        }
    }
}

fn or_gone<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// Whether it is a file that everybody may read, or a directory that everybody may look into. Sockets, devices and pipes
/// are for nobody.
fn is_for_everybody(data: &Metadata) -> bool {
    let needed = if data.is_dir() { 0o5 } else { 0o4 };
    data.is_symlink() || ((data.is_dir() || data.is_file()) && data.mode() & needed == needed)
}

/// The layer while it is made.
struct Layer<'a> {
    place: &'a Path,
    users: Users,
}

impl Layer<'_> {
    fn cover(&self, path: &Path, how: How) -> io::Result<()> {
        self.make_parents(path)?;
        let there = self.place.join(path);
        match how {
            How::Absent => {
                return Ok(mknodat(CWD, &there, FileType::CharacterDevice, Mode::empty(), WHITEOUT)?);
            }
            How::Empty => {
                self.make_directory(path)?;
                setxattr(&there, OPAQUE, b"y", XattrFlags::empty())?;
            }
        }
        if BEGUN_ANEW.iter().any(|begun| path == Path::new(begun)) {
            let entries = or_gone(fs::read_dir(Path::new("/").join(path)))?;
            for entry in entries.into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    self.make_directory(&path.join(entry.file_name()))?;
                }
            }
        }
        Ok(())
    }

    fn make_parents(&self, path: &Path) -> io::Result<()> {
        let mut parents: Vec<&Path> = path.ancestors().skip(1).collect();
        parents.reverse();
        let mut missing = parents.into_iter().filter(|parent| !self.place.join(parent).exists());
        missing.try_for_each(|parent| self.make_directory(parent))
    }

    fn make_directory(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(self.place.join(path))?;
        self.as_outside(path)
    }

    /// A directory's mode and owner are those that it has in the uppermost layer.
    fn as_outside(&self, path: &Path) -> io::Result<()> {
        let Some(data) = or_gone(fs::metadata(Path::new("/").join(path)))? else { return Ok(()) };
        let there = self.place.join(path);
        let (uid, gid) = self.users.of_machine(data.uid(), data.gid());
        chown(&there, Some(uid), Some(gid))?;
        fs::set_permissions(there, fs::Permissions::from_mode(data.mode() & 0o7777))
    }
}
