//! Finding the gateway, and saying plainly what is wrong.

use std::sync::Arc;

use rustix::process::Signal;
use support::{World, git::identity, world::TOKEN};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::{at, printed, runlet};

/// One sentence, and never the token.
fn plain(said: &str, part: &str) {
    assert!(said.starts_with("runlet: ") && said.lines().count() == 1 && said.contains(part), "{said}");
    assert!(!said.contains(TOKEN), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_said_in_a_sentence() {
    let mut world = World::start().await;
    let mut wrong = at(world.base(), &["ps"]);
    wrong.env("SANDBOX_TOKEN", "wrong-0123456789-0123456789-0123456789");
    let (_, said, code) = printed(wrong).await;
    plain(&said, "does not take the token from SANDBOX_TOKEN; give the right one with --token-file");
    assert!(code == Some(1) && !said.contains("wrong-"), "{said}");

    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut nobody = at(&format!("http://{free}"), &["ps"]);
    nobody.env("SANDBOX_TOKEN", TOKEN);
    let (_, said, code) = printed(nobody).await;
    plain(&said, "no gateway answers at http://127.0.0.1:");
    assert!(code == Some(1) && said.contains("`runlet up`"), "{said}");

    let (_, said, code) = printed(at(world.base(), &["ps"])).await;
    plain(&said, "/nowhere/token: no token to be had");
    assert_eq!(code, Some(2));
    for bad in [&["ps", "--url", "here"][..], &["logs"], &["attach", "--detach-key", "x", "term_a"]] {
        let (_, said, code) = printed(runlet(&world, bad)).await;
        assert!(code == Some(2) && !said.contains(TOKEN), "{said}");
    }
    for missing in [&["logs", "job_aaaaaaaaaaaa"][..], &["logs", "-f", "nobody"]] {
        let (_, said, code) = printed(runlet(&world, missing)).await;
        plain(&said, "`runlet ps -a`");
        assert_eq!(code, Some(1));
    }
    let (_, said, code) = printed(runlet(&world, &["attach", "nobody"])).await;
    plain(&said, "no terminal");
    assert_eq!(code, Some(1));

    world.signal_executor(Signal::TERM);
    world.executor_ended().await;
    let (_, said, code) = printed(runlet(&world, &["ps"])).await;
    plain(&said, "see whether runlet-executor runs");
    assert_eq!(code, Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_is_found_where_it_is_kept() {
    let world = World::start().await;
    let root = world.directory().join("kept");
    std::fs::create_dir(&root).unwrap();
    std::fs::write(root.join("token"), format!("{TOKEN}\n")).unwrap();
    let mut command = at(world.base(), &["ps"]);
    command.env("SANDBOX_ROOT", &root);
    assert_eq!(printed(command).await.2, Some(0));
    let file = root.join("token");
    let mut command = at(&format!("{}/mcp", world.base()), &["ps", "--token-file", file.to_str().unwrap()]);
    command.env("SANDBOX_TOKEN", "what is named goes first");
    assert_eq!(printed(command).await.2, Some(0));
    let mut command = at(world.base(), &["ps"]);
    command.env("SANDBOX_TOKEN_FILE", &file);
    assert_eq!(printed(command).await.2, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_behind_tls_is_trusted_by_its_authority() {
    let world = World::start().await;
    let ca_file = world.directory().join("ca.pem");
    let acceptor = TlsAcceptor::from(Arc::new(identity(&ca_file)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let gateway = world.base().trim_start_matches("http://").to_owned();
    tokio::spawn(async move {
        while let Ok((stream, _peer)) = listener.accept().await {
            let (acceptor, gateway) = (acceptor.clone(), gateway.clone());
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut behind = TcpStream::connect(gateway).await.unwrap();
                let _ended = tokio::io::copy_bidirectional(&mut stream, &mut behind).await;
            });
        }
    });
    let url = format!("https://localhost:{port}");
    let command = || {
        let mut command = at(&url, &["ps"]);
        command.env("SANDBOX_TOKEN", TOKEN);
        command
    };
    let mut trusting = command();
    trusting.env("SSL_CERT_FILE", &ca_file);
    let (shown, said, code) = printed(trusting).await;
    assert!(code == Some(0) && shown.starts_with("ID"), "{shown}{said}");
    let (_, said, code) = printed(command()).await;
    plain(&said, "can't be trusted");
    assert_eq!(code, Some(1));
}
