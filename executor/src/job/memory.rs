//! Whether the kernel ends processes for want of memory, and which limit that is: the one of the executor's own control
//! group, where jobs are too, or the machine's memory. It knows no job.

use std::fs;
use std::path::{Path, PathBuf};

/// Counts over the whole machine.
const MACHINE_COUNTER: &str = "/proc/vmstat";

/// Files of a control group: how often the kernel ended one of its processes, and how much memory it may use. The second
/// generation's, then the first's.
const FILES: [(&str, &str); 2] =
    [("memory.events", "memory.max"), ("memory.oom_control", "memory.limit_in_bytes")];

/// Where the kernel tells of want of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Memory {
    /// File with a line `oom_kill` and a number that grows.
    counter: PathBuf,
    /// Files with a number of bytes: those of the control group and of the ones that it is in.
    limits: Vec<PathBuf>,
}

/// A limit that was hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Limit {
    pub bytes: u64,
    /// Which one, in words.
    pub note: String,
}

impl Memory {
    /// Looks at the control groups of this process.
    pub(super) fn find() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let (groups, mounts) = (read("/proc/self/cgroup"), read("/proc/self/mountinfo"));
        let found = places(&groups, &mounts).into_iter().find_map(|(mount, directory)| {
            let (counter, limit) =
                FILES.into_iter().find(|(counter, _)| kills(&directory.join(counter)).is_some())?;
            let up = directory.ancestors().take_while(|above| above.starts_with(&mount));
            Some(Self {
                counter: directory.join(counter),
                limits: up.map(|above| above.join(limit)).collect(),
            })
        });
        found.unwrap_or_else(|| Self { counter: MACHINE_COUNTER.into(), limits: Vec::new() })
    }

    /// How many processes the kernel has ended so far for want of memory.
    pub(super) fn kills(&self) -> Option<u64> {
        kills(&self.counter)
    }

    /// The least limit there is.
    pub(super) fn limit(&self) -> Limit {
        let machine = machine_bytes();
        let number = |path: &PathBuf| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
        let least = self.limits.iter().filter_map(|path| Some((number(path)?, path))).min();
        match least.filter(|(bytes, _)| *bytes < machine) {
            Some((bytes, path)) => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                Limit {
                    bytes,
                    note: format!("the limit was {name} of the executor's control group: {bytes} bytes"),
                }
            }
            None => {
                Limit { bytes: machine, note: format!("the limit was the machine's memory: {machine} bytes") }
            }
        }
    }
}

/// Where the control groups that may limit this process are mounted, and where in there it is.
fn places(groups: &str, mounts: &str) -> Vec<(PathBuf, PathBuf)> {
    let mut found = Vec::new();
    for group in groups.lines() {
        let mut fields = group.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let second = controllers.is_empty();
        if !second && !controllers.split(',').any(|name| name == "memory") {
            continue;
        }
        for mount in mounts.lines() {
            let Some((place, kind)) = mount.split_once(" - ") else { continue };
            let (mut place, mut kind) = (place.split(' ').skip(3), kind.split(' '));
            let (Some(root), Some(point)) = (place.next(), place.next()) else { continue };
            let fits = match kind.next() {
                Some("cgroup2") => second,
                Some("cgroup") => {
                    !second
                        && kind
                            .nth(1)
                            .is_some_and(|options| options.split(',').any(|option| option == "memory"))
                }
                _ => false,
            };
            // What is mounted may be a group further down, as in containers.
            if let (true, Ok(below)) = (fits, Path::new(path).strip_prefix(root)) {
                found.push((point.into(), Path::new(point).join(below)));
            }
        }
    }
    found
}

fn kills(counter: &Path) -> Option<u64> {
    let text = fs::read_to_string(counter).ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

fn machine_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok());
    kib.unwrap_or(0_u64).saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_group_is_found_in_both_generations_and_within_a_container() {
        let place = |mount: &str, directory: &str| (PathBuf::from(mount), PathBuf::from(directory));
        let first = "4:memory:/a/b\n3:cpu,cpuacct:/\n0::/\n";
        let mounts = "30 25 0:27 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n\
                      31 25 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      32 25 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(
            places(first, mounts),
            [
                place("/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory/a/b"),
                place("/sys/fs/cgroup/unified", "/sys/fs/cgroup/unified"),
            ]
        );
        let contained = "30 25 0:27 /docker/x /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        assert_eq!(
            places("4:memory:/docker/x\n", contained),
            [place("/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory")]
        );
        assert_eq!(places("4:memory:/elsewhere\n", contained), []);
        assert_eq!(
            places("0::/user.slice\n", mounts),
            [place("/sys/fs/cgroup/unified", "/sys/fs/cgroup/unified/user.slice")]
        );
    }

    #[test]
    fn the_least_limit_counts_and_the_machine_has_one_too() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let counter = file("memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 0\n");
        let limits = vec![file("memory.max", "max\n"), file("a", "8192\n"), file("b", "4096\n")];
        let memory = Memory { counter, limits };
        assert_eq!((memory.kills(), memory.limit().bytes), (Some(2), 4096));
        let memory = Memory { limits: vec![file("memory.max", "max\n")], ..memory };
        let limit = memory.limit();
        assert!(limit.bytes > 1 << 20 && limit.note.contains("machine's memory"), "{limit:?}");
        assert!(Memory::find().kills().is_some());
    }
}
