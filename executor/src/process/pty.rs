//! A pseudo-terminal: the executor's side of it, without waiting on any thread. The program's side is given to a process
//! as its standard streams; who reads, what is shown and what is typed is not known here.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use portable_pty::{PtySize, native_pty_system};
use rustix::termios::{LocalModes, Winsize};
use tokio::io::unix::AsyncFd;

use crate::error::{Error, Result};

/// Columns and rows of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Characters in a row.
    pub columns: u16,
    /// Rows.
    pub rows: u16,
}

impl From<Size> for PtySize {
    fn from(size: Size) -> Self {
        Self { rows: size.rows, cols: size.columns, pixel_width: 0, pixel_height: 0 }
    }
}

/// The executor's side.
///
/// portable-pty opens that of a terminal of the machine. It is read and written by a descriptor of our own: that crate's writer
/// types a line end and an end of file when it is dropped, which would run a command that somebody has half typed.
#[derive(Debug)]
pub struct Pty {
    descriptor: AsyncFd<OwnedFd>,
}

impl Pty {
    /// Opens one; also returns the program's side. `multiplexer` is that of a sandbox (pts(4)), where it has one, so that its
    /// programs find their terminal by its name. Must be called within the runtime.
    pub fn open(size: Size, multiplexer: Option<OwnedFd>) -> Result<(Self, OwnedFd)> {
        let failed = |source| Error::Spawn { stage: "opening a pseudo-terminal".to_owned(), source };
        let descriptor = match multiplexer {
            Some(own) => rustix::pty::unlockpt(&own).map(|()| own).map_err(|error| failed(error.into()))?,
            None => machines(size).map_err(failed)?,
        };
        rustix::io::ioctl_fionbio(&descriptor, true).map_err(|error| failed(error.into()))?;
        let flags = rustix::pty::OpenptFlags::RDWR
            | rustix::pty::OpenptFlags::NOCTTY
            | rustix::pty::OpenptFlags::CLOEXEC;
        let program_side =
            rustix::pty::ioctl_tiocgptpeer(&descriptor, flags).map_err(|error| failed(error.into()))?;
        #[expect(unsafe_code, reason = "tokio has no safe type for a terminal")]
        // SAFETY: an OwnedFd keeps its descriptor open and unchanged until it is dropped, after the registration.
        let descriptor = unsafe { AsyncFd::register(descriptor) };
        let descriptor = descriptor.map_err(|error| failed(io::Error::other(error)))?;
        let pty = Self { descriptor };
        pty.resize(size)?;
        Ok((pty, program_side))
    }

    /// Changes the size, of which the kernel tells the programs in the foreground by SIGWINCH.
    pub fn resize(&self, size: Size) -> Result<()> {
        let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(self.descriptor.get_ref(), size)
            .map_err(|error| Error::internal("resizing a terminal", error))
    }

    /// Resolves when there may be something to read, or no program has the terminal open any more.
    pub async fn readable(&self) -> io::Result<()> {
        self.descriptor.readable().await.map(|mut ready| ready.retain_ready())
    }

    /// Reads what is there; 0 when no program has the terminal open, for which the kernel has an error (EIO).
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.descriptor.try_io(tokio::io::Interest::READABLE, |descriptor| {
            Ok(rustix::io::retry_on_intr(|| rustix::io::read(descriptor, &mut *buffer))?)
        });
        closed_is_end(read)
    }

    /// As `read`, asking the kernel itself: the runtime answers from what it was last told.
    pub fn read_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = rustix::io::retry_on_intr(|| rustix::io::read(self.descriptor.get_ref(), &mut *buffer));
        closed_is_end(read.map_err(io::Error::from))
    }

    /// Resolves when there may be room for input.
    pub async fn writable(&self) -> io::Result<()> {
        self.descriptor.writable().await.map(|mut ready| ready.retain_ready())
    }

    /// Types as much as there is room for.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.descriptor.try_io(tokio::io::Interest::WRITABLE, |descriptor| {
            Ok(rustix::io::retry_on_intr(|| rustix::io::write(descriptor, bytes))?)
        })
    }

    /// Whether the kernel gathers whole lines before the program gets them (termios(3), canonical mode).
    pub fn gathers_lines(&self) -> bool {
        rustix::termios::tcgetattr(self.descriptor.get_ref())
            .is_ok_and(|settings| settings.local_modes.contains(LocalModes::ICANON))
    }
}

/// The executor's side of a terminal of the machine.
fn machines(size: Size) -> io::Result<OwnedFd> {
    let pair = native_pty_system().openpty(size.into()).map_err(io::Error::other)?;
    let raw = pair.master.as_raw_fd().ok_or(io::ErrorKind::Unsupported)?;
    #[expect(unsafe_code, reason = "portable-pty gives its descriptor as a number alone")]
    // SAFETY: `pair` keeps the descriptor open, and outlives this borrow, which ends with the duplication.
    unsafe { BorrowedFd::borrow_raw(raw) }.try_clone_to_owned()
}

fn closed_is_end(read: io::Result<usize>) -> io::Result<usize> {
    match read {
        Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(0),
        read => read,
    }
}
