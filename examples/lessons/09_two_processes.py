"""Lesson 9: a stateless server behind two processes.

Teaches: why the modern era has no sessions. Any process may answer any request, so a
gateway may send each to another one. Even a question and its answer may meet different
processes: what was answered before travels with the request, signed, so all processes
need the same key, and nothing else.

Run: python3 examples/lessons/09_two_processes.py
"""

import http.client
import http.server
import os
import subprocess
import sys
import threading

# mcp_lite.py is two folders up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(os.path.dirname(HERE)))

from mcp_lite import Client, Context, Server  # noqa: E402


def serve(name):
    """One of the two processes. It ends with its input."""
    server = Server("twins", version="1", state_key="the same in both: keep it secret")

    @server.tool
    def who(ctx: Context) -> str:
        """Who answers."""
        answer = ctx.elicit("And who are you?", {"type": "object", "properties": {}})
        return f"process {name} answers, and got: {answer['action']}"

    with server.start_http(stateless=True) as site:
        print(site.port, flush=True)
        sys.stdin.read()


class Gateway(http.server.BaseHTTPRequestHandler):
    """Sends each request to the other process than the one before."""

    ports = []  # of the processes
    turns = 0
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        turn = Gateway.turns % len(self.ports)
        Gateway.turns += 1
        # All that a gateway wants to know is in the headers: it reads no JSON.
        print(f"    {self.headers.get('Mcp-Method')} goes to process {'AB'[turn]}")
        behind = http.client.HTTPConnection("127.0.0.1", self.ports[turn], timeout=10)
        headers = {k: v for k, v in self.headers.items() if k.lower() != "host"}
        behind.request("POST", self.path, body, headers)
        response = behind.getresponse()
        answer = response.read()
        behind.close()
        self.send_response(response.status)
        self.send_header("Content-Type", response.getheader("Content-Type"))
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *details):
        pass


def main():
    children = [
        subprocess.Popen(
            [sys.executable, __file__, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for name in "AB"
    ]
    Gateway.ports = [int(child.stdout.readline()) for child in children]
    gateway = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Gateway)
    threading.Thread(target=gateway.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{gateway.server_port}/mcp"

    def answer(params):
        print("    * asked:", params["message"])
        return {"action": "accept", "content": {}}

    # Which revision to speak is known: nothing has to be found out first.
    with Client(url, version="2026-07-28", on_elicit=answer) as client:
        print(
            "One call with one question: it begins in one process, ends in the other."
        )
        print("    value:", client.call("who"))

    gateway.shutdown()
    gateway.server_close()
    for child in children:
        child.communicate()  # closes its input: that is its end
    print("Both processes are gone.")


if sys.argv[1:]:
    serve(sys.argv[1])
else:
    main()

# Exercises
# 1. Give each process a state_key of its own (state_key=name * 16). Which error comes,
#    from which of them, and what would an attacker gain if it did not?
# 2. Have the client speak 2025-06-18 through the gateway. What fails, and which header
#    would the gateway have to look at, to make it work?
