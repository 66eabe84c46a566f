"""How fast is the library, compared with a bare loop that reads a request and answers it?

Teaches: compare with something that cannot be beaten, on the same machine, in the same
minute. A ratio survives a noisy machine, a number does not. Rounds alternate between the
servers, and the median counts. Over HTTP, the client is made of raw sockets, and costs
next to nothing.

A row has, for each server, the answers per second, and on Linux the CPU time that an
answer costs the server, each beside its ratio to the bare server. The CPU time is the
least noisy figure: use it to compare two versions of the library.

Run: python3 examples/benchmark.py [seconds for each row] [--rounds NUMBER]
         [--library FOLDER] [--peer NAME=PYTHON] [--svg FILE] [--table FILE]
     python3 examples/benchmark.py --redraw PAGE --svg FILE

--library is a folder with another version of mcp_lite.py.
A peer is another library, run by the Python of a venv that has it; its NAME is mcpatom,
zeromcp, mcp (the official SDK) or fastmcp: --peer mcp=/tmp/venv/bin/python.
--svg draws some of the figures; --table writes all of them into the table of a page, such
as examples/README.md; --redraw reads them from there instead of measuring.
"""

import argparse
import contextlib
import functools
import http.client
import itertools
import json
import os
import re
import selectors
import socket
import statistics
import subprocess
import sys
import threading
import time

# The figures: {row: {server: figure}}. That of a call is its CPU time.
MEASURED = {}
# The rows that are drawn, each with its heading and its unit.
PICTURE = {
    "one call at a time": ("On stdio, one call at a time", "µs"),
    "64 calls in flight": ("On stdio, 64 calls in flight", "µs"),
    "HTTP, connections: 8": ("Over HTTP, 8 connections", "µs"),
    "ms, start to the first answer": ("From the start to the first answer", "ms"),
}
CAPTION = (
    "A bar shows the CPU time that one call costs the server, or the time from its start",
    "to its first answer; shorter is better. The bare loop does nothing but answer.",
)
NAMES = {"bare": "bare loop", "mcp": "official SDK", "fastmcp": "FastMCP"}
# The table in a page.
TABLE = re.compile(r"^\| measured \|.*\n(\|.*\n)+", re.MULTILINE)

# The servers. Each is called with a port, or 0 for stdio, and has one tool, which returns
# its text. ############################################################################

# Each program begins with this.
BEGINNING = """
import sys
port = int(sys.argv[1])
sys.path.insert(0, sys.argv[2])
def echo(text: str) -> str:
    "Give back a text."
    return text
"""
CODE = {
    "bare": """
import json
import socket
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
""",
    "mcp_lite": """
from mcp_lite import Server
server = Server("benchmark")
server.add_tool(echo)
if port:
    server.run("http", port=port)
server.run()
""",
    "mcpatom": """
from mcpatom import Server
server = Server("benchmark")
server.tool(echo)
if port:
    server.serve_http(port)
server.serve_stdio()
""",
    "zeromcp": """
import threading
from zeromcp import McpServer
server = McpServer("benchmark")
server.tool(echo)
if port:
    server.serve("127.0.0.1", port)
    threading.Event().wait()
server.stdio()
""",
    "mcp": """
from mcp.server import MCPServer
server = MCPServer("benchmark", log_level="ERROR")
server.add_tool(echo)
if port:
    server.run("streamable-http", port=port, json_response=True)
server.run()
""",
    "fastmcp": """
from fastmcp import FastMCP
server = FastMCP("benchmark")
server.tool(echo)
if port:
    options = {"json_response": True, "uvicorn_config": {"log_level": "error"}}
    server.run("http", port=port, show_banner=False, **options)
server.run(show_banner=False)
""",
}
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "b", "version": "0"},
    # The bare server looks for nothing else, whatever the method.
    "arguments": {"text": ""},
}
REQUEST = (
    b'{"jsonrpc":"2.0","id":%d,"method":"tools/call",'
    b'"params":{"name":"echo","arguments":{"text":"%s"}}}\n'
)
INITIALIZED = b'{"jsonrpc": "2.0", "method": "notifications/initialized"}'


# How many lines of Python a library has, without those that it needs.
COUNT = """
import importlib.util, pathlib, sys
sys.path.insert(0, sys.argv[2])
found = importlib.util.find_spec(sys.argv[1])
files = [pathlib.Path(found.origin)] if found else []
if files and files[0].name == "__init__.py":
    files = files[0].parent.rglob("*.py")
print(sum(len(path.read_bytes().splitlines()) for path in files))
"""


def encode_request(method, params, number=0):
    return json.dumps(
        {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    ).encode()


class Peer:
    """Runs a server as a child process, and speaks to it in raw lines."""

    def __init__(self, name, python, folder, port=0):
        self.process = subprocess.Popen(
            [python, "-c", BEGINNING + CODE[name], str(port), folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # As users run it: a compiled file is kept beside mcp_lite.py.
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""},
        )
        self.ids = itertools.count(1)
        self.open(name)

    def open(self, name):
        self.write(encode_request("initialize", INITIALIZE) + b"\n")
        self.read(1)
        if name != "bare":
            self.write(INITIALIZED + b"\n")

    def write(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def read(self, lines):
        """Read until that many lines have come, and return how many did."""
        seen = 0
        while seen < lines:
            data = self.process.stdout.read1(1 << 16)
            assert data, "the server closed its output"
            seen += data.count(b"\n")
        return seen

    def requests(self, count, text=b"hello"):
        return b"".join(REQUEST % (next(self.ids), text) for _ in range(count))

    def close(self):
        self.process.kill()
        self.process.communicate()


class HttpPeer(Peer):
    """Runs an HTTP server as a child process, and makes the request that is sent to it.

    The request goes over keep-alive connections, one at a time on each, with the number
    of the connection as its id. It is one of the newest revision; a server that does
    not know that revision gets it in a session.
    """

    META = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    MODERN = {
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "echo",
    }

    def __init__(self, name, python, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = free.getsockname()
        super().__init__(name, python, folder, self.address[1])

    def open(self, name):
        self.wait_for_it()
        self.params = {
            "name": "echo",
            "arguments": {"text": "hello"},
            "_meta": self.META,
        }
        self.headers = {
            "Host": "%s:%d" % self.address,
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        answer, _ = self.post(self.body(0), self.MODERN)
        if b'"hello"' in answer:
            self.headers.update(self.MODERN)
            return
        del self.params["_meta"]
        _, told = self.post(encode_request("initialize", INITIALIZE))
        self.headers["MCP-Protocol-Version"] = "2025-11-25"
        if told["Mcp-Session-Id"]:
            self.headers["Mcp-Session-Id"] = told["Mcp-Session-Id"]
        self.post(INITIALIZED)

    def wait_for_it(self):
        while self.process.poll() is None:
            with contextlib.suppress(ConnectionRefusedError):
                socket.create_connection(self.address).close()
                break
            time.sleep(0.01)

    def post(self, body, more=()):
        """Return the body of the answer, and its headers."""
        connection = http.client.HTTPConnection(*self.address)
        connection.request("POST", "/mcp", body, {**self.headers, **dict(more)})
        response = connection.getresponse()
        answer = response.read()
        connection.close()
        return answer, response.headers

    def body(self, number):
        return encode_request("tools/call", self.params, number)

    def request(self, number):
        body = self.body(number)
        headers = {**self.headers, "Content-Length": len(body)}
        lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
        return f"POST /mcp HTTP/1.1\r\n{''.join(lines)}\r\n".encode() + body


# The measures: each keeps a server busy until a time of time.perf_counter(), and returns
# how many answers there were. #########################################################


def in_flight(peer, until, width):
    """Keep `width` requests open over stdio."""
    answers = 0
    peer.write(peer.requests(width))
    while time.perf_counter() < until:
        came = peer.read(1)
        answers += came
        peer.write(peer.requests(came))
    return answers + peer.read(width)


def large(peer, until, size):
    """Send one large text over stdio, and receive it again, over and over."""
    data = peer.requests(1, b"x" * size)
    answers = 0
    while time.perf_counter() < until or not answers:
        # Neither pipe holds the text: a thread has to write while this one reads.
        writer = threading.Thread(target=peer.write, args=(data,))
        writer.start()
        peer.read(1)
        writer.join()
        answers += 1
    return answers


def read_answer(sock):
    """Read one answer over HTTP. Usually, one read is enough."""
    came = b""
    size = 1
    while len(came) < size:
        data = sock.recv(1 << 16)
        assert data, "the server hung up"
        came += data
        head = came.partition(b"\r\n\r\n")[0]
        told = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        size = len(head) + 4 + int(told or b"0")


def over_sockets(peer, until, width):
    """Keep a request open on each of `width` connections."""
    with selectors.DefaultSelector() as selector:
        for number in range(width):
            sock = socket.create_connection(peer.address, timeout=20)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(sock, selectors.EVENT_READ, peer.request(number))
            # One after another, as some servers lose requests that arrive at once.
            sock.sendall(peer.request(number))
            read_answer(sock)
        keys = list(selector.get_map().values())
        for key in keys:
            key.fileobj.sendall(key.data)
        answers = 2 * width
        while time.perf_counter() < until:
            events = selector.select(timeout=20)
            assert events, "the server does not answer"
            for key, _ in events:
                read_answer(key.fileobj)
                key.fileobj.sendall(key.data)
            answers += len(events)
        for key in keys:
            read_answer(key.fileobj)
            key.fileobj.close()
    return answers


# The comparison. ######################################################################


def cpu_seconds(process):
    """Return the CPU time that the process has used, or 0 if the system does not say.

    Linux has a clock for each process, whose number is derived from the process's id
    (clock_getcpuclockid(3)). It counts nanoseconds, like /proc/PID/task/*/schedstat, but
    includes threads that have ended.
    """
    if not sys.platform.startswith("linux"):
        return 0.0
    # 2: the clock of the scheduler.
    return time.clock_gettime(~process.pid << 3 | 2)


def one_round(measure, peer, seconds):
    """Return answers a second, and microseconds of CPU an answer (0 if unknown)."""
    before = cpu_seconds(peer.process)
    start = time.perf_counter()
    answers = measure(peer, start + seconds)
    rate = answers / (time.perf_counter() - start)
    return rate, (cpu_seconds(peer.process) - before) / answers * 1e6


def compare(name, kind, measure, options, servers):
    """Measure all servers in turns, and print a row for each."""
    each = options.seconds / options.rounds / len(servers)
    peers = {}
    rounds = {server[0]: [] for server in servers}
    with contextlib.ExitStack() as stack:
        for server in servers:
            peers[server[0]] = kind(*server)
            stack.callback(peers[server[0]].close)
        # The first round warms up.
        for _ in range(1 + options.rounds):
            for server in rounds:
                rounds[server].append(one_round(measure, peers[server], each))
    bare_rates, bare_cpu = zip(*rounds["bare"][1:])
    for server, measured in rounds.items():
        rates, cpu = zip(*measured[1:])
        ratio = statistics.median(b / a for a, b in zip(bare_rates, rates))
        cost = statistics.median(cpu)
        print_row(
            name,
            server,
            statistics.median(rates),
            ratio,
            cost,
            cost / (statistics.median(bare_cpu) or 1.0),
        )


def print_row(name, server, *figures):
    """Print one row. Of four figures, the third is the CPU time."""
    print(f"{name:34} {server:9}", *(f"{each:12,.2f}" for each in figures), flush=True)
    MEASURED.setdefault(name, {})[server] = figures[2 % len(figures)]


def median_ms(work, rounds):
    """Return the milliseconds that this takes: the median of several times."""
    times = []
    # The first time may write the compiled file.
    for _ in range(1 + rounds):
        before = time.perf_counter()
        work()
        times.append((time.perf_counter() - before) * 1000)
    return statistics.median(times[1:])


def start_up(server, rounds):
    """Print the time to the first answer, an idle server's MiB, and its lines."""
    peers = []
    print_row(
        "ms, start to the first answer",
        server[0],
        median_ms(lambda: peers.append(Peer(*server)), rounds),
    )
    with contextlib.suppress(OSError), open(f"/proc/{peers[0].process.pid}/statm") as f:
        print_row("MiB, idle", server[0], int(f.read().split()[1]) / 256)
    for peer in peers:
        peer.close()
    command = [server[1], "-c", COUNT, server[0], server[2]]
    print_row("lines", server[0], int(subprocess.check_output(command)))


# The picture and the table. ###########################################################


def draw(path):
    """Draw the rows of PICTURE: a bar for each figure, beside the longest of its row."""
    y = 0
    texts = []

    def add(text, height=18):
        nonlocal y
        y += height
        texts.append(f'<g transform="translate(8 {y})">{text}</g>')

    for line in CAPTION:
        add(f"<text>{line}</text>")
    for row, (title, unit) in PICTURE.items():
        figures = MEASURED[row]
        add(f'<text font-weight="bold">{title}</text>', height=28)
        for name, value in figures.items():
            # Not every system tells the CPU time of a process.
            width = 400 * value / (max(figures.values()) or 1)
            add(
                f'<text x="90" text-anchor="end">{NAMES.get(name, name)}</text>'
                f'<rect x="100" y="-10" width="{width:.0f}" height="12" class="{name}"/>'
                f'<text x="{106 + width:.0f}">{shown(value)} {unit}</text>'
            )
    with open(path, "w", encoding="utf-8") as file:
        file.write(
            f'<svg xmlns="http://www.w3.org/2000/svg" width="640" height="{y + 12}" '
            'font-family="sans-serif" font-size="12" fill="#57606a">\n'
            "<style>rect {fill: #afb8c1} .mcp_lite {fill: #0a58ca}\n"
            "@media (prefers-color-scheme: dark)\n"
            "{text {fill: #9da7b3} rect {fill: #6e7781} .mcp_lite {fill: #4493f8}}\n"
            "</style>\n"
        )
        file.write("\n".join([*texts, "</svg>\n"]))


def shown(value):
    """Return a figure as text, with one decimal if it is below 100."""
    value = round(value, 1)
    return f"{value:,.{int(0 < value < 100)}f}"


def write_table(path):
    """Replace the table of a page by one with all figures."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    servers = list(MEASURED["one call at a time"])
    rows = [["measured", *servers], ["---"] * (1 + len(servers))]
    for row, figures in MEASURED.items():
        # A few rows are not about a server.
        if figures.keys() == set(servers):
            rows.append([row, *(shown(figures[name]) for name in servers)])
    table = "".join(f"| {' | '.join(cells)} |\n" for cells in rows)
    with open(path, "w", encoding="utf-8") as file:
        file.write(TABLE.sub(lambda _: table, text))


def read_table(path):
    """Read the figures from the table of a page, instead of measuring."""
    with open(path, encoding="utf-8") as file:
        head, _, *lines = TABLE.search(file.read())[0].splitlines()
    _, *servers = head.strip("| ").split(" | ")
    for line in lines:
        row, *cells = line.strip("| ").split(" | ")
        figures = [float(cell.replace(",", "")) for cell in cells]
        MEASURED[row] = dict(zip(servers, figures))


def measure_all(options):
    """Measure all rows, and print them."""
    folder = os.path.abspath(options.library)
    chosen = [f"bare={sys.executable}", f"mcp_lite={sys.executable}", *options.peer]
    servers = [(*each.split("=", 1), folder) for each in chosen]
    print(f"{'':45}     a second      to bare    us of CPU      to bare")
    for name, kind, measure in (
        ("one call at a time", Peer, functools.partial(in_flight, width=1)),
        ("64 calls in flight", Peer, functools.partial(in_flight, width=64)),
        ("8 MiB echoed", Peer, functools.partial(large, size=8 << 20)),
        ("HTTP, connections: 1", HttpPeer, functools.partial(over_sockets, width=1)),
        ("HTTP, connections: 8", HttpPeer, functools.partial(over_sockets, width=8)),
        ("HTTP, connections: 32", HttpPeer, functools.partial(over_sockets, width=32)),
    ):
        compare(name, kind, measure, options, servers)
    for server in servers:
        start_up(server, options.rounds)
    # Python finds no compiled file, and writes none.
    unseen = "pycache_prefix=" + os.path.join(folder, "none")
    code = f"import sys; sys.path.insert(0, {folder!r}); import mcp_lite"
    for name, words in (
        ("ms, import json", ["-c", "import json"]),
        ("ms, mcp_lite without a .pyc", ["-B", "-X", unseen, "-c", code]),
    ):
        start = functools.partial(subprocess.check_call, [sys.executable, *words])
        print_row(name, "", median_ms(start, options.rounds))


def known_peer(text):
    """Return NAME=PYTHON unchanged, if it names a peer of CODE."""
    name, _, python = text.partition("=")
    if name not in CODE or not python:
        raise argparse.ArgumentTypeError(f"expected {'|'.join(CODE)}=PYTHON")
    return text


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.error = lambda why: sys.exit(f"benchmark: {why}; see --help")
    parser.add_argument("seconds", nargs="?", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=7, help="7 if not given")
    parser.add_argument(
        "--library",
        default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
        metavar="FOLDER",
    )
    parser.add_argument("--svg", metavar="FILE", help="draw some of the figures")
    parser.add_argument(
        "--table", metavar="FILE", help="write all figures into this page"
    )
    parser.add_argument(
        "--redraw", metavar="FILE", help="draw the figures in this page"
    )
    parser.add_argument(
        "--peer",
        action="append",
        type=known_peer,
        default=[],
        metavar="NAME=PYTHON",
        help=", ".join(CODE),
    )
    options = parser.parse_args()
    pages = [page for page in (options.redraw, options.table) if page]
    if not all(map(os.path.isfile, pages)):
        parser.error(f"no such page: {pages[0]}")
    if options.redraw:
        read_table(options.redraw)
    else:
        measure_all(options)
    if options.table:
        write_table(options.table)
        # The picture has the figures as the table rounds them.
        read_table(options.table)
    if options.svg:
        draw(options.svg)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
