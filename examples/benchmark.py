"""How fast is it, next to a bare loop that reads a request, parses it, answers? One run measures both.

Teaches: measure against what cannot be beaten, on the same machine, in the same minute; a ratio survives a
noisy machine, a number does not. Rounds alternate between the two, and the median counts. Over HTTP the first
three ratios have a client as programs have one, http.client; the next one on raw sockets that costs nothing.
Run: python3 examples/benchmark.py [seconds for each row]
"""

import functools
import http.client
import json
import os
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARY = os.path.dirname(HERE)
PYTHON = sys.executable
# As users run it: a compiled file is kept beside mcp_lite.py.
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if name != "PYTHONDONTWRITEBYTECODE"
}

BARE = """
import json, sys
out = sys.stdout.buffer
for line in sys.stdin.buffer:
    message = json.loads(line)
    text = message["params"]["arguments"]["text"]
    answer = {"jsonrpc": "2.0", "id": message["id"], "result": {"content": [{"type": "text", "text": text}]}}
    out.write(json.dumps(answer).encode() + b"\\n")
    out.flush()
"""
LITE = f"""
import sys; sys.path.insert(0, {LIBRARY!r})
from mcp_lite import Server
server = Server("benchmark")
@server.tool
def echo(text: str) -> str:
    return text
server.run()
"""
BARE_HTTP = """
import json, socket, sys, threading
def serve(sock):
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    data = b""
    while True:
        while b"\\r\\n\\r\\n" not in data:
            more = sock.recv(65536)
            if not more: return sock.close()
            data += more
        head, _, data = data.partition(b"\\r\\n\\r\\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\\r\\n")[1:])
        size = int(fields[b"content-length"])
        while len(data) < size: data += sock.recv(65536)
        message, data = json.loads(data[:size]), data[size:]
        text = message["params"]["arguments"]["text"]
        result = {"content": [{"type": "text", "text": text}]}
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        head = b"HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\nContent-Length: %d\\r\\n\\r\\n"
        sock.sendall(head % len(body) + body)
listener = socket.create_server(("127.0.0.1", 0), backlog=128)
print(listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=listener.accept()[:1], daemon=True).start()
"""
LITE_HTTP = LITE.replace(
    "server.run()",
    """
with server.start_http() as http:
    print(http.port, flush=True)
    http.closing.wait()
""",
)


class HttpPeer:
    """An HTTP server as a child process, spoken to over keep-alive sockets, one request on each at a time."""

    META = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }

    def __init__(self, code):
        self.process = subprocess.Popen(
            [PYTHON, "-c", code], stdout=subprocess.PIPE, env=ENVIRONMENT
        )
        self.address = ("127.0.0.1", int(self.process.stdout.readline()))
        body = json.dumps(
            {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {
                    "name": "echo",
                    "arguments": {"text": "hello"},
                    "_meta": self.META,
                },
            }
        ).encode()
        self.request = (
            b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n"
            b"Mcp-Method: tools/call\r\nMcp-Name: echo\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def over_http(peer, seconds, width):
    """Answers a second, over `width` connections, from a client that costs next to nothing."""
    selector, count = selectors.DefaultSelector(), 0
    for _ in range(width):
        sock = socket.create_connection(peer.address)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(sock, selectors.EVENT_READ)
        sock.sendall(peer.request)
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        for key, _ in selector.select():
            answer = key.fileobj.recv(1 << 16)
            assert b'"hello"' in answer, answer
            count += 1
            key.fileobj.sendall(peer.request)
    rate = count / (time.perf_counter() - start)
    for key in list(selector.get_map().values()):
        key.fileobj.recv(1 << 16)
        key.fileobj.close()
    selector.close()
    return rate


def through_http_client(peer, seconds, width):
    """Answers a second, as programs meet them: `width` threads, each with a connection of http.client."""
    head, body = peer.request.split(b"\r\n\r\n", 1)
    headers = dict(line.decode().split(": ", 1) for line in head.split(b"\r\n")[1:])
    counts, until = [0] * width, time.perf_counter() + seconds

    def calls(n):
        connection = http.client.HTTPConnection(*peer.address)
        while time.perf_counter() < until:
            connection.request("POST", "/mcp", body, headers)
            assert b'"hello"' in connection.getresponse().read()
            counts[n] += 1
        connection.close()

    threads = [threading.Thread(target=calls, args=(n,)) for n in range(width)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / seconds


class Peer:
    """A server as a child process, spoken to in raw lines: both sides of a ratio have the same client."""

    def __init__(self, code):
        self.folder = tempfile.TemporaryDirectory()
        path = os.path.join(self.folder.name, "server.py")
        with open(path, "w") as file:
            file.write(code)
        self.process = subprocess.Popen(
            [PYTHON, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=ENVIRONMENT,
        )
        self.input, self.output = (
            self.process.stdin.fileno(),
            self.process.stdout.fileno(),
        )
        self.ids = 0
        self.write(
            json.dumps(
                {
                    "jsonrpc": "2.0",
                    "id": 0,
                    "method": "initialize",
                    "params": {
                        "protocolVersion": "2025-11-25",
                        "capabilities": {},
                        "clientInfo": {"name": "b", "version": "0"},
                        "arguments": {"text": ""},
                    },
                }
            ).encode()
            + b"\n"
        )
        self.read(1)

    def write(self, data):
        view = memoryview(data)
        while view:
            view = view[os.write(self.input, view) :]

    def read(self, lines):
        """Read until that many lines have come, and return how many did."""
        seen = 0
        while seen < lines:
            data = os.read(self.output, 1 << 16)
            assert data, "the server closed its output"
            seen += data.count(b"\n")
        return seen

    def requests(self, count, text="hello"):
        lines = []
        for _ in range(count):
            self.ids += 1
            lines.append(
                b'{"jsonrpc":"2.0","id":%d,"method":"tools/call",'
                b'"params":{"name":"echo","arguments":{"text":"%s"}}}\n'
                % (self.ids, text.encode())
            )
        return b"".join(lines)

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()
        self.folder.cleanup()


def in_flight(peer, width, seconds):
    """Answers a second, with `width` requests open at any time."""
    count, start = 0, time.perf_counter()
    peer.write(peer.requests(width))
    while time.perf_counter() - start < seconds:
        done = peer.read(1)
        count += done
        peer.write(peer.requests(done))
    count += peer.read(width)
    return count / (time.perf_counter() - start)


def large(peer, size, seconds):
    """Round trips a second of one large text."""
    data, count, start = peer.requests(1, "x" * size), 0, time.perf_counter()
    while time.perf_counter() - start < seconds or not count:
        writer = threading.Thread(target=peer.write, args=(data,))
        writer.start()
        peer.read(1)
        writer.join()
        count += 1
    return count / (time.perf_counter() - start)


def compare(measure, seconds, peers, rounds=7):
    """The median of lite/bare over alternating rounds, and the medians of both."""
    bare, lite = peers
    try:
        measure(bare, 0.1)
        measure(lite, 0.1)
        pairs = [
            (measure(bare, seconds / rounds / 2), measure(lite, seconds / rounds / 2))
            for _ in range(rounds)
        ]
    finally:
        bare.close()
        lite.close()
    return statistics.median(b / a for a, b in pairs), [
        statistics.median(column) for column in zip(*pairs)
    ]


def start_up(rounds=15):
    """Seconds from the start of the process to its first answer, and of `python3 -c "import json"`."""

    def first_answer():
        start = time.perf_counter()
        peer = Peer(LITE)
        found = time.perf_counter() - start
        peer.close()
        return found

    def import_json():
        start = time.perf_counter()
        subprocess.check_call([PYTHON, "-c", "import json"])
        return time.perf_counter() - start

    first_answer()
    pairs = [(import_json(), first_answer()) for _ in range(rounds)]
    return statistics.median(b / a for a, b in pairs), [
        statistics.median(column) for column in zip(*pairs)
    ]


def idle_memory():
    """MiB of an idle stdio server, from /proc; None where there is none."""
    peer = Peer(LITE)
    try:
        with open(f"/proc/{peer.process.pid}/status") as file:
            return next(
                int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS")
            )
    except OSError:
        return None
    finally:
        peer.close()


def validations(seconds):
    """Validations a second of a small call's arguments: with the package jsonschema, or 0, and here."""
    sys.path.insert(0, LIBRARY)
    import mcp_lite

    schema = {
        "type": "object",
        "required": ["city"],
        "additionalProperties": False,
        "properties": {
            "city": {"type": "string", "minLength": 1, "pattern": "^[A-Z][a-z]+$"},
            "days": {"type": "integer", "minimum": 1, "maximum": 14},
            "units": {"enum": ["metric", "imperial"]},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
    }
    value = {"city": "Oslo", "days": 3, "units": "metric", "tags": ["a", "b"]}

    def rate(check):
        count, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            for _ in range(100):
                assert not check(value)
            count += 100
        return count / seconds

    try:
        import jsonschema
    except ImportError:
        return 0, rate(mcp_lite.Schema(schema).errors)
    validator = jsonschema.Draft202012Validator(schema)
    return rate(lambda value: not validator.is_valid(value)), rate(
        mcp_lite.Schema(schema).errors
    )


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 4.0
    print(f"{'ratio to the bare loop':34} {'ratio':>6}   bare -> mcp_lite")
    for name, measure in (
        ("one call at a time", lambda peer, s: in_flight(peer, 1, s)),
        ("64 calls in flight", lambda peer, s: in_flight(peer, 64, s)),
        ("8 MiB echoed", lambda peer, s: large(peer, 8 << 20, s)),
    ):
        ratio, (bare, lite) = compare(measure, seconds, (Peer(BARE), Peer(LITE)))
        print(f"{name:34} {ratio:6.2f}   {bare:,.1f} -> {lite:,.1f} a second")
    for kind, measure in (("", through_http_client), (" (raw sockets)", over_http)):
        for width in (1, 8, 32):
            peers = HttpPeer(BARE_HTTP), HttpPeer(LITE_HTTP)
            ratio, (bare, lite) = compare(
                functools.partial(measure, width=width), seconds, peers
            )
            name = f"HTTP, {width} connections{kind}"
            print(f"{name:34} {ratio:6.2f}   {bare:,.1f} -> {lite:,.1f} a second")
    theirs, lite = validations(seconds / 4)
    if theirs:
        print(
            f"{'validations (jsonschema)':34} {lite / theirs:6.2f}   {theirs:,.1f} -> {lite:,.1f} a second"
        )
    else:
        print(
            f"{'validations':34} {'':6}   {lite:,.1f} a second (jsonschema is not installed)"
        )
    ratio, (bare, lite) = start_up()
    print(
        f"{'start to the first answer':34} {ratio:6.2f}   {bare * 1000:.1f} -> {lite * 1000:.1f} ms"
    )
    memory = idle_memory()
    if memory is not None:
        print(f"{'idle memory':34} {'':6}   {memory:.1f} MiB")


if __name__ == "__main__":
    main()
