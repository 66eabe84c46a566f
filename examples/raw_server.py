"""A server without mcp_lite: the protocol in 40 statements.

Teaches: the core of a server, and how little it is when there is one tool. A line comes
in, a line goes out. A session needs a handshake; a request of 2026-07-28 needs none, as
its `_meta` says what the handshake would have said.

Run: echo '{"jsonrpc": "2.0", "id": 1, "method": "ping"}' | python3 examples/raw_server.py
     python3 -m mcp_lite call examples/raw_server.py add a=1 b=2

small_server.py has what else a server may need: HTTP, questions to the user, resources,
prompts, and a check that a session was opened before it is used. This server ends with
the first line that is not a message, and a slow tool blocks it.
"""

import json
import sys

LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN = ("2026-07-28",)
VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
TOOL = {
    "name": "add",
    "description": "Add two numbers.",
    "inputSchema": {
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
        "required": ["a", "b"],
    },
}
INFO = {"name": "raw", "version": "1.0"}
# Modern results have this, too.
COMPLETE = {
    "resultType": "complete",
    "_meta": {"io.modelcontextprotocol/serverInfo": INFO},
}
# Caching: zero milliseconds, and private to this client.
CACHED = {**COMPLETE, "ttlMs": 0, "cacheScope": "private"}


def initialize(params):
    asked = params["protocolVersion"]
    return {
        "protocolVersion": asked if asked in LEGACY else LEGACY[-1],
        "capabilities": {"tools": {}},  # what a client may ask for
        "serverInfo": INFO,
    }


def call_tool(params):
    if params["name"] != TOOL["name"]:
        raise LookupError(f"there is no tool {params['name']}")
    numbers = [params.get("arguments", {}).get(name) for name in ("a", "b")]
    # In Python, True is an int; in JSON, true is not a number.
    is_error = not all(type(each) in (int, float) for each in numbers)
    # A result, not a protocol error: the model reads it, and may try again.
    text = "a and b must be numbers" if is_error else str(sum(numbers))
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


METHODS = {
    "legacy": {
        "initialize": initialize,
        "ping": lambda params: {},
        "tools/list": lambda params: {"tools": [TOOL]},
        "tools/call": call_tool,
    },
    "modern": {
        "server/discover": lambda params: {
            "supportedVersions": MODERN,
            "capabilities": {"tools": {}},
            **CACHED,
        },
        "tools/list": lambda params: {"tools": [TOOL], **CACHED},
        "tools/call": lambda params: {**call_tool(params), **COMPLETE},
    },
}


def answer(request):
    """Return the answer to a request: its result, or an error."""
    params = request.get("params") or {}
    meta = params.get("_meta") or {}
    if VERSION in meta and meta[VERSION] not in MODERN:
        data = {"supported": MODERN, "requested": meta[VERSION]}
        return {"error": {"code": -32022, "message": "not spoken here", "data": data}}
    if VERSION in meta and CAPABILITIES not in meta:
        return {"error": {"code": -32602, "message": f"{CAPABILITIES} is required"}}
    methods = METHODS["modern" if VERSION in meta else "legacy"]
    if request["method"] not in methods:
        return {"error": {"code": -32601, "message": f"no method {request['method']}"}}
    try:
        return {"result": methods[request["method"]](params)}
    except (LookupError, TypeError, AttributeError) as error:
        return {"error": {"code": -32602, "message": f"wrong parameters: {error}"}}


if __name__ == "__main__":
    for message in map(json.loads, sys.stdin):
        # All others are notifications, which are not answered.
        if message.keys() >= {"id", "method"}:
            reply = {"jsonrpc": "2.0", "id": message["id"], **answer(message)}
            # Without flush, the line would wait in a buffer.
            print(json.dumps(reply), flush=True)
