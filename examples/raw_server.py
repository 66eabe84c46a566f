"""A server without mcp_lite: the protocol in 40 statements.

Teaches: what every server does, and how little of it there is when it has one tool. A
line comes in, a line goes out. Of a session it has the handshake; a request of
2026-07-28 says in `_meta` what a handshake would have said, and needs none.

Run: echo '{"jsonrpc": "2.0", "id": 1, "method": "ping"}' | python3 examples/raw_server.py
     python3 -m mcp_lite call examples/raw_server.py add a=1 b=2

Whatever else a server may need, small_server.py has: HTTP, questions to the user,
resources, prompts. This one ends with the first line that is not JSON, and a tool that
takes long blocks it.
"""

import json
import sys

LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN = ("2026-07-28",)
VERSION = "io.modelcontextprotocol/protocolVersion"
TOOL = {
    "name": "add",
    "description": "Add two numbers.",
    "inputSchema": {
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
        "required": ["a", "b"],
    },
}
ABOUT = {
    "capabilities": {"tools": {}},  # what a client may ask for
    "serverInfo": {"name": "raw", "version": "1.0"},
}


def initialize(params):
    asked = params["protocolVersion"]
    return {"protocolVersion": asked if asked in LEGACY else LEGACY[-1], **ABOUT}


def call_tool(params):
    if params["name"] != TOOL["name"]:
        raise LookupError(f"there is no tool {params['name']}")
    try:
        text = str(params["arguments"]["a"] + params["arguments"]["b"])
        is_error = False
    except (KeyError, TypeError) as error:
        # A result, no error of the protocol: the model reads it, and may try again.
        text = f"a and b must be numbers: {type(error).__name__}: {error}"
        is_error = True
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


METHODS = {
    "initialize": initialize,
    "ping": lambda params: {},
    "server/discover": lambda params: {"supportedVersions": MODERN, **ABOUT},
    "tools/list": lambda params: {"tools": [TOOL]},
    "tools/call": call_tool,
}


def answer(request):
    """Return the answer to a request: its result, or an error."""
    params = request.get("params") or {}
    version = params.get("_meta", {}).get(VERSION)
    if version not in (None, *MODERN):
        error = {"code": -32022, "message": "this revision is not spoken here"}
        return {"error": {**error, "data": {"supported": MODERN, "requested": version}}}
    if request["method"] not in METHODS:
        return {"error": {"code": -32601, "message": f"no method {request['method']}"}}
    try:
        result = METHODS[request["method"]](params)
    except (LookupError, TypeError) as error:
        return {"error": {"code": -32602, "message": f"wrong parameters: {error}"}}
    if version is not None:
        # It may stand in a cache: not at all, and for this client alone.
        result.update(resultType="complete", ttlMs=0, cacheScope="private")
    return {"result": result}


if __name__ == "__main__":
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:  # the others are notifications, which want no answer
            reply = {"jsonrpc": "2.0", "id": message["id"], **answer(message)}
            print(json.dumps(reply), flush=True)
