"""A server behind gunicorn, in several processes and on several machines.

Teaches: how to scale out. Every request of 2026-07-28 stands alone, so any process may
answer it. The state between a question and its answer travels in `requestState`, which
all processes sign with one key. A session would stay in the process that opened it, so
older clients are served without one: they can call tools, but cannot be asked anything.

gunicorn differs from `server.run("http")` in one respect: a client that hangs up cancels
nothing, because WSGI notices only when a write fails. A tool that may take long should
therefore report its progress (each report is a write), and have a `timeout=`. A stream
that only listens would occupy a thread for hours, so it is refused here.

Run in examples/:
MCP_STATE_KEY=$(openssl rand -hex 32) gunicorn -w 2 --threads 8 wsgi_app:app
"""

import os
import sys

# mcp_lite.py is in this folder, or one up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.dirname(HERE))

from mcp_lite import Context, McpError, Server  # noqa: E402

server = Server("scaled-out", version="1.0", state_key=os.environ["MCP_STATE_KEY"])


@server.middleware
def refuse_listening(ctx, method, params, call_next):
    """Each stream would occupy one of a few threads. Clients can do without: they ask for
    the lists again."""
    if method == "subscriptions/listen":
        raise McpError(-32601, "this server sends no notifications: poll its lists")
    return call_next()


@server.tool
def which_process() -> int:
    """Return the id of the process that answers."""
    return os.getpid()


@server.tool
def greet(ctx: Context) -> str:
    """Ask for a name, and greet. The answer may reach another process."""
    # The function runs again with the answer, and ctx.once returns the first run's value.
    asked_by = ctx.once("asked_by", os.getpid)
    form = {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
    }
    answer = ctx.elicit("What is your name?", form)
    if answer["action"] != "accept":
        return "Goodbye."
    name = answer["content"]["name"]
    return f"Hello, {name}! Process {asked_by} asked, {os.getpid()} greets."


# The names by which clients reach this server, separated by commas. Requests for any
# other host are refused. Without a name, only this machine can call.
names = os.environ.get("MCP_HOSTS", "")
app = server.wsgi_app(allowed_hosts=names.split(",") if names else [])
