//! What the machine is: its system, kernel, processors and memory.

use std::fs;

/// A description of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Name and version of the system.
    pub os: String,
    /// Kernel release.
    pub kernel: String,
    /// Processors that this process may use.
    pub cpus: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
}

/// Describes this machine.
pub fn describe() -> Host {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let os = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Host {
        os: os.map_or_else(|| "Linux".to_owned(), |name| name.trim_matches('"').to_owned()),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
        memory_bytes: rustix::system::sysinfo()
            .totalram
            .saturating_mul(u64::from(rustix::system::sysinfo().mem_unit)),
    }
}
