"""Does what prompts for hosted services do with sandboxes, through the official Python SDK, and prints what came of it.

RUNLET_URL and SANDBOX_TOKEN say where.
"""

import asyncio
import base64
import json
import os

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

HEADERS = {"X-Sandbox-Token": os.environ["SANDBOX_TOKEN"]}

PACKAGE = {
    "name": "app",
    "version": "1.0.0",
    "scripts": {"test": "node app.test.js > report.xml"},
    "dependencies": {"is-number": "7.0.0"},
}
TEST = """
const isNumber = require("is-number");
if (!isNumber(4) || isNumber("four")) process.exit(1);
console.log('<testcase name="numbers"/>');
"""


async def main():
    async with httpx2.AsyncClient(headers=HEADERS, timeout=httpx2.Timeout(30, read=300)) as http:
        async with Client(streamable_http_client(os.environ["RUNLET_URL"], http_client=http)) as client:

            async def call(tool, **arguments):
                answer = await client.call_tool(tool, arguments)
                answer = answer.model_dump(mode="json", by_alias=True)
                record = answer.get("structuredContent") or answer["_meta"]["runlet/result"]
                assert not answer.get("isError"), record
                return record

            app = {"/home/user/test_app.py": "assert 2 + 2 == 4\nprint('passed')\n"}
            ran = await call("run_code", files=app, command="python3 /home/user/test_app.py")

            files = {"/home/user/package.json": json.dumps(PACKAGE), "/home/user/app.test.js": TEST}
            sandbox = await call("create_sandbox", files=files)
            command = "cd /home/user && npm install --no-audit --no-fund && npm test"
            tested = await call("execute_in_sandbox", sandbox_id=sandbox["id"], command=command)
            report = await call("download_artifact", sandbox_id=sandbox["id"], file_path="/home/user/report.xml")
            venv = "python3 -m venv env && env/bin/pip install -q six==1.16.0 && env/bin/python -c 'import six; print(six.__version__)'"
            python = await call("execute_in_sandbox", sandbox_id=sandbox["id"], command=venv)
            while python["status"] == "running":
                python = await call("read_output", job_id=python["job_id"], wait_seconds=20)
            ended = await call("shutdown_sandbox", sandbox_id=sandbox["id"])
            print(
                json.dumps(
                    {
                        "ran": ran["job"]["output"],
                        "isolation": sandbox["isolation"],
                        "tested": [tested["exit_code"], tested["output"]],
                        "report": base64.b64decode(report["content"]).decode(),
                        "python": python["output"],
                        "ended": ended["status"],
                    }
                )
            )


asyncio.run(main())
