//! A proxy that adds the token to every request, for a client that can't send a header.

use std::net::SocketAddr;

use support::world::TOKEN;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

/// Starts a proxy of the gateway at `target` and returns its address. It ends with the test.
pub(crate) async fn start(target: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(pass(client, target.clone()));
        }
    });
    address
}

/// Passes one request on, and all that comes back.
async fn pass(client: TcpStream, target: String) -> std::io::Result<()> {
    let mut client = BufReader::new(client);
    let mut head = String::new();
    while client.read_line(&mut head).await? > 2 {}
    let mut lines: Vec<&str> = head.trim_end().lines().collect();
    // The next request has to come through a connection of its own, for only the first is looked at.
    lines.retain(|line| !line.to_ascii_lowercase().starts_with("connection:"));
    let head = format!("{}\r\nX-Sandbox-Token: {TOKEN}\r\nConnection: close\r\n\r\n", lines.join("\r\n"));
    let mut gateway = TcpStream::connect(target).await?;
    gateway.write_all(head.as_bytes()).await?;
    copy_bidirectional(&mut client, &mut gateway).await?;
    Ok(())
}
