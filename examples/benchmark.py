"""How fast is it, next to a bare loop that reads a request, parses it, answers?

Teaches: measure against what cannot be beaten, on the same machine, in the same minute;
a ratio survives a noisy machine, a number does not. Rounds alternate between the
servers, and the median counts. Over HTTP the client is made of raw sockets, and costs
next to nothing.

A row has, for each server, answers a second; and, where the system tells it (Linux),
what an answer costs the server in CPU time. Both with their ratio to the bare server.
The CPU time has the least noise of all: compare two versions of the library by that.

Run: python3 examples/benchmark.py [seconds for each row] [--library older/mcp_lite.py]
         [--peer NAME=PYTHON]

A peer is another library, run by the Python of a venv that has it; its NAME is zeromcp,
mcp (the official SDK) or fastmcp: --peer mcp=/tmp/venv/bin/python.
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

PATIENCE = 20.0  # seconds that a server may be silent
# How much is measured.
ROUNDS = 7
STARTS = 15
LARGE = 8  # MiB
WIDTHS = (1, 8, 32)

# The servers. Each is called with a port, or 0 for stdio, and a number of tools; the
# first of these gives back its text. #################################################

BARE = """
import json
import socket
import sys
import threading
def answer(data):
    message = json.loads(data)
    text = message["params"]["arguments"]["text"]
    result = {"content": [{"type": "text", "text": text}]}
    answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
    return json.dumps(answer).encode()
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
        body = answer(data[:size])
        data = data[size:]
        sock.sendall(HEAD % len(body) + body)
if port:
    listener = socket.create_server(("127.0.0.1", port), backlog=256)
    while True:
        sock, _ = listener.accept()
        threading.Thread(target=serve, args=(sock,), daemon=True).start()
for line in sys.stdin.buffer:
    sys.stdout.buffer.write(answer(line) + b"\\n")
    sys.stdout.buffer.flush()
"""
LITE = """
import os
sys.path.insert(0, os.environ["MCP_LITE_FOLDER"])
from mcp_lite import Server
server = Server("benchmark")
for tool in tools:
    server.add_tool(tool)
if port:
    server.run("http", port=port)
server.run()
"""
ZERO = """
import threading
from zeromcp import McpServer
server = McpServer("benchmark")
for tool in tools:
    server.tool(tool)
if port:
    server.serve("127.0.0.1", port)
    threading.Event().wait()
server.stdio()
"""
OFFICIAL = """
from mcp.server import MCPServer
server = MCPServer("benchmark", log_level="ERROR")
for tool in tools:
    server.add_tool(tool)
if port:
    server.run("streamable-http", port=port, json_response=True)
server.run()
"""
FAST = """
import logging
from fastmcp import FastMCP
server = FastMCP("benchmark")
for tool in tools:
    server.tool(tool)
if port:
    options = {"json_response": True, "uvicorn_config": {"log_level": "error"}}
    server.run("http", port=port, show_banner=False, **options)
server.run(show_banner=False)
"""
# What each of them begins with.
BEGINNING = """
import sys
port, count = map(int, sys.argv[1:])
def make(number):
    def tool(text: str) -> str:
        return text
    tool.__name__ = f"echo{number or ''}"
    tool.__doc__ = "Give back a text."
    return tool
tools = map(make, range(count))
"""
PEERS = {"zeromcp": ZERO, "mcp": OFFICIAL, "fastmcp": FAST}


class Server(typing.NamedTuple):
    """One of those that are compared."""

    name: str
    python: str
    code: str

    def start(self, port=0, tools=1):
        command = [self.python, "-c", BEGINNING + self.code, str(port), str(tools)]
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env=ENVIRONMENT,
        )


INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "b", "version": "0"},
    # The bare server looks for nothing else, whatever the method.
    "arguments": {"text": ""},
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def encode_request(method, params, number=0):
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    return json.dumps(message).encode()


class Peer:
    """A server as a child process, spoken to in raw lines.

    All have the same client.
    """

    def __init__(self, server, tools=1):
        self.process = server.start(tools=tools)
        self.input = self.process.stdin.fileno()
        self.output = self.process.stdout.fileno()
        self.ids = 0
        self.write(encode_request("initialize", INITIALIZE) + b"\n")
        self.read(1)
        if server.code is not BARE:
            self.write(json.dumps(INITIALIZED).encode() + b"\n")

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
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


class HttpPeer:
    """An HTTP server as a child process, with the request that everybody sends it.

    It goes over keep-alive connections, one request on each at a time, with the number
    of the connection as its id; in the newest revision, or to a server that does not
    know it, in a session.
    """

    META = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }

    def __init__(self, server):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = free.getsockname()
        self.process = server.start(port=self.address[1])
        self.wait_for_it()
        text = {"text": "hello"}
        self.params = {"name": "echo", "arguments": text, "_meta": self.META}
        self.headers = {
            "Host": "%s:%d" % self.address,
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "tools/call",
            "Mcp-Name": "echo",
        }
        answer, _ = self.post(self.body(0), self.headers)
        if b'"hello"' not in answer:
            self.headers = {**self.legacy_headers(), **self.open_session()}
            del self.params["_meta"]
            answer, _ = self.post(self.body(0), self.headers)
            assert b'"hello"' in answer, answer

    def body(self, number):
        return encode_request("tools/call", self.params, number)

    def request(self, number):
        body = self.body(number)
        headers = {**self.headers, "Content-Length": len(body)}
        lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
        head = "POST /mcp HTTP/1.1\r\n" + "".join(lines) + "\r\n"
        return head.encode() + body

    def wait_for_it(self):
        until = time.monotonic() + 30
        while True:
            try:
                return socket.create_connection(self.address).close()
            except ConnectionRefusedError:
                assert self.process.poll() is None, "the server has ended"
                assert time.monotonic() < until, "the server does not listen"
                time.sleep(0.01)

    def legacy_headers(self):
        return {
            "Host": "%s:%d" % self.address,
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }

    def post(self, body, headers):
        """The body of the answer, and its headers."""
        connection = http.client.HTTPConnection(*self.address)
        connection.request("POST", "/mcp", body, headers)
        response = connection.getresponse()
        answer = response.read()
        connection.close()
        return answer, response.headers

    def open_session(self):
        """The headers of a new session."""
        body = encode_request("initialize", INITIALIZE)
        _, headers = self.post(body, self.legacy_headers())
        session = {"MCP-Protocol-Version": "2025-11-25"}
        if headers["Mcp-Session-Id"]:
            session["Mcp-Session-Id"] = headers["Mcp-Session-Id"]
        sent = {**self.legacy_headers(), **session}
        self.post(json.dumps(INITIALIZED).encode(), sent)
        return session

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
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


def read_answer(sock, came=b""):
    """Go on with an answer over HTTP. Returns what there is of it, and whether that is
    all: as mostly, after one read."""
    data = sock.recv(1 << 16)
    assert data, "the server hung up"
    came += data
    head, _, body = came.partition(b"\r\n\r\n")
    size = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    # What has no size comes in chunks.
    is_whole = body.endswith(b"0\r\n\r\n")
    if size:
        is_whole = len(body) >= int(size)
    assert b'"hello"' in body or not is_whole, came
    return came, is_whole


def over_raw_sockets(peer, seconds, width):
    """Over `width` connections, from a client that costs next to nothing."""
    selector = selectors.DefaultSelector()
    for number in range(width):
        sock = socket.create_connection(peer.address)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(sock, selectors.EVENT_READ, peer.request(number))
        # One after another: some servers would lose those that come at once.
        sock.sendall(peer.request(number))
        came, is_whole = read_answer(sock)
        while not is_whole:
            came, is_whole = read_answer(sock, came)

    for key in list(selector.get_map().values()):
        key.fileobj.sendall(key.data)
    parts = {}
    answers = 0
    rate = 0.0
    start = time.perf_counter()
    # Who has asked is answered, also when the time is over.
    while selector.get_map():
        elapsed = time.perf_counter() - start
        if elapsed >= seconds:
            rate = rate or answers / elapsed
        events = selector.select(PATIENCE)
        assert events, "the server does not answer"
        for key, _ in events:
            sock = key.fileobj
            came, is_whole = read_answer(sock, parts.pop(sock, b""))
            if not is_whole:
                parts[sock] = came
                continue
            answers += 1
            if rate:
                selector.unregister(sock)
                sock.close()
            else:
                sock.sendall(key.data)
    selector.close()
    return Measured(rate, answers + width)


# The comparison. ######################################################################


class Figures(typing.NamedTuple):
    """What came out for one server: medians over the rounds."""

    # Answers a second, or what else is counted.
    value: float
    # How much of the bare server's that is.
    ratio: typing.Optional[float]
    # Microseconds of CPU time an answer, and how many times the bare server's.
    # None where the system does not tell.
    cpu: typing.Optional[float] = None
    cpu_ratio: typing.Optional[float] = None


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
    """Answers a second, and microseconds of CPU time an answer (or None)."""
    before = cpu_seconds(peer.process)
    measured = measure(peer, seconds)
    after = cpu_seconds(peer.process)
    if before is None or after is None or not measured.answers:
        return measured.rate, None
    return measured.rate, (after - before) / measured.answers * 1e6


def compare(measure, seconds, servers, start):
    """All servers in turns: {name: Figures}. The first is the one that others are
    compared with; `start(server)` -> a peer; `measure(peer, seconds)` -> Measured.

    Another library that does not keep up is left out.
    """
    each = seconds / ROUNDS / len(servers)
    peers = {server.name: start(server) for server in servers}
    rounds = {name: [] for name in peers}
    # The first is to warm up.
    for _ in range(1 + ROUNDS):
        for name in list(rounds):
            try:
                rounds[name].append(one_round(measure, peers[name], each))
            except (AssertionError, OSError) as error:
                print(f"{name}: left out: {error!r:.200}", file=sys.stderr)
                del rounds[name]
    for peer in peers.values():
        peer.close()
    bare_rates, bare_cpu = zip(*rounds[servers[0].name][1:])
    figures = {}
    for name, (_, *measured) in rounds.items():
        rates, cpu = zip(*measured)
        ratio = statistics.median(b / a for a, b in zip(bare_rates, rates) if a)
        figures[name] = Figures(statistics.median(rates), ratio)
        if None not in cpu + bare_cpu:
            median = statistics.median(cpu)
            times = median / statistics.median(bare_cpu)
            figures[name] = figures[name]._replace(cpu=median, cpu_ratio=times)
    return figures


def start_up(servers):
    """Milliseconds from the start of the process to its first answer: {name: Figures}.

    The bare one is `python3 -c "import json"`.
    """

    def start(server):
        before = time.perf_counter()
        if server.code is BARE:
            subprocess.check_call([PYTHON, "-c", "import json"])
            return time.perf_counter() - before
        peer = Peer(server)
        elapsed = time.perf_counter() - before
        peer.close()
        return elapsed

    for server in servers:
        start(server)
    rounds = [[start(server) * 1000 for server in servers] for _ in range(STARTS)]
    figures = {}
    for server, times in zip(servers, zip(*rounds)):
        ratio = statistics.median(row[0] / ours for row, ours in zip(rounds, times))
        figures[server.name] = Figures(statistics.median(times), ratio)
    return figures


def memory(process):
    """MiB that a process has, from /proc; None where there is none."""
    try:
        with open(f"/proc/{process.pid}/status") as file:
            for line in file:
                if line.startswith("VmRSS"):
                    return int(line.split()[1]) / 1024
    except OSError:
        pass
    return None


def idle_memory(servers):
    """MiB of idle stdio servers, where the system tells: {name: Figures}."""
    figures = {}
    for server in servers:
        peer = Peer(server)
        size = memory(peer.process)
        peer.close()
        if size is not None:
            figures[server.name] = Figures(size, None)
    return figures


def validations(seconds):
    """Validations a second of a small call's arguments, here and by jsonschema, where
    that is installed: {name: Figures}."""
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

    def measure(check):
        count = 0
        before = time.process_time()
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            for _ in range(100):
                assert not check(value)
            count += 100
        elapsed = time.perf_counter() - start
        return Figures(
            count / elapsed, None, (time.process_time() - before) / count * 1e6
        )

    figures = {"mcp_lite": measure(mcp_lite.Schema(schema).errors)}
    try:
        import jsonschema
    except ImportError:
        return figures
    validator = jsonschema.Draft202012Validator(schema)
    figures["jsonschema"] = measure(lambda value: not validator.is_valid(value))
    return figures


# What is printed. #####################################################################


class Row(typing.NamedTuple):
    """What was compared."""

    name: str
    # What its values are.
    unit: str
    figures: typing.Dict[str, Figures]


def show(number, digits=1):
    return "" if number is None else f"{number:,.{digits}f}"


def print_row(row):
    name = row.name
    for server, each in row.figures.items():
        print(
            f"{name:34} {server:10} {show(each.value):>10} {row.unit:8} "
            f"{show(each.ratio, 2):>5}  {show(each.cpu):>10} {show(each.cpu_ratio):>6}",
            flush=True,
        )
        name = ""


def measure_rows(servers, seconds):
    """Each row, as soon as it is measured."""
    for name, measure in (
        ("one call at a time", functools.partial(in_flight, width=1)),
        ("64 calls in flight", functools.partial(in_flight, width=64)),
        (f"{LARGE} MiB echoed", functools.partial(large, size=LARGE << 20)),
    ):
        yield Row(name, "a second", compare(measure, seconds, servers, Peer))
    for width in WIDTHS:
        wide = functools.partial(over_raw_sockets, width=width)
        figures = compare(wide, seconds, servers, HttpPeer)
        plural = "connections" if width > 1 else "connection"
        yield Row(f"HTTP, {width} {plural}", "a second", figures)
    yield Row("validations", "a second", validations(seconds / 4))
    yield Row("start to the first answer", "ms", start_up(servers))
    yield Row("idle memory", "MiB", idle_memory(servers))


def parse_peer(text):
    """--peer NAME=PYTHON"""
    name, _, python = text.partition("=")
    if name not in PEERS:
        known = ", ".join(PEERS)
        raise argparse.ArgumentTypeError(f"{name!r} is none of those known: {known}")
    if shutil.which(python) is None:
        raise argparse.ArgumentTypeError(f"{name}: no Python at {python!r}")
    return Server(name, python, PEERS[name])


def main():
    parser = argparse.ArgumentParser(description="mcp_lite beside a bare loop")
    parser.add_argument("seconds", nargs="?", type=float, default=4.0)
    parser.add_argument("--library", default=OURS, help="another copy of mcp_lite.py")
    parser.add_argument(
        "--peer",
        type=parse_peer,
        action="append",
        default=[],
        metavar="NAME=PYTHON",
        help=f"another library, and the Python that has it: {', '.join(PEERS)}",
    )
    options = parser.parse_args()
    socket.setdefaulttimeout(PATIENCE)
    servers = [Server("bare", PYTHON, BARE), Server("mcp_lite", PYTHON, LITE)]
    servers += options.peer
    # A copy, so that a file of another name will do, and that every version starts with
    # the same: a folder of its own that takes the compiled file.
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(options.library, os.path.join(folder, "mcp_lite.py"))
        ENVIRONMENT["MCP_LITE_FOLDER"] = folder
        sys.path.insert(0, folder)
        print(f"{'':66}to bare   us of CPU  to bare")
        for row in measure_rows(servers, options.seconds):
            print_row(row)


if __name__ == "__main__":
    main()
