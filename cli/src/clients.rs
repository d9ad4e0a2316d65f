//! Ready-made configuration of the clients that people use.

use serde_json::json;

/// What to paste where, for an endpoint and its token.
pub(crate) fn instructions(url: &str, token: &str) -> String {
    let header = format!("X-Sandbox-Token: {token}");
    let cursor =
        json!({ "mcpServers": { "runlet": { "url": url, "headers": { "X-Sandbox-Token": token } } } });
    let code = json!({ "servers": { "runlet": { "type": "http", "url": url, "headers": { "X-Sandbox-Token": token } } } });
    format!(
        "Claude Code   claude mcp add --transport http runlet {url} --header \"{header}\"\n\
         \n\
         Codex         in ~/.codex/config.toml:\n\
         [mcp_servers.runlet]\n\
         url = \"{url}\"\n\
         http_headers = {{ \"X-Sandbox-Token\" = \"{token}\" }}\n\
         \n\
         Cursor        in ~/.cursor/mcp.json:\n\
         {cursor}\n\
         \n\
         VS Code       in .vscode/mcp.json:\n\
         {code}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_client_gets_the_endpoint_and_the_token() {
        let text = instructions("http://127.0.0.1:8000/mcp", "SECRET");
        assert_eq!(text.matches("http://127.0.0.1:8000/mcp").count(), 4);
        assert_eq!(text.matches("SECRET").count(), 4);
    }
}
