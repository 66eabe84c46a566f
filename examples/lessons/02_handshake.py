"""Lesson 2: the handshake, and how to do without one.

Teaches: up to the revision 2025-11-25, `initialize` opens a session: both sides agree on
a revision, and say what they can (their capabilities). Since 2026-07-28 there is no
session: every request carries that in its `_meta` (lesson 9 shows what for). No mcp_lite
on this side of the pipe; the server is the one of the quickstart, and speaks both.

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


# Messages are printed in lines that fit on a screen.
fill = textwrap.TextWrapper(96, subsequent_indent="    ").fill


def send(**members):
    line = json.dumps({"jsonrpc": "2.0", **members})
    print(fill("--> " + line))
    child.stdin.write(line + "\n")
    child.stdin.flush()


def read():
    line = child.stdout.readline().strip()
    print(fill("<-- " + line))
    message = json.loads(line)
    if "error" in message:
        print("     refused:", message["error"]["message"])
    return message.get("result", {})


print("Too early: without a handshake, and without _meta, nothing is known.")
send(id=1, method="tools/list")
read()

print("\nModern: a request that says everything, and stands alone.")
meta = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
send(id=2, method="tools/list", params={"_meta": meta})
print("     its tools:", [tool["name"] for tool in read().get("tools", [])])

print(
    "\nLegacy: first `initialize`, with a revision that the client knows, its newest ..."
)
params = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},  # nothing that the server might ask of this client
    "clientInfo": {"name": "lesson", "version": "1"},
}
send(id=3, method="initialize", params=params)
session = read()
print("     agreed on:", session["protocolVersion"])
print("     it offers (its capabilities):", sorted(session["capabilities"]))
print("... then the client says that it has understood, and the session is open.")
send(method="notifications/initialized")
send(id=4, method="tools/list")
print("     the same tools:", [tool["name"] for tool in read()["tools"]])

child.stdin.close()
print("\nThe server left with exit code", child.wait())

# Exercises
# 1. Ask for the protocolVersion "1999-12-31", in either way. One era refuses it, and says
#    what it could be; the other one has a counter-offer. What must the client do then?
# 2. Leave out clientCapabilities in the modern request. What is the error's code, and
#    where does the specification (of 2026-07-28, basic/index) want it?
