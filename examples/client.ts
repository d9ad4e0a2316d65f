// Runs Python in a fresh workspace of a Runlet server and prints what it printed.
// RUNLET_URL is the server's MCP endpoint (by default http://127.0.0.1:8000/mcp), SANDBOX_TOKEN the token it wants.

import { setTimeout as sleep } from "node:timers/promises";

import { Client, SdkHttpError, StreamableHTTPClientTransport, type CallToolResult } from "@modelcontextprotocol/client";

const url = process.env.RUNLET_URL || "http://127.0.0.1:8000/mcp";

const program = `
import platform
print("Hello from Python", platform.python_version(), "on", platform.system())
`;

/** The text of a tool's answer; a failed tool is an error. */
function textOf(answer: CallToolResult): string {
  const text = answer.content.map((block) => (block.type === "text" ? block.text : "")).join("");
  if (answer.isError) throw new Error(text);
  return text;
}

async function runPython(client: Client): Promise<void> {
  const call = async (name: string, args: Record<string, unknown>): Promise<CallToolResult> =>
    (await client.callTool({ name, arguments: args })) as CallToolResult;

  let created = await call("create_workspace", {});
  textOf(created);
  const { workspace_id } = created.structuredContent as { workspace_id: string };
  try {
    // A slow machine may need more time than a call has for the first Python environment.
    while (created.structuredContent?.status === "creating") {
      await sleep(1000);
      created = await call("get_workspace", { workspace_id });
    }
    textOf(await call("write_file", { workspace_id, path: "hello.py", content: program }));
    // Waits up to 50 s here; what takes longer goes on, and read_output(job_id) follows it.
    console.log(textOf(await call("run_command", { workspace_id, command: "python hello.py", wait_seconds: 50 })));
  } finally {
    await call("delete_workspace", { workspace_id });
  }
}

async function main(): Promise<void> {
  const token = process.env.SANDBOX_TOKEN;
  if (!token) throw new Error("SANDBOX_TOKEN is not set; set it to the token that the server was started with");
  const requestInit = { headers: { "X-Sandbox-Token": token } };
  const client = new Client({ name: "runlet-example", version: "1.0.0" }, { versionNegotiation: { mode: "auto" } });
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
  try {
    await runPython(client);
  } finally {
    await client.close();
  }
}

/** What went wrong, in a line. */
function explain(error: unknown): string {
  if (error instanceof SdkHttpError && error.status === 401) {
    return "SANDBOX_TOKEN was refused; it must be the token that the server was started with";
  }
  let cause = error as Error & { code?: string };
  while (cause.cause instanceof Error) cause = cause.cause;
  return cause.message || cause.code || String(cause);
}

main().catch((error) => {
  console.error(`${url}: ${explain(error)}`);
  process.exitCode = 1;
});
