"""Does the main job through the official Python SDK, either line of it, and prints what was seen as a JSON object.

Usage: main_job.py ERA, where ERA is auto, legacy or 2026-07-28; RUNLET_URL and SANDBOX_TOKEN say where. With
RUNLET_PROGRAM it speaks to `runlet mcp`, started from there, on standard input and output.
"""

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib.metadata import version

HEADERS = {"X-Sandbox-Token": os.environ["SANDBOX_TOKEN"]}
URL = os.environ["RUNLET_URL"]
PROGRAM = os.environ.get("RUNLET_PROGRAM")


def program():
    from mcp import StdioServerParameters

    env = {name: os.environ[name] for name in ("RUNLET_URL", "SANDBOX_TOKEN")}
    return StdioServerParameters(command=PROGRAM, args=["mcp"], env=env)


class Runlet:
    """The tools, on either line of the SDK."""

    def __init__(self, client, protocol):
        self.client = client
        self.protocol = protocol

    async def tools(self):
        return [tool.name for tool in (await self.client.list_tools()).tools]

    async def call(self, tool, progress=None, **arguments):
        """The text and the object of an answer."""
        answer = await self.client.call_tool(tool, arguments, progress_callback=progress)
        answer = answer.model_dump(mode="json", by_alias=True)
        text = "".join(block.get("text", "") for block in answer["content"])
        record = answer.get("structuredContent") or (answer.get("_meta") or {}).get("runlet/result")
        return ("error" if answer.get("isError") else text), record


@asynccontextmanager
async def line_2(era):
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    if PROGRAM:
        async with Client(program(), mode=era) as client:
            yield Runlet(client, client.protocol_version)
        return
    async with httpx2.AsyncClient(headers=HEADERS, timeout=httpx2.Timeout(30, read=300)) as http:
        async with Client(streamable_http_client(URL, http_client=http), mode=era) as client:
            yield Runlet(client, client.protocol_version)


@asynccontextmanager
async def line_1(era):
    from mcp import ClientSession
    from mcp.client.streamable_http import streamablehttp_client

    assert era == "legacy", "this line knows no other era"
    if PROGRAM:
        from mcp.client.stdio import stdio_client

        connection = stdio_client(program())
    else:
        connection = streamablehttp_client(URL, headers=HEADERS)
    async with connection as (reader, writer, *_):
        async with ClientSession(reader, writer, read_timeout_seconds=timedelta(seconds=60)) as session:
            yield Runlet(session, (await session.initialize()).protocolVersion)


async def main_job(runlet):
    call, seen = runlet.call, {"protocol": runlet.protocol, "tools": await runlet.tools()}
    _, made = await call("create_workspace", name="python", python=False)
    workspace = made["workspace_id"]

    # Each command waits for the other.
    pair = [
        call("run_command", workspace_id=workspace, wait_seconds=20, command=command)
        for command in (
            "touch a; until [ -e b ]; do sleep 0.02; done; echo one",
            "touch b; until [ -e a ]; do sleep 0.02; done; echo two",
        )
    ]
    seen["parallel"] = [job["output"] for _, job in await asyncio.gather(*pair)]

    command = "echo first; until [ -e go ]; do sleep 0.02; done; echo second; exit 5"
    _, job = await call("run_command", workspace_id=workspace, wait_seconds=0, command=command)
    read = {"job_id": job["job_id"], "wait_seconds": 20}
    _, first = await call("read_output", **read, until="first\n")
    await call("write_file", workspace_id=workspace, path="go", content="")
    _, rest = await call("read_output", **read, cursor=first["next_cursor"], until="second\n")
    while rest["status"] == "running":
        _, last = await call("read_output", **read, cursor=rest["next_cursor"])
        rest = {**last, "output": rest["output"] + last["output"]}
    seen["growing"] = [first["output"], rest["output"]]
    seen["exit_code"] = rest["exit_code"]

    # The answer to a call of more than 3 s comes as a stream of events.
    progress = []

    async def note(now, total, message):
        progress.append(now)

    slow = {"workspace_id": workspace, "wait_seconds": 20, "command": "sleep 4; echo late"}
    late = await asyncio.gather(call("run_command", **slow), call("run_command", progress=note, **slow))
    seen["late"] = [job["output"] for _, job in late]
    seen["progress"] = len(progress)

    file = {"workspace_id": workspace, "path": "notes/zwölf.txt"}
    _, written = await call("write_file", **file, content="eleven\nzwölf\n")
    edits = [{"old_text": "eleven", "new_text": "elf"}]
    seen["diff"], _ = await call("edit_file", **file, edits=edits, if_match=written["sha256"])
    seen["text"], _ = await call("read_file", **file)

    _, gone = await call("delete_workspace", workspace_id=workspace)
    seen["deleted"] = gone["workspace_id"] == workspace
    seen["after"], error = await call("get_workspace", workspace_id=workspace)
    seen["code"] = error["code"]
    return seen


async def main():
    line = line_1 if version("mcp").startswith("1.") else line_2
    async with line(sys.argv[1]) as runlet:
        print(json.dumps(await main_job(runlet)))


asyncio.run(main())
