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
PYTHON_TEST = """
import six

def test_six():
    assert six.ensure_str(b"a") == "a"
"""
SETUP = [
    "npm install --no-audit --no-fund",
    "python3 -m venv env && env/bin/pip install -q six==1.16.0 pytest==8.3.4",
]


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

            # What both projects need is installed once; each test has it at once.
            blueprint = {"files": {"/home/user/package.json": json.dumps(PACKAGE)}, "setup_commands": SETUP}
            built = await call("create_blueprint", name="projects", **blueprint)
            while built["status"] == "building":
                await asyncio.sleep(1)
                built = await call("get_blueprint", name="projects")
            assert built["status"] == "ready", built["build_log"]

            files = {"/home/user/app.test.js": TEST}
            sandbox = await call("create_sandbox", blueprint="projects", files=files)
            command = "cd /home/user && npm test"
            tested = await call("execute_in_sandbox", sandbox_id=sandbox["id"], command=command)
            report = await call("download_artifact", sandbox_id=sandbox["id"], file_path="/home/user/report.xml")
            ended = await call("shutdown_sandbox", sandbox_id=sandbox["id"])
            files = {"/home/user/test_six.py": PYTHON_TEST}
            python = await call("run_code", blueprint="projects", files=files, command="env/bin/pytest -q test_six.py")
            print(
                json.dumps(
                    {
                        "ran": ran["job"]["output"],
                        "isolation": sandbox["isolation"],
                        "tested": [tested["exit_code"], tested["output"]],
                        "report": base64.b64decode(report["content"]).decode(),
                        "python": python["job"]["output"],
                        "ended": ended["status"],
                    }
                )
            )


asyncio.run(main())
