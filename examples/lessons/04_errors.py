"""Lesson 4: errors of both kinds.

Teaches: an error of the protocol says that the request could not be done at all: it is
for the program, and has a code. A tool that ran and failed is a *result* with isError:
that is for the model, which may read it and try again with other arguments. From here
on mcp_lite has the conversation, and explains it, each thing once; lines that begin
with *** are of the programs themselves. Client(server) keeps both sides in this one
process: the messages are the same, without a pipe. The transcript leaves out `_meta`,
and the opening that lesson 2 has shown. Put trace=print in place of trace=explainer,
and you see every message whole.

Run: python3 examples/lessons/04_errors.py
"""

import logging
import os
import queue
import sys
import traceback

# mcp_lite.py is two folders up, explain.py one.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
sys.path.insert(0, os.path.dirname(os.path.dirname(HERE)))

from explain import Explainer  # noqa: E402

from mcp_lite import Client, McpError, Server, ToolError  # noqa: E402

# Lesson 2 has shown these. The token is in each request; lesson 5 is about it.
OPENING = ("initialize", "notifications/initialized", "server/discover")
explainer = Explainer(without=(*OPENING, "progressToken"))
server = Server("shop", version="1")
log = queue.Queue()


class Log(logging.Handler):
    """Keeps what the server tells to nobody but those who run it."""

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
    print("The client reads the list: has a tool promised a schema of its values?")
    client.list_tools()
    call("It does well: a result", "price", item="tea")
    call("It fails, and says so: a result with isError", "price", item="coal")
    call("It has a bug: the same, but nobody meant to say it", "price", item="anvil")
    record = log.get(timeout=10)
    # Of its traceback, the last line is of this program, the others of the library.
    place = traceback.extract_tb(record.exc_info[2])[-1]
    print("*** and in the log of the server:", record.getMessage())
    print(f"*** at line {place.lineno}, in {place.name}: {place.line}")
    call("There is no such tool: an error", "prize", item="tea")
    call("Arguments that do not fit: in this revision, an error ...", "price", item=7)

print("\n" + "-" * 72)
print("Since 2025-11-25, bad arguments are a result. (Here it is the newest revision.)")
with Client(server, trace=explainer) as client:
    call("... but here the model reads what was wrong", "price", item=7)

# Exercises
# 1. Server("shop", mask_errors=True) hides what the bug said. From whom, and why would
#    you want that? Where do you read it instead?
# 2. Give the shop a resource: @server.resource("shop://hours"). Which code does an
#    unknown URI then give, client.read("no://where"), in each of the two revisions? And
#    what is the error without any resource?
