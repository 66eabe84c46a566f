"""Lesson 4: errors of both kinds.

Teaches: a protocol error says that the request could not be carried out at all. It is for
the program, and has a code. A tool that ran and failed gives a *result* with isError. That
is for the model, which may read it and try again with other arguments. From here on,
mcp_lite holds the conversation and explains each thing once; lines that begin with ***
come from the programs themselves. Client(server) keeps both sides in this process: the
messages are the same, without a pipe. The transcript leaves out `_meta`, and the opening
that lesson 2 has shown. Write trace=print instead of trace=explainer to see every message
in full.

Run: python3 examples/lessons/04_errors.py
"""

import logging
import os
import queue
import sys
import traceback

# mcp_lite.py is two folders up, explain.py one.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.dirname(HERE))
sys.path.insert(1, os.path.dirname(os.path.dirname(HERE)))

from explain import Explainer  # noqa: E402

from mcp_lite import Client, McpError, Server, ToolError  # noqa: E402

# Lesson 2 has shown these. Each request has the token; lesson 5 is about it.
OPENING = ("initialize", "notifications/initialized", "server/discover")
explainer = Explainer(without=(*OPENING, "progressToken"))
server = Server("shop", version="1")
log = queue.Queue()


class Log(logging.Handler):
    """Stores the server's log, which only those who run the server can read."""

    def emit(self, record):
        log.put(record)


logging.getLogger("mcp_lite").addHandler(Log())


@server.tool
def price(item: str, count: int = 1) -> int:
    """The price of some items, in cents."""
    if item == "anvil":
        return 1 // 0  # a bug
    if item != "tea":
        # For the model: what is wrong, and what would be right.
        raise ToolError(f"no {item} here; there is tea")
    return 300 * count


def call(what, *arguments, **named):
    print(f"\n{what}")
    try:
        print("*** value:", client.call(*arguments, **named))
    except ToolError as error:
        print("*** ToolError, for the model:", error)
    except McpError as error:
        print(f"*** {type(error).__name__}, code {error.code}, for you:", error)


print("In a session:")
with Client(server, protocol_version="2025-06-18", trace=explainer) as client:
    print("The client reads the list: which tools promise a schema of their values?")
    client.list_tools()
    call("It succeeds: a result", "price", item="tea")
    call("It fails, and says so: a result with isError", "price", item="coal")
    call("It has a bug: the same, though nobody planned it", "price", item="anvil")
    record = log.get(timeout=10)
    # The last line of its traceback is in this program, the others in the library.
    place = traceback.extract_tb(record.exc_info[2])[-1]
    print("*** and in the log of the server:", record.getMessage())
    print(f"*** at line {place.lineno}, in {place.name}: {place.line}")
    call("There is no such tool: an error", "prize", item="tea")
    call("Arguments that do not fit: an error, in this revision", "price", item=7)

print("\n" + "-" * 72)
print("Since 2025-11-25, bad arguments give a result. (This is the newest revision.)")
with Client(server, trace=explainer) as client:
    call("Here the model reads what was wrong", "price", item=7)

# Exercises
# 1. Server("shop", mask_errors=True) hides what the bug said. From whom, and why would
#    you want that? Where can you read it instead?
# 2. Give the shop a resource: @server.resource("shop://hours"). Which code do you get for
#    an unknown URI, client.read("no://where"), in each of the two revisions? Which error
#    do you get without any resource?
