//! A client of the gateway that speaks just enough MCP to call tools, in either era of the protocol.

use serde_json::{Value, json};

/// What a tool answered.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The whole `result`.
    pub result: Value,
}

impl Answer {
    /// All text of the answer.
    pub fn text(&self) -> String {
        let blocks = self.result["content"].as_array().cloned().unwrap_or_default();
        blocks.iter().filter_map(|block| block["text"].as_str()).collect()
    }

    /// The typed object: the structured content of tools that return records, else the one in `_meta`.
    pub fn object(&self) -> Value {
        match &self.result["structuredContent"] {
            Value::Null => self.result["_meta"]["runlet/result"].clone(),
            object => object.clone(),
        }
    }

    /// Whether the tool failed.
    pub fn is_error(&self) -> bool {
        self.result["isError"] == json!(true)
    }

    /// The object of a tool that must not have failed.
    #[track_caller]
    pub fn expect(self) -> Value {
        assert!(!self.is_error(), "the tool failed: {}", self.text());
        self.object()
    }

    /// The error object `{code, message, retryable, next}` of a tool that must have failed.
    #[track_caller]
    pub fn expect_error(self) -> Value {
        assert!(self.is_error(), "the tool did not fail: {}", self.result);
        self.object()
    }
}

/// A client with its token.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    /// The endpoint, ending in `/mcp`.
    pub url: String,
    /// The token it sends.
    pub token: String,
}

impl Client {
    /// A client of the gateway at `base`, such as `http://127.0.0.1:8000`.
    pub fn new(base: &str, token: &str) -> Self {
        crate::install_tls();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { http, url: format!("{base}/mcp"), token: token.to_owned() }
    }

    /// Sends a JSON-RPC request of the era before 2026 and returns the HTTP answer.
    pub async fn post(&self, body: &Value) -> reqwest::Result<reqwest::Response> {
        self.http
            .post(&self.url)
            .header("X-Sandbox-Token", &self.token)
            .header("Accept", "application/json, text/event-stream")
            .json(body)
            .send()
            .await
    }

    /// Calls a tool and returns the JSON-RPC answer. An answer that came as an event stream is unwrapped.
    pub async fn rpc(&self, method: &str, params: Value) -> Result<Value, String> {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let response = self.post(&body).await.map_err(|error| format!("{error:?}"))?;
        let status = response.status();
        let text = response.text().await.map_err(|error| format!("{error:?}"))?;
        let data = text.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
        let parsed = std::iter::once(text.trim())
            .chain(data)
            .filter_map(|part| serde_json::from_str::<Value>(part).ok())
            .find(|message| message.get("result").is_some() || message.get("error").is_some());
        parsed.ok_or_else(|| format!("{status}: {text}"))
    }

    /// Calls a tool.
    #[track_caller]
    pub fn call(&self, tool: &str, arguments: Value) -> impl Future<Output = Answer> + Send + use<> {
        let (this, tool) = (self.clone(), tool.to_owned());
        async move {
            let answer = this.rpc("tools/call", json!({ "name": tool, "arguments": arguments })).await;
            let answer = answer.unwrap_or_else(|problem| panic!("{tool}: {problem}"));
            assert!(answer.get("result").is_some(), "{tool}: {answer}");
            Answer { result: answer["result"].clone() }
        }
    }

    /// Runs a command with the defaults and returns the job.
    pub async fn run(&self, workspace: &str, command: &str) -> Value {
        self.call("run_command", json!({ "workspace_id": workspace, "command": command, "wait_seconds": 50 }))
            .await
            .expect()
    }

    /// Makes a scratch workspace without Python, which is quick, and returns its id.
    pub async fn workspace(&self) -> String {
        let made = self.call("create_workspace", json!({ "python": false })).await.expect();
        made["workspace_id"].as_str().expect("a workspace id").to_owned()
    }

    /// Everything a job has printed.
    pub async fn output(&self, job_id: &str) -> String {
        let read = json!({ "job_id": job_id, "max_output_bytes": 524_288 });
        self.call("read_output", read).await.expect()["output"].as_str().unwrap_or_default().to_owned()
    }
}
