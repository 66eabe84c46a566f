"""A server with the extensions Tasks and Skills, for the official conformance suite.

Teaches: how to add an extension to a server: copy tasks.py or skills.py beside it, and
write two lines. The suite calls the other functions; each docstring says what it shows.

Run: python3 examples/small_extensions.py --http 8000
     npx @modelcontextprotocol/conformance server --suite all \\
         --url http://127.0.0.1:8000/mcp
It passes all scenarios tasks-* and sep-2640-*. For the scenarios of the protocol itself,
run everything_server.py.
"""

import argparse
import os
import pathlib
import sys
import tempfile

# mcp_lite.py is one folder up; tasks.py and skills.py are in this one.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

from skills import SKILLS, serve_skills  # noqa: E402
from tasks import TASKS, Tasks, address  # noqa: E402

from mcp_lite import Context, McpError, Server, ToolError  # noqa: E402

NAME = {"type": "object", "properties": {"name": {"type": "string"}}}
SURE = {"type": "object", "properties": {"confirm": {"type": "boolean"}}}
MAX_SECONDS = 60.0

server = Server(
    "extensions", version="1.0", extensions={TASKS: {}, SKILLS: {"directoryRead": True}}
)


@server.middleware
def ask_first(ctx: Context, method, params, call_next):
    """Ask before the task begins, as the middleware registered first runs first."""
    if method != "tools/call" or params.get("name") != "test_tool_with_task":
        return call_next()
    answer = ctx.elicit("What is your name?", NAME, key="user_name")
    name = (answer.get("content") or {}).get("name", "stranger")
    return call_next({**params, "arguments": {"user_name": name}})


Tasks(
    server,
    tools=[
        "slow_compute",
        "failing_job",
        "protocol_error_job",
        "confirm_delete",
        "multi_input",
        "test_tool_with_task",
    ],
    only=["failing_job"],
    poll=0.2,
)


@server.tool
def greet(name: str) -> str:
    """A call without a task."""
    return f"Hello, {name}!"


@server.tool
def slow_compute(ctx: Context, seconds: float = 1.0, label: str = "") -> str:
    """A task that takes as many seconds as the caller asks for."""
    ctx.sleep(max(0.0, min(seconds, MAX_SECONDS)))
    return f"{label or 'it'}: done after {seconds:g} s"


@server.tool
def failing_job() -> str:
    """A task that fails, with an error for the model. It cannot run without a task."""
    raise ToolError("This job always fails")


@server.tool
def protocol_error_job() -> str:
    """A task that ends with a protocol error."""
    raise McpError(-32603, "This job has no result")


@server.tool
def confirm_delete(filename: str, ctx: Context) -> str:
    """A task that asks a question."""
    answer = ctx.elicit(f"Delete {filename}?", SURE)
    is_sure = answer["action"] == "accept" and answer["content"].get("confirm") is True
    return f"{filename}: {'deleted' if is_sure else 'kept'}"


@server.tool
def multi_input(ctx: Context) -> str:
    """A task that asks two questions at once."""
    questions = {
        key: (
            "elicitation/create",
            {"mode": "form", "message": f"Your {key}?", "requestedSchema": NAME},
        )
        for key in ("first", "last")
    }
    return f"answered: {', '.join(sorted(ctx.ask(questions)))}"


@server.tool
def test_tool_with_task(user_name: str) -> str:
    """A task that begins after the answer to a question."""
    return f"Hello, {user_name}!"


def write_skill(folder):
    """Write a skill that consists of two files."""
    skill = pathlib.Path(folder, "tea")
    (skill / "references").mkdir(parents=True)
    (skill / "SKILL.md").write_text(
        "---\nname: tea\ndescription: Makes tea, when somebody is thirsty.\n---\n"
        "Boil water. See [the times](references/TIMES.md).\n"
    )
    (skill / "references" / "TIMES.md").write_text("Green: two minutes.\n")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.error = lambda why: sys.exit(f"small_extensions: {why}; see --help")
    parser.add_argument("--http", type=address, metavar="[HOST:]PORT")
    # The suite's runner gives the port alone.
    parser.add_argument(
        "port", nargs="?", type=address, help="the same, without --http"
    )
    options = parser.parse_args()
    host, port = options.http or options.port or ("127.0.0.1", 8000)
    with tempfile.TemporaryDirectory() as folder:
        write_skill(folder)
        serve_skills(server, folder)
        server.run("http", host=host, port=port)


if __name__ == "__main__":
    main()
