//! Where the control groups of this process are, and whether it may make groups of its own there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{Controller, Generation, Group, Limits, Place};

/// Leaf that the executor moves to in the second generation, where a group with processes of its own can't have groups with
/// controllers in it (kernel documentation, "No Internal Process Constraint").
const OWN_LEAF: &str = "runlet-executor";

/// A hierarchy that this process is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hierarchy {
    /// Names of its controllers, as far as `/proc` tells them; none for the second generation.
    pub controllers: Vec<String>,
    pub second: bool,
    /// The group, where it is mounted.
    pub directory: PathBuf,
}

/// The hierarchies of this process.
pub(super) fn hierarchies() -> Vec<Hierarchy> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    parse(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"))
}

fn parse(groups: &str, mounts: &str) -> Vec<Hierarchy> {
    let mut found = Vec::new();
    for group in groups.lines() {
        let mut fields = group.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let second = controllers.is_empty();
        let controllers: Vec<String> =
            controllers.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        for mount in mounts.lines() {
            let Some((place, kind)) = mount.split_once(" - ") else { continue };
            let (mut place, mut kind) = (place.split(' ').skip(3), kind.split(' '));
            let (Some(root), Some(point)) = (place.next(), place.next()) else { continue };
            let fits = match kind.next() {
                Some("cgroup2") => second,
                Some("cgroup") => {
                    let options: Vec<&str> = kind.nth(1).unwrap_or_default().split(',').collect();
                    !second && controllers.iter().all(|name| options.contains(&name.as_str()))
                }
                _ => false,
            };
            // What is mounted may be a group further down, as in containers.
            if let (true, Ok(below)) = (fits, Path::new(path).strip_prefix(root)) {
                let directory = Path::new(point).join(below);
                found.push(Hierarchy { controllers: controllers.clone(), second, directory });
            }
        }
    }
    found
}

impl Group {
    /// A group of this name for everything that the executor starts, made in the executor's own; or a sentence that says why
    /// there can be none.
    pub fn of_executor(name: &str, limits: &Limits) -> Result<Self, String> {
        let hierarchies = hierarchies();
        let unified = hierarchies.iter().find(|known| known.second && has_controllers(&known.directory));
        let own = match unified {
            Some(unified) => Self::second(&unified.directory)?,
            None => Self::first(&hierarchies)?,
        };
        // One that was killed may have left something there.
        let _ended = own.at(name).end();
        let made = own.child(name, limits).map_err(|error| refused(&error))?;
        made.delegate().map_err(|error| refused(&error))?;
        Ok(made)
    }

    /// The executor's group in the second generation. The executor itself, with what it has started, moves to a leaf.
    fn second(directory: &Path) -> Result<Self, String> {
        let own = Self {
            generation: Generation::Second,
            places: vec![Place { directory: directory.to_owned(), controllers: Controller::ALL.to_vec() }],
        };
        if own.delegate().is_err() {
            let leaf = directory.join(OWN_LEAF);
            let moved = fs::create_dir_all(&leaf)
                .and_then(|()| fs::write(leaf.join("cgroup.procs"), "0"))
                .and_then(|()| own.delegate());
            moved.map_err(|error| {
                let advice =
                    "start the executor in a group of its own, as a systemd unit with Delegate=yes is";
                format!("{}: {error}; {advice}", directory.display())
            })?;
        }
        Ok(own)
    }

    fn first(hierarchies: &[Hierarchy]) -> Result<Self, String> {
        let mut places = Vec::new();
        for known in hierarchies.iter().filter(|known| !known.second) {
            let named =
                |controller: &Controller| known.controllers.iter().any(|name| name == controller.name());
            let controllers: Vec<Controller> = Controller::ALL.into_iter().filter(named).collect();
            if !controllers.is_empty() {
                places.push(Place { directory: known.directory.clone(), controllers });
            }
        }
        let has = |wanted: &Controller| places.iter().any(|place| place.controllers.contains(wanted));
        match Controller::ALL.iter().find(|controller| !has(controller)) {
            Some(missing) => {
                Err(format!("the control groups of this machine have no controller {}", missing.name()))
            }
            None => Ok(Self { generation: Generation::First, places }),
        }
    }

    /// Lets groups in this one have controllers. The first generation needs nothing for that.
    fn delegate(&self) -> io::Result<()> {
        match self.generation {
            Generation::First => Ok(()),
            Generation::Second => self.places.iter().try_for_each(|place| {
                fs::write(place.directory.join("cgroup.subtree_control"), "+memory +cpu +pids")
            }),
        }
    }
}

fn has_controllers(directory: &Path) -> bool {
    let text = fs::read_to_string(directory.join("cgroup.controllers")).unwrap_or_default();
    ["memory", "cpu", "pids"].iter().all(|name| text.split_ascii_whitespace().any(|known| known == *name))
}

fn refused(error: &io::Error) -> String {
    format!("no control group can be made: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_in_both_generations_and_within_a_container() {
        let found = |groups: &str, mounts: &str| -> Vec<String> {
            let text = |known: Hierarchy| known.directory.to_string_lossy().into_owned();
            parse(groups, mounts).into_iter().map(text).collect()
        };
        let first = "4:memory:/a/b\n3:cpu,cpuacct:/\n0::/\n";
        let mounts = "30 25 0:27 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n\
                      31 25 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                      32 25 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(
            found(first, mounts),
            ["/sys/fs/cgroup/memory/a/b", "/sys/fs/cgroup/cpu/", "/sys/fs/cgroup/unified/",]
        );
        let contained = "30 25 0:27 /docker/x /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        assert_eq!(found("4:memory:/docker/x\n", contained), ["/sys/fs/cgroup/memory/"]);
        assert_eq!(found("4:memory:/elsewhere\n", contained), [""; 0]);
        assert_eq!(found("0::/user.slice\n", mounts), ["/sys/fs/cgroup/unified/user.slice"]);
    }
}
