"""Lesson 10: a hostile peer.

Teaches: a server reads whatever anybody sends. One bad message must not end the
conversation, cost more than a good one, or be answered by anything but an error. The same
is true of a client, which may be connected to anybody's server.

Run: python3 examples/lessons/10_hostile.py
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
    cwd=EXAMPLES,
)
META = json.dumps(
    {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
)

# Messages are printed in lines that fit on a screen.
fill = textwrap.TextWrapper(96, subsequent_indent="    ").fill


def send(title, line):
    print(f"\n{title}, {len(line):,} bytes")
    # Of lines that are long on purpose, print only the beginning.
    print(fill(f"--> {line[:300]}" + " and so on" * (len(line) > 300)))
    # This server reads a line to its end before it answers. With another server, both
    # pipes might fill up and both sides wait: then one thread must write, and one read.
    child.stdin.write(line + b"\n")
    child.stdin.flush()
    answer = json.loads(child.stdout.readline())
    error = answer.get("error") or answer["result"]
    print(fill(f"<-- {json.dumps(error)}"))


def call(name, arguments):
    params = f'{{"name": "{name}", "arguments": {arguments}, "_meta": {META}}}'
    return (
        f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {params}}}'
    ).encode()


digits = '{"text": "x", "limit": 1%s}' % ("0" * 9000)
cursor = f'{{"cursor": "../../etc/passwd", "_meta": {META}}}'
list_page = f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {cursor}}}'

send("Not UTF-8", b'{"jsonrpc": "2.0", "id": 1, "method": "\xff"}')
send("A hundred thousand nested arrays", b"[" * 100_000)
send("Small on the wire, large in memory", b"[" + b"[]," * 2_000_000 + b"[]]")
send("A number that JSON does not have", call("search", '{"text": "x", "limit": NaN}'))
send("A number with thousands of digits", call("search", digits))
send(
    "A name that would steer a terminal, if it were printed",
    call("\\u001b[31mred", "{}"),
)
send("Arguments that are not an object", call("search", '[1, {"2": 3}]'))
send("A cursor that the server never issued", list_page.encode())

print("\nAfter all that, an honest request is answered.")
send("A good call", call("search", '{"text": "def text_files", "limit": 1}'))
child.stdin.close()
print("\nThe server ended with exit code", child.wait())

# Exercises
# 1. Which of these would harm a server that you have written? Try the third one with
#    json.loads(), and look at the memory that it takes.
# 2. Suppose that `search` took a regular expression: re.search("(a+)+$", "a" * n + "b")
#    takes seconds for n = 24, twice as long for 25, and years for 50. mcp_lite bounds the
#    patterns of *schemas* (its section JSON Schema). What would you do about such a tool?
