//! The few lines of HTTP that `runlet` needs to see whether a gateway is up.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long a health check may take.
const LIMIT: Duration = Duration::from_secs(6);

/// The status and the body of `GET path`.
pub(crate) fn get(address: SocketAddr, path: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer.split_ascii_whitespace().nth(1).and_then(|status| status.parse().ok());
    let body = answer.split_once("\r\n\r\n").map_or("", |(_head, body)| body).to_owned();
    status.map(|status| (status, body)).ok_or_else(|| io::Error::other("the answer is not HTTP"))
}
