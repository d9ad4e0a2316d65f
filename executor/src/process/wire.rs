//! Messages between the executor, its spawner and the inits of jobs. They stay on this machine and within one build, so
//! their form is free: each is a packet, with descriptors where it needs some. The spawner is sent the ends of control
//! sockets, an init gets requests and orders at its own and answers with events.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use prost::{Message, Oneof};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

/// Descriptor at which a program finds what was attached to its request.
pub(super) const ATTACHMENT: i32 = 3;

/// Largest request sent in the packet itself; a larger one travels in a memory file. Half of what Linux grants a
/// socket's buffer by default (net.core.wmem_default).
const INLINE_BYTES: usize = 96 << 10;

/// Descriptors in a packet at most: stdin, stdout, stderr, attachment, request.
const MAX_DESCRIPTORS: usize = 5;

/// What to execute. The strings hold no NUL.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Request {
    /// Arguments; the first is the absolute path of the program.
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub argv: Vec<Vec<u8>>,
    /// Environment as `NAME=value`.
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub env: Vec<Vec<u8>>,
    /// A memory file goes with the request, which the program finds at [`ATTACHMENT`].
    #[prost(bool, tag = "3")]
    pub has_attachment: bool,
    /// Absolute path of the directory to start in, as jobs see it.
    #[prost(bytes = "vec", tag = "4")]
    pub cwd: Vec<u8>,
    /// Standard input is a terminal, which the program shall have as its own.
    #[prost(bool, tag = "5")]
    pub on_terminal: bool,
}

/// Descriptors of a request, lent by the executor or owned by the init.
#[derive(Debug)]
pub(super) struct Descriptors<D> {
    /// Standard input, output and error.
    pub stdio: [D; 3],
    /// What the program finds at [`ATTACHMENT`].
    pub attachment: Option<D>,
}

/// Asks the spawner for an init that listens at `control`. `WouldBlock` when the socket is full and non-blocking.
pub(super) fn send_control(socket: BorrowedFd<'_>, control: BorrowedFd<'_>) -> io::Result<()> {
    send_packet(socket, &[io::IoSlice::new(&[0])], &[control])
}

/// The control socket for a new init; `None` when the executor is gone.
pub(super) fn receive_control(socket: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let (bytes, fds) = receive_packet(socket, &mut [0])?;
    Ok(if bytes == 0 { None } else { fds.into_iter().next() })
}

/// Sends a request to an init. `WouldBlock` when the socket is full and non-blocking.
pub(super) fn send_request(
    control: BorrowedFd<'_>,
    request: &Request,
    descriptors: &Descriptors<BorrowedFd<'_>>,
) -> io::Result<()> {
    let body = request.encode_to_vec();
    let spilled = if body.len() > INLINE_BYTES { Some(memory_file("runlet-request", &body)?) } else { None };
    let mut fds = descriptors.stdio.to_vec();
    fds.extend(descriptors.attachment);
    fds.extend(spilled.iter().map(AsFd::as_fd));
    let head = [u8::from(spilled.is_some())];
    let inline: &[u8] = if spilled.is_some() { &[] } else { &body };
    send_packet(control, &[io::IoSlice::new(&head), io::IoSlice::new(inline)], &fds)
}

/// Receives a request; `None` when the executor has no more of them.
pub(super) fn receive_request(
    control: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
) -> io::Result<Option<(Request, Descriptors<OwnedFd>)>> {
    buffer.resize(INLINE_BYTES + 1, 0);
    let (bytes, fds) = receive_packet(control, buffer)?;
    if bytes == 0 {
        return Ok(None);
    }
    let mut fds = fds.into_iter();
    let mut next = || fds.next().ok_or_else(|| io::Error::other("a request lacks a descriptor"));
    let stdio = [next()?, next()?, next()?];
    let mut rest: Vec<OwnedFd> = fds.collect();
    let request = if buffer[0] == 1 {
        let spilled = rest.pop().ok_or_else(|| io::Error::other("a large request lacks its file"))?;
        Request::decode(read_whole(spilled.as_fd())?.as_slice())
    } else {
        Request::decode(&buffer[1..bytes])
    };
    let request = request.map_err(io::Error::other)?;
    let attachment = if request.has_attachment { rest.pop() } else { None };
    Ok(Some((request, Descriptors { stdio, attachment })))
}

fn send_packet(socket: BorrowedFd<'_>, parts: &[io::IoSlice<'_>], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("too many descriptors for one packet"));
    }
    rustix::net::sendmsg(socket, parts, &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The bytes of the next packet, 0 when the other end is gone, and its descriptors.
fn receive_packet(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        let parts = &mut [io::IoSliceMut::new(&mut *buffer)];
        rustix::net::recvmsg(socket, parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    let rights = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    Ok((received.bytes, rights.flatten().collect()))
}

/// A sealed file in memory that holds `content`.
pub(super) fn memory_file(name: &str, content: &[u8]) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut rest = content;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest)?;
        rest = &rest[written..];
    }
    rustix::fs::fcntl_add_seals(
        &file,
        SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL,
    )?;
    Ok(file)
}

fn read_whole(file: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let size = rustix::fs::fstat(file)?.st_size;
    let mut content = vec![0; usize::try_from(size).map_err(io::Error::other)?];
    let mut done = 0;
    while done < content.len() {
        match rustix::io::pread(file, &mut content[done..], done as u64)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => done += read,
        }
    }
    Ok(content)
}

/// What an init reports of each job, in this order: `Failed`; or `Started`, `Exited` and `Gone`. Then it takes the next.
#[derive(Clone, PartialEq, Eq, Oneof)]
pub(super) enum Event {
    /// The program runs.
    #[prost(message, tag = "1")]
    Started(Started),
    /// It could not be started.
    #[prost(message, tag = "2")]
    Failed(Failed),
    /// The program ended.
    #[prost(message, tag = "3")]
    Exited(Exited),
    /// Nothing of the tree is left.
    #[prost(message, tag = "4")]
    Gone(Gone),
}

/// A program that runs.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Started {
    /// Its process id.
    #[prost(int32, tag = "1")]
    pub pid: i32,
}

/// A start that failed.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Failed {
    /// The [`Stage`] it failed at.
    #[prost(uint32, tag = "1")]
    pub stage: u32,
    #[prost(int32, tag = "2")]
    pub errno: i32,
}

/// A program that ended.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Exited {
    /// Status of wait(2).
    #[prost(int32, tag = "1")]
    pub status: i32,
    /// Whether the kernel ended one of the tree for want of memory; nothing where the init can't know.
    #[prost(bool, optional, tag = "5")]
    pub out_of_memory: Option<bool>,
    /// Used by all of the tree that has ended.
    #[prost(message, required, tag = "2")]
    pub used: Used,
    /// How many processes live on.
    #[prost(uint32, tag = "3")]
    pub leftovers: u32,
    /// The first of them.
    #[prost(message, repeated, tag = "4")]
    pub named: Vec<Leftover>,
}

/// A tree that is gone.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Gone {
    /// How many processes were there when it was told to end them.
    #[prost(uint32, tag = "1")]
    pub ended: u32,
    /// Used by the whole tree.
    #[prost(message, required, tag = "2")]
    pub used: Used,
}

/// What processes used that have ended.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct Used {
    /// Processor time of all of them.
    #[prost(uint64, tag = "1")]
    pub cpu_micros: u64,
    /// Largest resident set of one of them.
    #[prost(uint64, tag = "2")]
    pub max_rss_kib: u64,
}

/// A process that lives on after the program.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Leftover {
    /// Its process id.
    #[prost(int32, tag = "1")]
    pub pid: i32,
    /// The first bytes of its arguments, each ended by a NUL.
    #[prost(bytes = "vec", tag = "2")]
    pub command: Vec<u8>,
}

/// How an [`Event`] travels.
#[derive(Clone, PartialEq, Eq, Message)]
struct Frame {
    #[prost(oneof = "Event", tags = "1, 2, 3, 4")]
    event: Option<Event>,
}

/// What was being done when a start failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Stage {
    Fork = 0,
    Session = 1,
    Directory = 2,
    Descriptors = 3,
    User = 4,
    Confinement = 5,
    Execute = 6,
    Terminal = 7,
}

impl Stage {
    pub(super) const fn from_u32(value: u32) -> Self {
        match value {
            1 => Self::Session,
            2 => Self::Directory,
            3 => Self::Descriptors,
            4 => Self::User,
            5 => Self::Confinement,
            6 => Self::Execute,
            7 => Self::Terminal,
            _ => Self::Fork,
        }
    }

    /// The stage in words.
    pub(super) const fn describe(self) -> &'static str {
        match self {
            Self::Fork => "creating a process",
            Self::Session => "starting a session",
            Self::Directory => "entering the working directory",
            Self::Descriptors => "connecting its input and output",
            Self::User => "switching to the jobs' user",
            Self::Confinement => "confining it",
            Self::Execute => "executing the program",
            Self::Terminal => "giving it its terminal",
        }
    }
}

/// Most processes that are named as left behind, and bytes of the arguments of each.
pub(super) const NAMED_LEFTOVERS: usize = 20;
pub(super) const LEFTOVER_BYTES: usize = 200;

/// Bytes of an [`Event`]'s packet at most: that of [`Exited`] with all the leftovers that are named.
pub(super) const MAX_EVENT_BYTES: usize = 64 + NAMED_LEFTOVERS * (LEFTOVER_BYTES + 24);

impl Event {
    pub(super) fn to_packet(&self) -> Vec<u8> {
        Frame { event: Some(self.clone()) }.encode_to_vec()
    }

    /// `None` for what no init sends.
    pub(super) fn from_packet(packet: &[u8]) -> Option<Self> {
        Frame::decode(packet).ok()?.event
    }
}

/// What the executor tells an init that has a job. A closed socket means [`Order::Kill`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Send this signal to every process of the tree, once.
    Signal(i32),
    /// End every process of the tree, then report `Gone`.
    Kill,
}

/// Bytes of an [`Order`]'s packet.
pub(super) const ORDER_BYTES: usize = 4;

impl Order {
    pub(super) const fn encode(self) -> [u8; ORDER_BYTES] {
        match self {
            Self::Signal(signal) => signal.to_ne_bytes(),
            Self::Kill => [0; ORDER_BYTES],
        }
    }

    pub(super) const fn decode(frame: [u8; ORDER_BYTES]) -> Self {
        match i32::from_ne_bytes(frame) {
            0 => Self::Kill,
            signal => Self::Signal(signal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn events_and_orders_survive_their_frames() {
        let leftover = Leftover { pid: 1 << 22, command: vec![b'x'; LEFTOVER_BYTES] };
        let used = Used { cpu_micros: u64::MAX, max_rss_kib: u64::MAX };
        for event in [
            Event::Started(Started { pid: 4711 }),
            Event::Failed(Failed { stage: Stage::Directory as u32, errno: 2 }),
            Event::Exited(Exited {
                out_of_memory: Some(true),
                status: -1,
                used,
                leftovers: u32::MAX,
                named: vec![leftover; NAMED_LEFTOVERS],
            }),
            Event::Exited(Exited::default()),
            Event::Gone(Gone { ended: 7, used }),
        ] {
            let packet = event.to_packet();
            // An empty packet would be taken for the end of the socket.
            assert!((1..=MAX_EVENT_BYTES).contains(&packet.len()), "{}", packet.len());
            assert_eq!(Event::from_packet(&packet), Some(event));
        }
        for order in [Order::Kill, Order::Signal(15)] {
            assert_eq!(Order::decode(order.encode()), order);
        }
    }

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn a_request_of_any_size_arrives_with_its_descriptors() {
        let (executor, init) = pair();
        let null = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        for size in [1, INLINE_BYTES - 20, INLINE_BYTES, 3 << 20] {
            let request = Request {
                argv: vec![vec![b'x'; size]],
                env: vec![],
                has_attachment: true,
                cwd: b"/".to_vec(),
                on_terminal: false,
            };
            let attachment = memory_file("attachment", b"echo hi").unwrap();
            let sent = Descriptors { stdio: [null.as_fd(); 3], attachment: Some(attachment.as_fd()) };
            send_request(executor.as_fd(), &request, &sent).unwrap();
            let (received, descriptors) =
                receive_request(init.as_fd(), &mut Vec::new()).unwrap().expect("a request");
            assert_eq!(received, request);
            assert_eq!(read_whole(descriptors.attachment.unwrap().as_fd()).unwrap(), b"echo hi");
        }
        drop(executor);
        assert!(receive_request(init.as_fd(), &mut Vec::new()).unwrap().is_none());
    }

    #[test]
    fn a_control_socket_reaches_the_spawner() {
        let (executor, spawner) = pair();
        let (own, its) = pair();
        send_control(executor.as_fd(), its.as_fd()).unwrap();
        drop(its);
        let control = receive_control(spawner.as_fd()).unwrap().expect("a control socket");
        rustix::net::send(&control, b"hello", SendFlags::NOSIGNAL).unwrap();
        let mut greeting = [0; 5];
        rustix::net::recv(&own, &mut greeting[..], RecvFlags::empty()).unwrap();
        assert_eq!(&greeting, b"hello");
        drop(executor);
        assert!(receive_control(spawner.as_fd()).unwrap().is_none());
    }
}
