"""How fast is it, next to a bare loop that reads a request, parses it, answers?

Teaches: measure against what cannot be beaten, on the same machine, in the same minute;
a ratio survives a noisy machine, a number does not. Rounds alternate between the bare
server and ours, and the median counts. Over HTTP the first three rows have a client as
programs have one, http.client; the client of the next three is made of raw sockets and
costs next to nothing.

A row reads: the ratio of the two rates, the rates themselves, and, where the system
tells it (Linux), what one call costs the server in CPU time, bare / mcp_lite. The CPU
time has the least noise of all: compare two versions of the library by that.

Run: python3 examples/benchmark.py [seconds for each row] [--library older/mcp_lite.py]
"""

import argparse
import functools
import http.client
import json
import os
import selectors
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import typing

HERE = os.path.dirname(os.path.abspath(__file__))
OURS = os.path.join(os.path.dirname(HERE), "mcp_lite.py")
PYTHON = sys.executable
# As users run it: a compiled file is kept beside mcp_lite.py.
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if name != "PYTHONDONTWRITEBYTECODE"
}

# The servers. Each answers tools/call of a tool that gives back its text. #############

BARE = """
import json
import sys
out = sys.stdout.buffer
for line in sys.stdin.buffer:
    message = json.loads(line)
    text = message["params"]["arguments"]["text"]
    result = {"content": [{"type": "text", "text": text}]}
    answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
    out.write(json.dumps(answer).encode() + b"\\n")
    out.flush()
"""
LITE = """
import os
import sys
sys.path.insert(0, os.environ["MCP_LITE_FOLDER"])
from mcp_lite import Server
server = Server("benchmark")
@server.tool
def echo(text: str) -> str:
    return text
server.run()
"""
BARE_HTTP = """
import json
import socket
import threading
HEAD = (
    b"HTTP/1.1 200 OK\\r\\n"
    b"Content-Type: application/json\\r\\n"
    b"Content-Length: %d\\r\\n\\r\\n"
)
def serve(sock):
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    data = b""
    while True:
        while b"\\r\\n\\r\\n" not in data:
            more = sock.recv(65536)
            if not more:
                return sock.close()
            data += more
        head, _, data = data.partition(b"\\r\\n\\r\\n")
        lines = head.split(b"\\r\\n")[1:]
        fields = dict(line.lower().split(b": ", 1) for line in lines)
        size = int(fields[b"content-length"])
        while len(data) < size:
            data += sock.recv(65536)
        message = json.loads(data[:size])
        data = data[size:]
        text = message["params"]["arguments"]["text"]
        result = {"content": [{"type": "text", "text": text}]}
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        body = json.dumps(answer).encode()
        sock.sendall(HEAD % len(body) + body)
listener = socket.create_server(("127.0.0.1", 0), backlog=128)
print(listener.getsockname()[1], flush=True)
while True:
    sock, _ = listener.accept()
    threading.Thread(target=serve, args=(sock,), daemon=True).start()
"""
# Ends when it is killed, as the bare one does.
LITE_HTTP = LITE.replace(
    "server.run()",
    """
import threading
with server.start_http() as http:
    print(http.port, flush=True)
    threading.Event().wait()
""",
)


class Peer:
    """A server as a child process, spoken to in raw lines.

    Both sides of a ratio have the same client.
    """

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
        self.input = self.process.stdin.fileno()
        self.output = self.process.stdout.fileno()
        self.ids = 0
        self.initialize()

    def initialize(self):
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "b", "version": "0"},
            # The bare server looks for nothing else, whatever the method.
            "arguments": {"text": ""},
        }
        request = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        self.write(json.dumps(request).encode() + b"\n")
        self.read(1)

    def write(self, data):
        view = memoryview(data)
        while view:
            written = os.write(self.input, view)
            view = view[written:]

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


class HttpPeer:
    """An HTTP server as a child process, with the one request that everybody sends it.

    It goes over keep-alive connections, one request on each at a time.
    """

    META = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }

    def __init__(self, code):
        self.process = subprocess.Popen(
            [PYTHON, "-c", code],
            stdout=subprocess.PIPE,
            env=ENVIRONMENT,
        )
        port = int(self.process.stdout.readline())
        self.address = ("127.0.0.1", port)
        params = {"name": "echo", "arguments": {"text": "hello"}, "_meta": self.META}
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        self.body = json.dumps(request).encode()
        self.headers = {
            "Host": "localhost",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "tools/call",
            "Mcp-Name": "echo",
            "Content-Length": str(len(self.body)),
        }
        lines = [f"{name}: {value}\r\n" for name, value in self.headers.items()]
        head = "POST /mcp HTTP/1.1\r\n" + "".join(lines) + "\r\n"
        self.request = head.encode() + self.body

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


# The measures: each keeps a server busy for some seconds. #############################


class Measured(typing.NamedTuple):
    """What a measure gives back."""

    # Answers a second, while the clock ran.
    rate: float
    # All answers, with those that came when the clock had stopped.
    answers: int


def in_flight(peer, seconds, width):
    """Over stdio, with `width` requests open at any time."""
    answers = 0
    start = time.perf_counter()
    peer.write(peer.requests(width))
    while time.perf_counter() - start < seconds:
        came = peer.read(1)
        answers += came
        peer.write(peer.requests(came))
    answers += peer.read(width)
    elapsed = time.perf_counter() - start
    return Measured(answers / elapsed, answers)


def large(peer, seconds, size):
    """Over stdio, round trips of one large text."""
    data = peer.requests(1, "x" * size)
    answers = 0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds or not answers:
        # Neither pipe holds the text: somebody has to write while we read.
        writer = threading.Thread(target=peer.write, args=(data,))
        writer.start()
        peer.read(1)
        writer.join()
        answers += 1
    elapsed = time.perf_counter() - start
    return Measured(answers / elapsed, answers)


def through_http_client(peer, seconds, width):
    """As programs meet it: `width` threads, each with a connection of http.client."""
    counts = [0] * width
    until = time.perf_counter() + seconds

    def calls(n):
        connection = http.client.HTTPConnection(*peer.address)
        while time.perf_counter() < until:
            connection.request("POST", "/mcp", peer.body, peer.headers)
            assert b'"hello"' in connection.getresponse().read()
            counts[n] += 1
        connection.close()

    threads = [threading.Thread(target=calls, args=(n,)) for n in range(width)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answers = sum(counts)
    return Measured(answers / seconds, answers)


def over_raw_sockets(peer, seconds, width):
    """Over `width` connections, from a client that costs next to nothing."""
    selector = selectors.DefaultSelector()
    for _ in range(width):
        sock = socket.create_connection(peer.address)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(sock, selectors.EVENT_READ)
        sock.sendall(peer.request)

    answers = 0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        for key, _ in selector.select():
            answer = key.fileobj.recv(1 << 16)
            assert b'"hello"' in answer, answer
            answers += 1
            key.fileobj.sendall(peer.request)
    elapsed = time.perf_counter() - start

    for key in list(selector.get_map().values()):
        key.fileobj.recv(1 << 16)
        key.fileobj.close()
    selector.close()
    return Measured(answers / elapsed, answers + width)


# The comparison. ######################################################################


class Compared(typing.NamedTuple):
    """Two servers: medians over the rounds."""

    # How much faster than the bare server ours is.
    ratio: float
    bare: float
    lite: float
    # Microseconds of CPU time a call, bare and ours.
    # None where the system does not tell.
    cpu: typing.Optional[typing.Tuple[float, float]] = None


def cpu_seconds(process):
    """The CPU time that the process has used, or None where the system does not tell.

    Linux has a clock for each process; its number is made of the process's id
    (clock_getcpuclockid(3)). It counts as /proc/PID/task/*/schedstat does, in
    nanoseconds, but does not forget the threads that have ended.
    """
    if not sys.platform.startswith("linux"):
        return None
    scheduler_clock = 2
    try:
        return time.clock_gettime(~process.pid << 3 | scheduler_clock)
    except OSError:
        return None


def one_round(measure, peer, seconds):
    """Answers a second, and microseconds of CPU time a call (or None)."""
    before = cpu_seconds(peer.process)
    measured = measure(peer, seconds)
    after = cpu_seconds(peer.process)
    if before is None or after is None or not measured.answers:
        return measured.rate, None
    return measured.rate, (after - before) / measured.answers * 1e6


def compare(measure, seconds, bare, lite, rounds=7):
    """Both servers in turns, and close them. `measure(peer, seconds)` -> Measured."""
    each = seconds / rounds / 2
    bare_rounds = []
    lite_rounds = []
    try:
        measure(bare, 0.1)
        measure(lite, 0.1)
        for _ in range(rounds):
            bare_rounds.append(one_round(measure, bare, each))
            lite_rounds.append(one_round(measure, lite, each))
    finally:
        bare.close()
        lite.close()
    bare_rates, bare_cpu = zip(*bare_rounds)
    lite_rates, lite_cpu = zip(*lite_rounds)
    cpu = None
    if None not in bare_cpu + lite_cpu:
        cpu = (statistics.median(bare_cpu), statistics.median(lite_cpu))
    return Compared(
        statistics.median(b / a for a, b in zip(bare_rates, lite_rates)),
        statistics.median(bare_rates),
        statistics.median(lite_rates),
        cpu,
    )


def start_up(rounds=15):
    """Seconds from the start of the process to its first answer.

    The bare one is `python3 -c "import json"`.
    """

    def import_json():
        start = time.perf_counter()
        subprocess.check_call([PYTHON, "-c", "import json"])
        return time.perf_counter() - start

    def first_answer():
        start = time.perf_counter()
        peer = Peer(LITE)
        elapsed = time.perf_counter() - start
        peer.close()
        return elapsed

    first_answer()
    pairs = [(import_json(), first_answer()) for _ in range(rounds)]
    bare, lite = zip(*pairs)
    return Compared(
        statistics.median(b / a for a, b in pairs),
        statistics.median(bare),
        statistics.median(lite),
    )


def idle_memory():
    """MiB of an idle stdio server, from /proc; None where there is none."""
    peer = Peer(LITE)
    try:
        with open(f"/proc/{peer.process.pid}/status") as file:
            for line in file:
                if line.startswith("VmRSS"):
                    return int(line.split()[1]) / 1024
    except OSError:
        pass
    finally:
        peer.close()
    return None


def validations(seconds):
    """Validations a second of a small call's arguments: by jsonschema, and here.

    The first is None where that package is not installed.
    """
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
        count = 0
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            for _ in range(100):
                assert not check(value)
            count += 100
        return count / seconds

    lite = rate(mcp_lite.Schema(schema).errors)
    try:
        import jsonschema
    except ImportError:
        return None, lite
    validator = jsonschema.Draft202012Validator(schema)
    return rate(lambda value: not validator.is_valid(value)), lite


# What is printed. #####################################################################


def print_row(name, ratio, text):
    shown = "" if ratio is None else f"{ratio:.2f}"
    print(f"{name:34} {shown:>6}   {text}", flush=True)


def print_rates(name, row):
    text = f"{row.bare:,.1f} -> {row.lite:,.1f} a second"
    if row.cpu:
        bare, lite = row.cpu
        text += f", {bare:,.1f} / {lite:,.1f} us of CPU a call"
    print_row(name, row.ratio, text)


def print_all(seconds):
    print(f"{'ratio to the bare loop':34} {'ratio':>6}   bare -> mcp_lite")
    for name, measure in (
        ("one call at a time", functools.partial(in_flight, width=1)),
        ("64 calls in flight", functools.partial(in_flight, width=64)),
        ("8 MiB echoed", functools.partial(large, size=8 << 20)),
    ):
        print_rates(name, compare(measure, seconds, Peer(BARE), Peer(LITE)))

    for client, measure in (
        ("", through_http_client),
        (" (raw sockets)", over_raw_sockets),
    ):
        for width in (1, 8, 32):
            name = f"HTTP, {width} connections{client}"
            wide = functools.partial(measure, width=width)
            peers = HttpPeer(BARE_HTTP), HttpPeer(LITE_HTTP)
            print_rates(name, compare(wide, seconds, *peers))

    theirs, ours = validations(seconds / 4)
    if theirs is None:
        text = f"{ours:,.1f} a second (jsonschema is not installed)"
        print_row("validations", None, text)
    else:
        text = f"{theirs:,.1f} -> {ours:,.1f} a second"
        print_row("validations (jsonschema)", ours / theirs, text)

    row = start_up()
    text = f"{row.bare * 1000:.1f} -> {row.lite * 1000:.1f} ms"
    print_row("start to the first answer", row.ratio, text)

    memory = idle_memory()
    if memory is not None:
        print_row("idle memory", None, f"{memory:.1f} MiB")


def main():
    parser = argparse.ArgumentParser(description="mcp_lite beside a bare loop")
    parser.add_argument("seconds", nargs="?", type=float, default=4.0)
    parser.add_argument("--library", default=OURS, help="another copy of mcp_lite.py")
    options = parser.parse_args()
    # A copy, so that a file of another name will do, and that every version starts with
    # the same: a folder of its own that takes the compiled file.
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(options.library, os.path.join(folder, "mcp_lite.py"))
        ENVIRONMENT["MCP_LITE_FOLDER"] = folder
        sys.path.insert(0, folder)
        print_all(options.seconds)


if __name__ == "__main__":
    main()
