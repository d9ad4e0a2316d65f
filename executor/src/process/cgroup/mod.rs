//! Control groups: what limits, counts and freezes processes together, in both generations that kernels have. A group is
//! made for everything that the executor starts, in it one for each init of jobs and one for each sandbox.

mod find;
mod memory;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

pub use memory::{Limit, Memory};

/// How long a group may take to freeze, or its last process to leave it.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often it is looked whether it has.
const LOOK_PERIOD: rustix::thread::Timespec = rustix::thread::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// Length of the periods that shares of the processors are counted in, in microseconds: the kernel's default.
const CPU_PERIOD: f64 = 100_000.0;

/// What processes may use.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Limits {
    /// Bytes of memory, files in it and the cache of others included; none for no limit.
    pub memory_bytes: Option<u64>,
    /// Processors, or parts of one.
    pub cpus: Option<f64>,
    /// Processes and threads.
    pub processes: Option<u64>,
}

/// What processes use together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time since they are counted together.
    pub cpu: Duration,
    /// Bytes of memory, without files that could be dropped from it.
    pub memory_bytes: u64,
    /// Most bytes so far, with those files; `None` where the kernel does not count that.
    pub peak_memory_bytes: Option<u64>,
}

/// What the processes of an executor may use.
#[derive(Debug, Clone)]
pub struct Quotas {
    /// The group that all of them are in; or a sentence that says why there is none.
    pub group: Result<Group, String>,
    /// What one job or terminal may use, where there is a group.
    pub job: Limits,
    /// What all that runs in one sandbox may use.
    pub sandbox: Limits,
}

impl Quotas {
    /// Where the kernel tells of want of memory of jobs. Which one it ended is told by the job's init, where there is a
    /// group.
    pub fn memory_of_jobs(&self) -> Memory {
        self.group
            .as_ref()
            .map_or_else(|_| Memory::find(), |group| group.memory().of_groups_within(self.job.memory_bytes))
    }
}

/// A group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    generation: Generation,
    places: Vec<Place>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Generation {
    First,
    Second,
}

/// The directory of a group in one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    directory: PathBuf,
    controllers: Vec<Controller>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Controller {
    Memory,
    Cpu,
    CpuAccounting,
    Processes,
    Freezer,
}

impl Controller {
    const ALL: [Self; 5] = [Self::Memory, Self::Cpu, Self::CpuAccounting, Self::Processes, Self::Freezer];

    /// Its name in the first generation.
    const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::CpuAccounting => "cpuacct",
            Self::Processes => "pids",
            Self::Freezer => "freezer",
        }
    }
}

/// A file of a group: whose it is, and its names in the two generations.
type File = (Controller, &'static str, &'static str);

const MEMORY_LIMIT: File = (Controller::Memory, "memory.limit_in_bytes", "memory.max");
const MEMORY_NOW: File = (Controller::Memory, "memory.usage_in_bytes", "memory.current");
const MEMORY_PEAK: File = (Controller::Memory, "memory.max_usage_in_bytes", "memory.peak");
const MEMORY_DETAIL: File = (Controller::Memory, "memory.stat", "memory.stat");
const CPU_TIME: File = (Controller::CpuAccounting, "cpuacct.usage", "cpu.stat");
const PROCESS_LIMIT: File = (Controller::Processes, "pids.max", "pids.max");
const FREEZE: File = (Controller::Freezer, "freezer.state", "cgroup.freeze");
const FROZEN: File = (Controller::Freezer, "freezer.state", "cgroup.events");

impl Group {
    /// The group of this name in this one, which may not be there.
    pub fn at(&self, name: &str) -> Self {
        let mut child = self.clone();
        child.places.iter_mut().for_each(|place| place.directory.push(name));
        child
    }

    /// Makes a group in this one; one that was left there is taken up.
    pub fn child(&self, name: &str, limits: &Limits) -> io::Result<Self> {
        let child = self.at(name);
        for place in &child.places {
            match fs::create_dir(&place.directory) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => made?,
            }
        }
        if let Err(error) = child.limit(limits) {
            let _removed = child.remove();
            return Err(error);
        }
        Ok(child)
    }

    fn limit(&self, limits: &Limits) -> io::Result<()> {
        if let Some(bytes) = limits.memory_bytes {
            self.write(MEMORY_LIMIT, &bytes.to_string())?;
            // Memory that is swapped out is not what the limit means; not every kernel counts that.
            let swap = match self.generation {
                Generation::First => {
                    self.write((Controller::Memory, "memory.memsw.limit_in_bytes", ""), &bytes.to_string())
                }
                Generation::Second => self.write((Controller::Memory, "", "memory.swap.max"), "0"),
            };
            let _counted = swap;
        }
        if let Some(processes) = limits.processes {
            self.write(PROCESS_LIMIT, &processes.to_string())?;
        }
        if let Some(cpus) = limits.cpus {
            let quota = (cpus * CPU_PERIOD).round();
            match self.generation {
                Generation::First => {
                    self.write((Controller::Cpu, "cpu.cfs_quota_us", ""), &format!("{quota}"))?
                }
                Generation::Second => {
                    self.write((Controller::Cpu, "", "cpu.max"), &format!("{quota} {CPU_PERIOD}"))?;
                }
            }
        }
        Ok(())
    }

    /// Files to which a process writes `0` to enter the group with all that it will start.
    pub fn entrances(&self) -> Vec<PathBuf> {
        self.places.iter().map(|place| place.directory.join("cgroup.procs")).collect()
    }

    /// Has this process, and all that it will start, be in the group.
    pub fn enter(&self) -> io::Result<()> {
        enter(&self.entrances())
    }

    /// Stops all processes of the group where they are, or lets them go on. When this returns, they have stopped.
    pub fn freeze(&self, frozen: bool) -> io::Result<()> {
        let first = if frozen { "FROZEN" } else { "THAWED" };
        let (order, state) = match (self.generation, frozen) {
            (Generation::First, _) => (first, first),
            (Generation::Second, true) => ("1", "frozen 1"),
            (Generation::Second, false) => ("0", "frozen 0"),
        };
        self.write(FREEZE, order)?;
        let until = Instant::now() + PATIENCE;
        while !self.read(FROZEN)?.lines().any(|line| line == state) {
            if Instant::now() > until {
                return Err(io::Error::other("not all of its processes could be stopped"));
            }
            let _interrupted = rustix::thread::nanosleep(&LOOK_PERIOD);
        }
        Ok(())
    }

    /// What it uses now.
    pub fn usage(&self) -> io::Result<Usage> {
        let number = |text: &str| text.trim().parse::<u64>().unwrap_or_default();
        let field = |text: &str, name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(number))
                .unwrap_or_default()
        };
        let cpu = self.read(CPU_TIME)?;
        let (cpu, droppable) = match self.generation {
            Generation::First => (Duration::from_nanos(number(&cpu)), "total_inactive_file"),
            Generation::Second => (Duration::from_micros(field(&cpu, "usage_usec")), "inactive_file"),
        };
        let droppable = field(&self.read(MEMORY_DETAIL)?, droppable);
        Ok(Usage {
            cpu,
            memory_bytes: number(&self.read(MEMORY_NOW)?).saturating_sub(droppable),
            peak_memory_bytes: self.read(MEMORY_PEAK).ok().map(|text| number(&text)),
        })
    }

    /// Where the kernel tells of want of memory in this group.
    pub fn memory(&self) -> Memory {
        let (controller, first, second) = MEMORY_LIMIT;
        let directory = self.place(controller).map(|place| place.directory.clone()).unwrap_or_default();
        match self.generation {
            Generation::First => Memory::of_group(&directory, "memory.oom_control", first),
            Generation::Second => Memory::of_group(&directory, "memory.events", second),
        }
    }

    /// Kills all that is in the group and in those in it, frozen or not, and removes them.
    pub fn end(&self) -> io::Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            for directory in self.places.iter().flat_map(|place| within(&place.directory)) {
                let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
                let processes = text.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?));
                for process in processes {
                    let _may_be_gone = rustix::process::kill_process(process, Signal::KILL);
                }
                // What is frozen ends when it goes on.
                let (_, first, second) = FREEZE;
                for (file, thawed) in [(first, "THAWED"), (second, "0")] {
                    let file = directory.join(file);
                    let _not_there = if file.exists() { fs::write(file, thawed) } else { Ok(()) };
                }
            }
            match self.remove() {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < until => {
                    let _interrupted = rustix::thread::nanosleep(&LOOK_PERIOD);
                }
                other => return other,
            }
        }
    }

    /// Removes the group with those in it. Fails where processes stay in one.
    pub fn remove(&self) -> io::Result<()> {
        self.places.iter().try_for_each(|place| remove(&place.directory))
    }

    fn place(&self, controller: Controller) -> Option<&Place> {
        self.places.iter().find(|place| place.controllers.contains(&controller))
    }

    fn path(&self, (controller, first, second): File) -> io::Result<PathBuf> {
        let place = self.place(controller).ok_or(io::ErrorKind::NotFound)?;
        Ok(place.directory.join(if self.generation == Generation::First { first } else { second }))
    }

    fn read(&self, file: File) -> io::Result<String> {
        fs::read_to_string(self.path(file)?)
    }

    fn write(&self, file: File, value: &str) -> io::Result<()> {
        fs::write(self.path(file)?, value)
    }
}

/// Has this process enter a group by its [`Group::entrances`].
pub(super) fn enter(entrances: &[PathBuf]) -> io::Result<()> {
    entrances.iter().try_for_each(|entrance| fs::write(entrance, "0"))
}

/// The directory of a group and those of the groups in it.
fn within(directory: &Path) -> Vec<PathBuf> {
    let mut found = vec![directory.to_owned()];
    let mut next = 0;
    while next < found.len() {
        let entries = fs::read_dir(&found[next]).into_iter().flatten().flatten();
        let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        found.extend(directories.map(|entry| entry.path()).collect::<Vec<_>>());
        next += 1;
    }
    found
}

/// A group's own files can't be removed, and need not be.
fn remove(directory: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    match fs::remove_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
