"""Lesson 8: HTTP by hand, first modern; then sessions, streams, and resuming.

Teaches: over HTTP, every message of the client is a POST to one URL; those of the server
come in the responses. Part 1: headers repeat what a gateway needs to know. Part 2: one
header names the session; a response may be a stream of events, and a stream that breaks
can be resumed after the last event that was read.

Run: python3 examples/lessons/08_http.py
"""

import http.client
import json
import os
import sys
import textwrap
import threading

# mcp_lite.py is two folders up. The client is made by hand.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.dirname(os.path.dirname(HERE)))

from mcp_lite import Context, Server  # noqa: E402

server = Server("counter", version="1")
go_on = threading.Event()


@server.tool
def count(ctx: Context) -> str:
    """Count to two."""
    ctx.progress(1, 2)
    go_on.wait(10)  # until the lesson has let the connection break
    ctx.progress(2, 2)
    return "counted"


def show(arrow, *lines):
    """Print lines of HTTP. Long lines are broken after a comma, to fit on a screen."""
    for line in lines:
        pieces = textwrap.wrap(line.replace(',"', ', "'), 84, break_on_hyphens=False)
        print(arrow, "\n      ".join(pieces))
        arrow = "   "


def ask(verb, headers, **message):
    """Send one HTTP request. Returns the response, whose body has not been read yet."""
    body = json.dumps({"jsonrpc": "2.0", **message}) if message else ""
    headers = {"Accept": "application/json, text/event-stream", **headers}
    if body:
        headers["Content-Type"] = "application/json"
    show("-->", f"{verb} /mcp", *map(": ".join, headers.items()), "", body)
    connection = http.client.HTTPConnection("127.0.0.1", url.port, timeout=10)
    connection.request(verb, "/mcp", body, headers)
    response = connection.getresponse()
    show("<--", str(response.status), *map(": ".join, response.headers.items()))
    return response


with server.start_http() as url:
    print("PART 1, MODERN: the request stands alone, and headers say what it contains.")
    key = "io.modelcontextprotocol/"
    meta = {f"{key}protocolVersion": "2026-07-28", f"{key}clientCapabilities": {}}
    tools = {"method": "tools/list", "params": {"_meta": meta}}
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}
    show("   ", "", ask("POST", headers, id=1, **tools).read().decode())

    print("\nHeaders that contradict the body are refused, as gateways rely on them.")
    headers["Mcp-Method"] = "ping"
    show("   ", "", ask("POST", headers, id=2, **tools).read().decode())

    print("\nPART 2, LEGACY: the answer to `initialize` names a session, in a header.")
    params = {"protocolVersion": "2025-06-18", "capabilities": {}}
    params["clientInfo"] = {"name": "lesson", "version": "1"}
    response = ask("POST", {}, id=3, method="initialize", params=params)
    session = {"Mcp-Session-Id": response.headers["Mcp-Session-Id"]}
    session["MCP-Protocol-Version"] = "2025-06-18"
    print("\nTwo headers repeat it and the revision. A notification gets a mere 202.")
    ask("POST", session, method="notifications/initialized")

    print("\nA call with progress is answered by a stream of events:")
    params = {"name": "count", "_meta": {"progressToken": "p"}}
    response = ask("POST", session, id=4, method="tools/call", params=params)
    # An event is lines, up to an empty one.
    event = list(iter(lambda: response.readline().decode().strip(), ""))
    show("   ", "", *event)
    last = dict(line.split(": ", 1) for line in event).get("id")
    response.close()
    print("    ... and here the connection breaks. The tool runs on.")
    go_on.set()

    print("\nResuming: a GET with the id of the last event. A line `:` is a comment.")
    response = ask("GET", {**session, "Last-Event-ID": last})
    show("   ", "", *response.read().decode().splitlines())

    print("\nA DELETE ends the session; after that, its id is unknown.")
    ask("DELETE", session)
    show("   ", "", ask("POST", session, id=5, method="ping").read().decode())

# Exercises
# 1. Send the modern request with the header Origin: http://evil.example. Any web page can
#    make a browser send a POST to 127.0.0.1: why does a server on this machine refuse it?
# 2. Break a *modern* tools/call. It needs the header Mcp-Name: count, and a progressToken
#    in its _meta, as there is no stream without one. ctx.cancelled is True once nobody
#    waits for the tool's answer any more. What is it a second after go_on.wait, and why,
#    when there is no session?
