"""Lesson 8: HTTP by hand, then sessions, streams, and resuming.

Teaches: over HTTP every message is a POST to one URL. Headers mirror what a gateway wants
to know. The answer is JSON, or a stream of events when there is more to tell. In a
session a stream that broke can be taken up again after the last event that was read.
The client is http.client here: the standard library's, no more.

Run: python3 examples/lessons/08_http.py
"""

import http.client
import json
import os
import sys
import threading

# mcp_lite.py is two folders up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(os.path.dirname(HERE)))

from mcp_lite import Context, Server  # noqa: E402

server = Server("counter", version="1")
go_on = threading.Event()


@server.tool
def count(ctx: Context, to: int) -> str:
    """Count."""
    for n in range(to):
        ctx.progress(n + 1, to)
        if n == 0:
            go_on.wait(10)  # until the lesson has let the connection break
    return "counted"


def post(headers, **message):
    """One POST. Returns the response, whose body is still to be read."""
    connection = http.client.HTTPConnection("127.0.0.1", url.port, timeout=10)
    body = json.dumps({"jsonrpc": "2.0", **message})
    headers = {"Accept": "application/json, text/event-stream", **headers}
    print("--> POST /mcp", {k: v for k, v in headers.items() if k.startswith("M")})
    print("   ", body)
    connection.request(
        "POST", "/mcp", body, {"Content-Type": "application/json", **headers}
    )
    response = connection.getresponse()
    print("<--", response.status, response.getheader("Content-Type"))
    return response


def read_event(response):
    """The next event of a stream: lines of "name: value", up to an empty one."""
    event = {}
    while True:
        line = response.readline().decode("utf-8").rstrip("\n")
        if not line:
            return event
        name, _, value = line.partition(": ")
        event[name] = value


with server.start_http() as url:
    print("Modern: the request stands alone, and its headers say what is in it.")
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}
    response = post(headers, id=1, method="tools/list", params={"_meta": meta})
    print("   ", response.read().decode()[:150], "...")

    print("\nHeaders that contradict the body are refused: gateways rely on them.")
    headers["Mcp-Method"] = "ping"
    response = post(headers, id=2, method="tools/list", params={"_meta": meta})
    print("   ", json.loads(response.read())["error"])

    print("\nLegacy: the answer to `initialize` names the session in a header.")
    info = {"name": "lesson", "version": "1"}
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
    response = post({}, id=3, method="initialize", params=params)
    response.read()
    session = {"Mcp-Session-Id": response.getheader("Mcp-Session-Id")}
    session["MCP-Protocol-Version"] = "2025-06-18"
    print("    the session's id has", len(session["Mcp-Session-Id"]), "characters")
    post(session, method="notifications/initialized").read()

    print("\nA call with progress is answered by a stream of events:")
    params = {"name": "count", "arguments": {"to": 2}, "_meta": {"progressToken": "p"}}
    response = post(session, id=4, method="tools/call", params=params)
    event = read_event(response)
    while "progress" not in event.get("data", ""):
        event = read_event(response)
    print("   ", event["data"])
    last = event["id"]
    response.close()
    print("    ... and here the connection breaks. The call goes on without it.")
    go_on.set()

    print("\nResuming: a GET with the id of the last event that was read.")
    connection = http.client.HTTPConnection("127.0.0.1", url.port, timeout=10)
    headers = {**session, "Accept": "text/event-stream", "Last-Event-ID": last}
    connection.request("GET", "/mcp", headers=headers)
    response = connection.getresponse()
    print("<--", response.status, response.getheader("Content-Type"))
    while "result" not in event.get("data", ""):
        event = read_event(response)
        if event.get("data"):
            print("   ", event["data"])
    connection.close()

    print("\nThe end of a session is a DELETE; then it is unknown.")
    connection.request("DELETE", "/mcp", headers=session)
    print("<--", connection.getresponse().status)
    connection.close()
    response = post(session, id=5, method="ping")
    print("   ", json.loads(response.read())["error"]["message"])

# Exercises
# 1. Send the modern request with the header Origin: http://evil.example. Why does a
#    server on this machine refuse what a browser would send from there?
# 2. Break the connection of a *modern* call. What happens to the tool, and why is that
#    right without a session?
