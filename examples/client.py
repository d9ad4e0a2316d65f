"""Runs Python in a fresh workspace of a Runlet server and prints what it printed.

RUNLET_URL is the server's MCP endpoint (by default http://127.0.0.1:8000/mcp), SANDBOX_TOKEN the token it wants.
"""

import asyncio
import os
import sys

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

URL = os.environ.get("RUNLET_URL") or "http://127.0.0.1:8000/mcp"

PROGRAM = """
import platform
print("Hello from Python", platform.python_version(), "on", platform.system())
"""


def text_of(answer):
    """The text of a tool's answer; that of a failed tool is raised."""
    text = "".join(block.text for block in answer.content if block.type == "text")
    if answer.is_error:
        raise RuntimeError(text)
    return text


async def run_python(client):
    created = await client.call_tool("create_workspace", {})
    text_of(created)
    workspace = {"workspace_id": created.structured_content["workspace_id"]}
    try:
        # A slow machine may need more time than a call has for the first Python environment.
        while created.structured_content["status"] == "creating":
            await asyncio.sleep(1)
            created = await client.call_tool("get_workspace", workspace)
        text_of(await client.call_tool("write_file", {**workspace, "path": "hello.py", "content": PROGRAM}))
        # Waits up to 50 s here; what takes longer goes on, and read_output(job_id) follows it.
        ran = await client.call_tool("run_command", {**workspace, "command": "python hello.py", "wait_seconds": 50})
        print(text_of(ran))
    finally:
        await client.call_tool("delete_workspace", workspace)


async def raise_refusal(response):
    if response.status_code == 401:
        raise PermissionError("SANDBOX_TOKEN was refused; it must be the token that the server was started with")


async def main():
    token = os.environ.get("SANDBOX_TOKEN")
    if not token:
        raise PermissionError("SANDBOX_TOKEN is not set; set it to the token that the server was started with")
    headers = {"X-Sandbox-Token": token}
    # A call may wait 50 s for its command.
    timeout = httpx2.Timeout(30, read=120)
    hooks = {"response": [raise_refusal]}
    async with httpx2.AsyncClient(headers=headers, timeout=timeout, event_hooks=hooks) as http:
        async with Client(streamable_http_client(URL, http_client=http)) as client:
            await run_python(client)


def first(error):
    """The first of a group of errors, which is how tasks fail."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except Exception as error:
        sys.exit(f"{URL}: {first(error)}")
