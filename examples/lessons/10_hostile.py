"""Lesson 10: a hostile peer.

Teaches: a server reads what anybody sends. Whatever that is, one bad message must not
end the conversation, cost more than a good one, or be answered by more than an error.
The same holds for a client, whose server may be anybody's.

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
    # Of those that are long on purpose, the first bytes.
    print(fill(f"--> {line[:300]}" + " and so on" * (len(line) > 300)))
    # This server reads a line to its end before it answers. If one did not, both pipes
    # might be full, and both sides wait: then one thread must write, another one read.
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

send("No UTF-8", b'{"jsonrpc": "2.0", "id": 1, "method": "\xff"}')
send("A hundred thousand arrays within each other", b"[" * 100_000)
send("Small on the wire, large in memory", b"[" + b"[]," * 2_000_000 + b"[]]")
send("A number that is none", call("search", '{"text": "x", "limit": NaN}'))
send("A number of thousands of digits", call("search", digits))
send(
    "A name that a terminal would obey, if somebody printed it",
    call("\\u001b[31mred", "{}"),
)
send("Arguments of another shape", call("search", '[1, {"2": 3}]'))
send("A cursor that nobody gave", list_page.encode())

print("\nAnd after all that, an honest question is answered.")
send("A good call", call("search", '{"text": "def text_files", "limit": 1}'))
child.stdin.close()
print("\nThe server left with exit code", child.wait())

# Exercises
# 1. Which of these would harm a server that you have written? Try the third one with
#    json.loads() and look at the memory that it takes.
# 2. The regular expression of `search` is the caller's: re.search("(a+)+$", "a" * n + "b")
#    takes seconds for n = 24, twice as long for 25, and years for 50. mcp_lite bounds the
#    patterns of *schemas* (its section JSON Schema). What would you do about this tool?
