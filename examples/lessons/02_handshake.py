"""Lesson 2: the handshake, and how to do without one.

Teaches: up to revision 2025-11-25, `initialize` opens a session: both sides agree on a
revision and say what they can do (their capabilities). Since 2026-07-28 there is no
session: every request carries all of that in its `_meta`. A session lives in the memory
of one process, while any process can answer a request that stands alone, so a server may
run as several processes (see lesson 9). The client here does not use mcp_lite; the server
is quickstart_server.py, which speaks both eras.

Run: python3 examples/lessons/02_handshake.py
"""

import json
import os
import subprocess
import sys
import textwrap

EXAMPLES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
child = subprocess.Popen(
    [sys.executable, os.path.join(EXAMPLES, "quickstart_server.py")],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    encoding="utf-8",
    cwd=EXAMPLES,
)


def show(arrow, message):
    """Print a message, in lines that fit on a screen. On the pipe it is one line."""
    text = f"{arrow} {json.dumps(message)}"
    print(textwrap.fill(text, 96, subsequent_indent="    ", break_on_hyphens=False))


def send(**members):
    message = {"jsonrpc": "2.0", **members}
    show("-->", message)
    child.stdin.write(json.dumps(message) + "\n")
    child.stdin.flush()


def read():
    message = json.loads(child.stdout.readline())
    show("<--", message)
    if "error" in message:
        print("     refused:", message["error"]["message"])
    return message.get("result", {})


print("Too early: there was no handshake, and there is no _meta.")
send(id=1, method="tools/list")
read()

print("\nModern: a request that says everything, and stands alone. Clients begin with")
print("this one, to learn which revisions the server speaks and what it offers.")
meta = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},  # this client answers no questions
}
send(id=2, method="server/discover", params={"_meta": meta})
print("     its modern revisions:", read().get("supportedVersions"))
print(
    "\nThe next request repeats it all. Its result is complete (lesson 6 has one that"
)
print("is not), fresh for 0 milliseconds (ttlMs), and for this client only (private).")
send(id=3, method="tools/list", params={"_meta": meta})
print("     its tools:", [tool["name"] for tool in read().get("tools", [])])

print("\nLegacy: first `initialize`, with the newest revision that this client knows,")
params = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},  # nothing that the server might ask of this client
    "clientInfo": {"name": "lesson", "version": "1"},
}
send(id=4, method="initialize", params=params)
session = read()
print("     agreed on:", session["protocolVersion"])
print("     it offers (its capabilities):", sorted(session["capabilities"]))
print("then the client says that it is ready, and the session is open.")
send(method="notifications/initialized")
send(id=5, method="tools/list")
print("     the same tools:", [tool["name"] for tool in read()["tools"]])

child.stdin.close()
print("\nThe server ended with exit code", child.wait())

# Exercises
# 1. Ask for the protocolVersion "1999-12-31", in either era. One era refuses it and lists
#    what it supports; the other makes a counter-offer. What must the client do then?
# 2. "fields marked as required MUST be included on every request", says the specification
#    (2026-07-28, basic/index) of `_meta`. Leave out clientCapabilities in a modern request:
#    which code does the error have, and what does its message name?
