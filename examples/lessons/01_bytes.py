"""Lesson 1: bytes on a pipe.

Teaches: a server on stdio is a program that reads lines and writes lines. Each line is
one message of JSON-RPC 2.0. A request has an id, and is answered once, with that id;
answers may come in any order. A notification has no id, and is not answered. This lesson
does not use mcp_lite.

Run: python3 examples/lessons/01_bytes.py
"""

import json
import subprocess
import sys


def server():
    """Act as the server, which is just a loop. It delays its first result until it has
    sent the second one."""
    held_back = None
    is_first = True
    for line in sys.stdin:
        try:
            message = json.loads(line)
        except ValueError:
            # The id is unknown, so it is null. The codes are those of JSON-RPC.
            error = {"code": -32700, "message": "not JSON"}
            answer({"id": None, "error": error})
            continue
        if "id" not in message:
            continue  # a notification: never answered
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
    # On a pipe, print() keeps a line in a buffer: without flush, nobody would get it.
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
        child.stdin.write(line + "\n")  # the message ends with the line
        child.stdin.flush()

    def read():
        print("<--", child.stdout.readline().strip())

    send('{"jsonrpc": "2.0", "id": 1, "method": "add", "params": [1, 2]}')
    send('{"jsonrpc": "2.0", "id": 2, "method": "add", "params": [3, 4]}')
    print(
        "\nThe second request is answered first. An answer has the id of its request."
    )
    read()
    read()
    print("\nA notification is not answered; the next answer is for the next request.")
    send('{"jsonrpc": "2.0", "method": "by the way"}')
    send('{"jsonrpc": "2.0", "id": 3, "method": "subtract"}')
    read()
    print("\nA line that is not JSON does not end the conversation.")
    send("hello?")
    read()
    child.stdin.close()  # The end of the input ends the conversation.
    print("\nThe server ended with exit code", child.wait())


if sys.argv[1:] == ["server"]:
    server()
else:
    client()

# Exercises
# 1. Have answer() print("debug") before it answers. What does the client read, and when
#    does it read the answers? Then print to sys.stderr instead. This is why a server must
#    print nothing but messages to stdout.
# 2. Send a message with a line break inside its JSON, and read() more often. How many
#    errors come back, and why does JSON never need line breaks, not even inside strings?
