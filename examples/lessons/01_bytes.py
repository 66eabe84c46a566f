"""Lesson 1: bytes on a pipe.

Teaches: a server on stdio is a program that reads lines and writes lines. Each line is
one message of JSON-RPC 2.0: a request has an id and gets one answer with that id, in
whatever order; a notification has none, and gets none. This needs no mcp_lite.

Run: python3 examples/lessons/01_bytes.py
"""

import json
import subprocess
import sys


def server():
    """Act as the server, which is nothing but a loop. It holds its first result back, until it has
    sent another one."""
    held_back = None
    is_first = True
    for line in sys.stdin:
        try:
            message = json.loads(line)
        except ValueError:
            # Nobody knows whose id it would have been. JSON-RPC has fixed the codes.
            error = {"code": -32700, "message": "not JSON"}
            answer({"id": None, "error": error})
            continue
        if "id" not in message:
            continue  # a notification: heard, never answered
        if message["method"] != "add":
            error = {"code": -32601, "message": f"no method {message['method']!r}"}
            answer({"id": message["id"], "error": error})
            continue
        result = {"id": message["id"], "result": sum(message["params"])}
        if is_first:
            is_first = False
            held_back = result
            continue
        answer(result)
        if held_back is not None:
            answer(held_back)
            held_back = None


def answer(members):
    print(json.dumps({"jsonrpc": "2.0", **members}), flush=True)


def client():
    child = subprocess.Popen(
        [sys.executable, __file__, "server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )

    def send(line):
        print("-->", line)
        child.stdin.write(line + "\n")  # the line end is the end of the message
        child.stdin.flush()

    def read():
        print("<--", child.stdout.readline().strip())

    send('{"jsonrpc": "2.0", "id": 1, "method": "add", "params": [1, 2]}')
    send('{"jsonrpc": "2.0", "id": 2, "method": "add", "params": [3, 4]}')
    print("\nThe second is answered first: the id says what belongs together.")
    read()
    read()
    print(
        "\nA notification is not answered; what comes next is for the request after it."
    )
    send('{"jsonrpc": "2.0", "method": "by the way"}')
    send('{"jsonrpc": "2.0", "id": 3, "method": "subtract"}')
    read()
    print("\nA line that is no JSON ends nothing.")
    send("hello?")
    read()
    child.stdin.close()  # the end of the input: that is how a conversation ends
    print("\nThe server left with exit code", child.wait())


if sys.argv[1:] == ["server"]:
    server()
else:
    client()

# Exercises
# 1. Let answer() print("debug") before it answers. What does the client read, and when
#    does it read the answers? Then print it to sys.stderr. That is why a server must
#    print nothing else to stdout.
# 2. Send a message with a line break inside its JSON, and read() more often. How many
#    errors come back, and why does JSON need no line breaks, not even within texts?
