"""The peer of the benches: a server on the official Python SDK with one tool, as small as it can be."""

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT

import uvicorn
from mcp.server.mcpserver import MCPServer

server = MCPServer("peer", log_level="WARNING")


@server.tool()
async def run_command(command: str) -> dict[str, int | str]:
    """Runs a command with bash and returns its exit code and its output."""
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", command, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT
    )
    output, _ = await process.communicate()
    return {"exit_code": process.returncode, "output": output.decode(errors="replace")}


app = server.streamable_http_app(stateless_http=True, json_response=True)
# Connections rest while the other side of the comparison has its turn.
uvicorn.run(app, port=int(sys.argv[1]), log_level="warning", timeout_keep_alive=600)
