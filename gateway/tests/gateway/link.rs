//! The link to the executor, against a server that speaks the wire as the executor does.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use runlet_proto::{
    SECRET_METADATA_KEY,
    v1::{
        CreateWorkspaceRequest, CreateWorkspaceResponse, DeleteWorkspaceRequest, DeleteWorkspaceResponse,
        GetWorkspaceRequest, GetWorkspaceResponse, ListWorkspacesRequest, ListWorkspacesResponse, Workspace,
        workspace_service_server::{WorkspaceService, WorkspaceServiceServer},
    },
};
use serde_json::json;
use tokio::{net::UnixListener, runtime::Runtime, sync::Notify};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status, service::interceptor::InterceptedService, transport::Server};

use crate::support::{Gateway, text};

/// Answers lists; counts creations, says that one came, and lets it wait for ever.
#[derive(Default)]
struct Workspaces {
    created: AtomicUsize,
    came: Notify,
}

#[tonic::async_trait]
impl WorkspaceService for Workspaces {
    async fn create_workspace(
        &self,
        _: Request<CreateWorkspaceRequest>,
    ) -> Result<Response<CreateWorkspaceResponse>, Status> {
        self.created.fetch_add(1, Ordering::SeqCst);
        self.came.notify_one();
        std::future::pending().await
    }

    async fn list_workspaces(
        &self,
        _: Request<ListWorkspacesRequest>,
    ) -> Result<Response<ListWorkspacesResponse>, Status> {
        let workspace = Workspace { workspace_id: "ws_a".to_owned(), ..Workspace::default() };
        Ok(Response::new(ListWorkspacesResponse {
            workspaces: vec![workspace],
            next_page_token: String::new(),
        }))
    }

    async fn get_workspace(
        &self,
        _: Request<GetWorkspaceRequest>,
    ) -> Result<Response<GetWorkspaceResponse>, Status> {
        self.came.notify_one();
        std::future::pending().await
    }

    async fn delete_workspace(
        &self,
        _: Request<DeleteWorkspaceRequest>,
    ) -> Result<Response<DeleteWorkspaceResponse>, Status> {
        Err(Status::unimplemented("not asked for"))
    }
}

/// A server with a runtime of its own, so that it can end as a killed process does.
struct Executor {
    runtime: Runtime,
    workspaces: Arc<Workspaces>,
}

impl Executor {
    fn start(socket: &Path, secret: &'static str) -> Self {
        let _absent = std::fs::remove_file(socket);
        std::fs::write(format!("{}.secret", socket.display()), format!("{secret}\n")).unwrap();
        let runtime = Runtime::new().unwrap();
        let workspaces = Arc::new(Workspaces::default());
        let entered = runtime.enter();
        let listener = UnixListenerStream::new(UnixListener::bind(socket).unwrap());
        drop(entered);
        let service = WorkspaceServiceServer::from_arc(Arc::clone(&workspaces));
        let guarded = InterceptedService::new(service, move |request: Request<()>| {
            let given = request.metadata().get(SECRET_METADATA_KEY).map(|value| value.as_bytes().to_vec());
            if given.as_deref() == Some(secret.as_bytes()) {
                Ok(request)
            } else {
                Err(Status::unauthenticated("no"))
            }
        });
        runtime.spawn(Server::builder().add_service(guarded).serve_with_incoming(listener));
        Self { runtime, workspaces }
    }

    fn kill(self) {
        self.runtime.shutdown_background();
    }
}

#[tokio::test]
async fn link_heals_after_a_restart_with_a_new_secret() {
    let gateway = Gateway::start(&[]).await;
    let executor = Executor::start(&gateway.socket(), "first");
    let result = gateway.call("list_workspaces", json!({})).await;
    assert_eq!(result["structuredContent"]["workspaces"][0]["workspace_id"], "ws_a", "{result}");
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(text(&result)).unwrap(),
        result["structuredContent"]
    );
    executor.kill();
    let executor = Executor::start(&gateway.socket(), "second");
    let start = Instant::now();
    let result = gateway.call("list_workspaces", json!({})).await;
    assert_eq!(result["isError"], false, "{result}");
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    executor.kill();
}

#[tokio::test]
async fn call_waits_for_an_executor_that_is_starting() {
    let gateway = Gateway::start(&[]).await;
    let socket = gateway.socket();
    let start = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Executor::start(&socket, "secret")
    };
    let (result, executor) = tokio::join!(gateway.call("list_workspaces", json!({})), start);
    assert_eq!(result["isError"], false, "{result}");
    executor.kill();
}

#[tokio::test]
async fn change_whose_fate_is_unknown_is_not_sent_again() {
    let gateway = Gateway::start(&[]).await;
    let executor = Executor::start(&gateway.socket(), "secret");
    let workspaces = Arc::clone(&executor.workspaces);
    let kill = async {
        workspaces.came.notified().await;
        executor.kill();
        Executor::start(&gateway.socket(), "secret")
    };
    let (result, executor) = tokio::join!(gateway.call("create_workspace", json!({})), kill);
    assert!(text(&result).starts_with("EXECUTOR_UNAVAILABLE: "), "{result}");
    assert_eq!(workspaces.created.load(Ordering::SeqCst), 1);
    assert_eq!(executor.workspaces.created.load(Ordering::SeqCst), 0);
    executor.kill();
}

#[tokio::test]
async fn http_05_client_that_goes_away_ends_the_wait() {
    let gateway = Gateway::start(&[]).await;
    let executor = Executor::start(&gateway.socket(), "secret");
    let call = gateway.call("get_workspace", json!({ "workspace_id": "w" }));
    tokio::select! {
        result = call => panic!("it answers never, but gave {result}"),
        () = executor.workspaces.came.notified() => {}
    }
    // The connection is closed with the call; the gateway lives and serves others.
    let result = gateway.call("list_workspaces", json!({})).await;
    assert_eq!(result["isError"], false, "{result}");
    executor.kill();
}

#[tokio::test]
async fn wrong_secret_is_a_clear_error() {
    let gateway = Gateway::start(&[]).await;
    let executor = Executor::start(&gateway.socket(), "secret");
    std::fs::write(gateway.directory.path().join("executor.sock.secret"), "another").unwrap();
    let result = gateway.call("list_workspaces", json!({})).await;
    assert!(text(&result).starts_with("UNAUTHENTICATED: "), "{result}");
    assert!(text(&result).contains("RUNLET_EXECUTOR_SECRET_FILE"));
    executor.kill();
}
