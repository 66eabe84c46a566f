"""Lesson 8: HTTP by hand, then sessions, streams, and resuming.

Teaches: over HTTP every message is a POST to one URL. Headers mirror what a gateway wants
to know. The answer is JSON, or a stream of events when there is more to tell. In a
session a stream that broke can be taken up again after the last event that was read.

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
sys.path.insert(0, os.path.dirname(os.path.dirname(HERE)))

from mcp_lite import Context, Server  # noqa: E402

server = Server("counter", version="1")
go_on = threading.Event()
fill = textwrap.TextWrapper(90, subsequent_indent="    ").fill  # to fit on a screen


@server.tool
def count(ctx: Context) -> str:
    """Count to two."""
    ctx.progress(1, 2)
    go_on.wait(10)  # until the lesson has let the connection break
    ctx.progress(2, 2)
    return "counted"


def ask(verb, headers, **message):
    """Send one HTTP request. Returns the response, whose body is still to be read."""
    body = json.dumps({"jsonrpc": "2.0", **message}) if message else ""
    print(fill(f"--> {verb} {headers}"), "\n   ", fill(body))
    headers = {"Accept": "application/json, text/event-stream", **headers}
    headers["Content-Type"] = "application/json"
    connection = http.client.HTTPConnection("127.0.0.1", url.port, timeout=10)
    connection.request(verb, "/mcp", body, headers)
    response = connection.getresponse()
    print("<--", response.status, response.getheader("Content-Type", ""))
    return response


def read_event(response):
    """Read an event, lines of "name: value", up to its data; returns its id."""
    event = {}
    while "data" not in event:
        name, _, event[name] = next(response).decode().strip().partition(": ")
    print("   ", event.get("id", ""), fill(event["data"]))
    return event.get("id")


with server.start_http() as url:
    print("Modern: the request stands alone, and its headers say what is in it.")
    key = "io.modelcontextprotocol/"
    meta = {f"{key}protocolVersion": "2026-07-28", f"{key}clientCapabilities": {}}
    tools = {"method": "tools/list", "params": {"_meta": meta}}
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}
    response = ask("POST", headers, id=1, **tools)
    print("   ", fill(response.read().decode()))

    print("\nHeaders that contradict the body are refused: gateways rely on them.")
    headers["Mcp-Method"] = "ping"
    print("   ", fill(ask("POST", headers, id=2, **tools).read().decode()))

    print("\nLegacy: `initialize` gives the session an id, a header from now on.")
    params = {"protocolVersion": "2025-06-18", "capabilities": {}}
    params["clientInfo"] = {"name": "lesson", "version": "1"}
    response = ask("POST", {}, id=3, method="initialize", params=params)
    session = {"Mcp-Session-Id": response.getheader("Mcp-Session-Id")}
    session["MCP-Protocol-Version"] = "2025-06-18"
    ask("POST", session, method="notifications/initialized")

    print("\nA call with progress is answered by a stream of events:")
    params = {"name": "count", "_meta": {"progressToken": "p"}}
    response = ask("POST", session, id=4, method="tools/call", params=params)
    last = read_event(response)
    response.close()
    print("    ... and here the connection breaks. The tool goes on without it.")
    go_on.set()

    print("\nResuming: a GET with the id of the last event that was read.")
    response = ask("GET", {**session, "Last-Event-ID": last})
    read_event(response)
    read_event(response)

    print("\nThe end of a session is a DELETE; then it is unknown.")
    ask("DELETE", session)
    print("   ", fill(ask("POST", session, id=5, method="ping").read().decode()))

# Exercises
# 1. Send the modern request with the header Origin: http://evil.example. Any web page can
#    have a browser send a POST to 127.0.0.1: why does a server on this machine refuse it?
# 2. Break a *modern* tools/call, which wants the header Mcp-Name: count, and has no event
#    ids. What is ctx.cancelled a second after go_on.wait, and why, without a session?
