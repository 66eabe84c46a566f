"""Lesson 9: a stateless server behind two processes.

Teaches: why the modern era has no sessions. Any process may answer any request, so a
gateway may send each request to a different one. Even a question and its answer may reach
different processes: earlier answers travel with the request, signed, so the processes need
to share a key, and nothing else. The client is written by hand once more.

Run: python3 examples/lessons/09_two_processes.py
"""

import http.client
import json
import os
import subprocess
import sys
import textwrap

# mcp_lite.py is in this folder, or two up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.dirname(os.path.dirname(HERE)))

from mcp_lite import Context, Server  # noqa: E402


def serve(name):
    """Act as one of the two processes, until the input ends."""
    server = Server("twins", version="1", state_key="the same in both: keep it secret")

    @server.tool
    def book(ctx: Context) -> str:
        """Book a journey."""
        begun = ctx.once("begun", lambda: name)  # the process that ran this first
        schema = {"type": "object", "properties": {"city": {"type": "string"}}}
        answer = ctx.elicit("Where to?", schema)
        return f"begun in {begun}, done in {name}: to {answer['content']['city']}"

    with server.start_http(stateless=True) as site:
        print(site.port, flush=True)
        sys.stdin.read()


META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}
HEADERS = {
    "Accept": "application/json, text/event-stream",
    "Content-Type": "application/json",
    "MCP-Protocol-Version": "2026-07-28",
    "Mcp-Method": "tools/call",
    "Mcp-Name": "book",
}


def call(process, port, number, **answers):
    """Call the tool in one of the processes. Returns the result, or the error."""
    print(f"\n--> {number} tools/call book, to process {process}")
    print(textwrap.fill(json.dumps(answers), 96))
    params = {"name": "book", "arguments": {}, "_meta": META, **answers}
    message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("POST", "/mcp", json.dumps(message), HEADERS)
    answer = json.loads(connection.getresponse().read())
    connection.close()
    said = answer.get("result") or answer["error"]
    said.pop("_meta", None)
    print(textwrap.fill(f"<-- {number} {json.dumps(said)}", 96))
    return said


def main():
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    command = [sys.executable, __file__]
    children = [subprocess.Popen([*command, name], **pipes) for name in "AB"]
    first, second = [int(child.stdout.readline()) for child in children]

    print("The tool begins in one process, and asks a question.")
    asked = call("A", first, 1)
    for key, question in asked["inputRequests"].items():
        print(f"\nThe user is asked ({key}):", question["params"]["message"])

    print("The answer goes to the other process, with the state. The tool ends there.")
    responses = {key: {"action": "accept", "content": {"city": "Oslo"}}}
    state = asked["requestState"]
    call("B", second, 2, inputResponses=responses, requestState=state)

    for child in children:
        child.communicate()  # closes its input, and so ends it
    print("\nBoth processes have ended.")


if sys.argv[1:]:
    serve(sys.argv[1])
else:
    main()

# Exercises
# 1. Give each process a state_key of its own (state_key=name * 16). Which of them sends
#    which error, and what could an attacker do without it?
# 2. With sessions: start_http() without stateless=True, POST `initialize` to A as lesson 8
#    does, and then tools/list to B. Print the status. What fails, and which header would
#    a gateway have to look at to make it work?
