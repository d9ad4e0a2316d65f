// Does the main job through the official TypeScript SDK, either line of it, and prints what was seen as a JSON object.
// Usage: main_job.mjs LINE ERA, where LINE is 1 or 2 and ERA is auto, legacy or 2026-07-28; RUNLET_URL and SANDBOX_TOKEN
// say where.

const [line, era] = process.argv.slice(2);
const url = new URL(process.env.RUNLET_URL);
const requestInit = { headers: { "X-Sandbox-Token": process.env.SANDBOX_TOKEN } };

const connect = { 1: connectLine1, 2: connectLine2 }[line];
const client = await connect({ name: "main-job", version: "1" });
try {
  console.log(JSON.stringify(await mainJob()));
} finally {
  await client.close();
}

async function connectLine2(self) {
  const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
  // Without a mode it speaks the era before 2026.
  const mode = { legacy: undefined, auto: "auto" };
  const versionNegotiation = { mode: era in mode ? mode[era] : { pin: era } };
  const client = new Client(self, { versionNegotiation });
  await client.connect(new StreamableHTTPClientTransport(url, { requestInit }));
  return Object.assign(client, {
    protocol: client.getNegotiatedProtocolVersion(),
    ask: (params, options) => client.callTool(params, options),
  });
}

async function connectLine1(self) {
  const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
  const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
  if (era !== "legacy") throw new Error("this line knows no other era");
  const client = new Client(self);
  const transport = new StreamableHTTPClientTransport(url, { requestInit });
  await client.connect(transport);
  return Object.assign(client, {
    protocol: transport.protocolVersion,
    ask: (params, options) => client.callTool(params, undefined, options),
  });
}

// The text and the object of an answer.
async function call(name, args, onprogress) {
  const answer = await client.ask({ name, arguments: args }, onprogress && { onprogress });
  const text = answer.content.map((block) => block.text ?? "").join("");
  const record = answer.structuredContent ?? answer._meta?.["runlet/result"];
  return [answer.isError ? "error" : text, record];
}

async function mainJob() {
  const { tools } = await client.listTools();
  const seen = { protocol: client.protocol, tools: tools.map((tool) => tool.name) };
  const [, made] = await call("create_workspace", { name: "typescript", python: false });
  const workspace_id = made.workspace_id;

  // Each command waits for the other.
  const pair = [
    "touch a; until [ -e b ]; do sleep 0.02; done; echo one",
    "touch b; until [ -e a ]; do sleep 0.02; done; echo two",
  ].map((command) => call("run_command", { workspace_id, command, wait_seconds: 20 }));
  seen.parallel = (await Promise.all(pair)).map(([, job]) => job.output);

  const command = "echo first; until [ -e go ]; do sleep 0.02; done; echo second; exit 5";
  const [, job] = await call("run_command", { workspace_id, command, wait_seconds: 0 });
  const read = { job_id: job.job_id, wait_seconds: 20 };
  const [, first] = await call("read_output", { ...read, until: "first\n" });
  await call("write_file", { workspace_id, path: "go", content: "" });
  let [, rest] = await call("read_output", { ...read, cursor: first.next_cursor, until: "second\n" });
  while (rest.status === "running") {
    const [, last] = await call("read_output", { ...read, cursor: rest.next_cursor });
    rest = { ...last, output: rest.output + last.output };
  }
  seen.growing = [first.output, rest.output];
  seen.exit_code = rest.exit_code;

  // The answer to a call of more than 3 s comes as a stream of events.
  const slow = { workspace_id, command: "sleep 4; echo late", wait_seconds: 20 };
  seen.progress = 0;
  const late = [call("run_command", slow), call("run_command", slow, () => seen.progress++)];
  seen.late = (await Promise.all(late)).map(([, job]) => job.output);

  const file = { workspace_id, path: "notes/zwölf.txt" };
  const [, written] = await call("write_file", { ...file, content: "eleven\nzwölf\n" });
  const edits = [{ old_text: "eleven", new_text: "elf" }];
  [seen.diff] = await call("edit_file", { ...file, edits, if_match: written.sha256 });
  [seen.text] = await call("read_file", file);

  const [, gone] = await call("delete_workspace", { workspace_id });
  seen.deleted = gone.workspace_id === workspace_id;
  const [after, error] = await call("get_workspace", { workspace_id });
  return Object.assign(seen, { after, code: error.code });
}
