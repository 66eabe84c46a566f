"""How fast is it, next to a bare loop that reads a line, parses it, answers? One run measures both.

Teaches: measure against what cannot be beaten, on the same machine, in the same minute; a ratio survives a
noisy machine, a number does not. Rounds alternate between the two, and the median counts.
Run: python3 examples/benchmark.py [seconds for each row]
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARY = os.path.dirname(HERE)
PYTHON = sys.executable
# As users run it: a compiled file is kept beside mcp_lite.py.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

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


class Peer:
    """A server as a child process, spoken to in raw lines: both sides of a ratio have the same client."""

    def __init__(self, code):
        self.folder = tempfile.TemporaryDirectory()
        path = os.path.join(self.folder.name, "server.py")
        with open(path, "w") as file:
            file.write(code)
        self.process = subprocess.Popen(
            [PYTHON, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=ENVIRONMENT
        )
        self.input, self.output = self.process.stdin.fileno(), self.process.stdout.fileno()
        self.ids = 0
        self.write(json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "b", "version": "0"},
            "arguments": {"text": ""}}}).encode() + b"\n")
        self.read(1)

    def write(self, data):
        view = memoryview(data)
        while view:
            view = view[os.write(self.input, view):]

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
        import threading
        writer = threading.Thread(target=peer.write, args=(data,))
        writer.start()
        peer.read(1)
        writer.join()
        count += 1
    return count / (time.perf_counter() - start)


def compare(measure, seconds, rounds=7):
    """The median of lite/bare over alternating rounds, and the medians of both."""
    bare, lite = Peer(BARE), Peer(LITE)
    try:
        measure(bare, 0.1)
        measure(lite, 0.1)
        pairs = [
            (measure(bare, seconds / rounds / 2), measure(lite, seconds / rounds / 2)) for _ in range(rounds)
        ]
    finally:
        bare.close()
        lite.close()
    return statistics.median(b / a for a, b in pairs), [statistics.median(column) for column in zip(*pairs)]


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
    return statistics.median(b / a for a, b in pairs), [statistics.median(column) for column in zip(*pairs)]


def idle_memory():
    """MiB of an idle stdio server, from /proc; None where there is none."""
    peer = Peer(LITE)
    try:
        with open(f"/proc/{peer.process.pid}/status") as file:
            return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS"))
    except OSError:
        return None
    finally:
        peer.close()


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 4.0
    print(f"{'stdio, ratio to the bare loop':34} {'ratio':>6}   bare -> mcp_lite")
    for name, measure in (("one call at a time", lambda peer, s: in_flight(peer, 1, s)),
                          ("64 calls in flight", lambda peer, s: in_flight(peer, 64, s)),
                          ("8 MiB echoed", lambda peer, s: large(peer, 8 << 20, s))):
        ratio, (bare, lite) = compare(measure, seconds)
        print(f"{name:34} {ratio:6.2f}   {bare:,.1f} -> {lite:,.1f} a second")
    ratio, (bare, lite) = start_up()
    print(f"{'start to the first answer':34} {ratio:6.2f}   {bare * 1000:.1f} -> {lite * 1000:.1f} ms")
    memory = idle_memory()
    if memory is not None:
        print(f"{'idle memory':34} {'':6}   {memory:.1f} MiB")


if __name__ == "__main__":
    main()
