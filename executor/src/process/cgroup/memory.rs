//! Whether the kernel ends processes for want of memory, and which limit that is: that of a control group, or of one that it
//! is in, or the machine's memory.

use std::fs;
use std::path::{Path, PathBuf};

use super::find::hierarchies;

/// Counts over the whole machine.
const MACHINE_COUNTER: &str = "/proc/vmstat";

/// Files of a control group: how often the kernel ended one of its processes, and how much memory it may use. The second
/// generation's, then the first's.
const FILES: [(&str, &str); 2] =
    [("memory.events", "memory.max"), ("memory.oom_control", "memory.limit_in_bytes")];

/// Where the kernel tells of want of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// File with a line `oom_kill` and a number that grows.
    counter: PathBuf,
    /// Files with a number of bytes: those of the control group and of the ones that it is in.
    limits: Vec<PathBuf>,
    /// A limit that no file tells, because it is that of groups which come and go.
    own: Option<u64>,
}

/// A limit that was hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// Bytes.
    pub bytes: u64,
    /// Which one, in words.
    pub note: String,
}

impl Memory {
    /// Looks at the control groups of this process.
    pub fn find() -> Self {
        let found = hierarchies().into_iter().find_map(|known| {
            let counts = |counter: &str| kills(&known.directory.join(counter)).is_some();
            let (counter, limit) = FILES.into_iter().find(|(counter, _)| counts(counter))?;
            Some(Self::of_group(&known.directory, counter, limit))
        });
        found.unwrap_or_else(|| Self { counter: MACHINE_COUNTER.into(), limits: Vec::new(), own: None })
    }

    /// For groups in this one, which come and go and have a limit of bytes besides: what is ended in them counts over the
    /// whole machine only.
    pub(super) fn of_groups_within(self, own: Option<u64>) -> Self {
        Self { own, counter: MACHINE_COUNTER.into(), ..self }
    }

    /// Of the group with this directory, by the names of its files. What is above it limits it too.
    pub(super) fn of_group(directory: &Path, counter: &str, limit: &str) -> Self {
        Self {
            counter: directory.join(counter),
            limits: directory.ancestors().map(|above| above.join(limit)).collect(),
            own: None,
        }
    }

    /// How many processes the kernel has ended so far for want of memory.
    pub fn kills(&self) -> Option<u64> {
        kills(&self.counter)
    }

    /// The least limit there is.
    pub fn limit(&self) -> Limit {
        let machine = machine_bytes();
        let number = |path: &PathBuf| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
        let name = |path: &PathBuf| {
            format!("{} of a control group", path.file_name().unwrap_or_default().to_string_lossy())
        };
        let told = self.limits.iter().filter_map(|path| Some((number(path)?, name(path))));
        let least = told.chain(self.own.map(|bytes| (bytes, "RUNLET_JOB_MEMORY_BYTES".to_owned()))).min();
        match least.filter(|(bytes, _)| *bytes < machine) {
            Some((bytes, name)) => Limit { bytes, note: format!("the limit was {name}: {bytes} bytes") },
            None => {
                Limit { bytes: machine, note: format!("the limit was the machine's memory: {machine} bytes") }
            }
        }
    }
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
    fn the_least_limit_counts_and_the_machine_has_one_too() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let counter = file("memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 0\n");
        let limits = vec![file("memory.max", "max\n"), file("a", "8192\n"), file("b", "4096\n")];
        let memory = Memory { counter, limits, own: None };
        assert_eq!((memory.kills(), memory.limit().bytes), (Some(2), 4096));
        assert_eq!(memory.clone().of_groups_within(Some(1024)).limit().bytes, 1024);
        let memory = Memory { limits: vec![file("memory.max", "max\n")], ..memory };
        let limit = memory.limit();
        assert!(limit.bytes > 1 << 20 && limit.note.contains("machine's memory"), "{limit:?}");
        assert!(Memory::find().kills().is_some());
    }
}
