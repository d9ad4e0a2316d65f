//! Names of signals, which do not change with the locale as strsignal(3)'s texts do.

use crate::error::{Error, Result};

const NAMES: [(&str, i32); 31] = [
    ("HUP", libc::SIGHUP),
    ("INT", libc::SIGINT),
    ("QUIT", libc::SIGQUIT),
    ("ILL", libc::SIGILL),
    ("TRAP", libc::SIGTRAP),
    ("ABRT", libc::SIGABRT),
    ("BUS", libc::SIGBUS),
    ("FPE", libc::SIGFPE),
    ("KILL", libc::SIGKILL),
    ("USR1", libc::SIGUSR1),
    ("SEGV", libc::SIGSEGV),
    ("USR2", libc::SIGUSR2),
    ("PIPE", libc::SIGPIPE),
    ("ALRM", libc::SIGALRM),
    ("TERM", libc::SIGTERM),
    ("STKFLT", libc::SIGSTKFLT),
    ("CHLD", libc::SIGCHLD),
    ("CONT", libc::SIGCONT),
    ("STOP", libc::SIGSTOP),
    ("TSTP", libc::SIGTSTP),
    ("TTIN", libc::SIGTTIN),
    ("TTOU", libc::SIGTTOU),
    ("URG", libc::SIGURG),
    ("XCPU", libc::SIGXCPU),
    ("XFSZ", libc::SIGXFSZ),
    ("VTALRM", libc::SIGVTALRM),
    ("PROF", libc::SIGPROF),
    ("WINCH", libc::SIGWINCH),
    ("IO", libc::SIGIO),
    ("PWR", libc::SIGPWR),
    ("SYS", libc::SIGSYS),
];

/// The name of a signal, without `SIG`; a real-time signal has its number.
pub fn name(signal: i32) -> String {
    NAMES
        .iter()
        .find(|(_, number)| *number == signal)
        .map_or_else(|| signal.to_string(), |(name, _)| (*name).to_owned())
}

/// The signal by which a job is to be ended; empty for TERM.
pub fn ending(given: &str) -> Result<i32> {
    let upper = given.to_ascii_uppercase();
    let wanted = match upper.strip_prefix("SIG").unwrap_or(&upper) {
        "" => "TERM",
        other => other,
    };
    match NAMES.iter().find(|(name, _)| *name == wanted) {
        Some((_, libc::SIGSTOP | libc::SIGTSTP | libc::SIGCONT | libc::SIGCHLD)) | None => {
            Err(Error::invalid(
                "signal",
                format!(
                    "expected a signal that ends programs, such as TERM, INT, HUP, QUIT or KILL, got '{given}'"
                ),
            ))
        }
        Some((_, number)) => Ok(*number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_go_by_their_names() {
        assert_eq!((name(9).as_str(), name(15).as_str(), name(34).as_str()), ("KILL", "TERM", "34"));
        assert_eq!(ending("").unwrap(), libc::SIGTERM);
        assert_eq!(ending("sigint").unwrap(), libc::SIGINT);
        for odd in ["STOP", "NOSUCH", "9"] {
            assert!(ending(odd).is_err(), "{odd}");
        }
    }
}
