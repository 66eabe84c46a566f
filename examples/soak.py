"""Minutes of mixed load with faults and attacks, in which every call is accounted for.

Teaches: an endurance test is bookkeeping. Each call ends in exactly one of three ways: a
right answer (its value is checked), a failure that this program asked for, or a LOSS; and
nothing stays open. Meanwhile, foes attack the server. Their outcomes are not counted: the
server's limits exist so that no friend notices the foes.

Run: python3 examples/soak.py [minutes, else 1] [seed, else 1]
The exit code is 0, with a last line "ok: ...", or 1, with "FAILED: ...".
"""

import argparse
import contextlib
import gc
import logging
import os
import random
import socket
import sys
import threading
import time

# mcp_lite.py is in this folder, or one up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.dirname(HERE))

from mcp_lite import (  # noqa: E402
    Cancelled,
    Client,
    ConnectionClosed,
    Context,
    McpError,
    Server,
    Timeout,
    ToolError,
)

PATIENCE = 30.0  # seconds for any answer; a later one is a loss
GROWTH = 16.0  # MiB that the last quarter of a warm run may have beyond the one before
COLD_GROWTH = 64.0  # MiB, if the run was too short to be warm
FRIENDS = 6
VERSIONS = (
    "2024-11-05",
    "2025-03-26",
    "2025-06-18",
    "2025-11-25",
    "2026-07-28",
    "auto",
)
CHILD = [sys.executable, os.path.abspath(__file__), "--serve"]


def build_server():
    """Make the server that every call goes to."""
    server = Server("soak", page_size=5)

    @server.tool
    def echo(text: str) -> str:
        return text

    @server.tool
    def tell(to: int, ctx: Context) -> int:
        for n in range(1, to + 1):
            ctx.progress(n, to)
        return to

    @server.tool
    def ask(text: str, ctx: Context) -> str:
        first = ctx.once("first", lambda: text)
        said = ctx.sample(f"1{text}")["content"]["text"]
        return first + said

    @server.tool
    def nap(ctx: Context) -> str:
        ctx.sleep(PATIENCE)
        return "slept"

    @server.tool
    def fail(text: str) -> None:
        raise ToolError(text)

    @server.tool
    def leave() -> None:
        os._exit(3)

    @server.tool
    def change(name: str) -> str:
        server.add_tool(lambda: name, name=name)
        server.remove_tool(name)
        return name

    server.add_resource("soak://{name}", lambda name: f"text of {name}")
    server.add_prompt(lambda code: f"review {code}", name="review")
    return server


class Soak:
    """Keeps the books, and the HTTP server, which may be replaced at any time."""

    def __init__(self, seconds, seed):
        self.until = time.monotonic() + seconds
        self.seed = seed
        self.lock = threading.Lock()
        # Guarded by the lock.
        self.calls = 0
        self.losses = 0
        self.server = build_server()
        self.restarts = 0
        # It stays open, so that no other program can take the port during a restart.
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.http = self.server.start_http(sock=self.socket.dup())

    def book(self, loss=""):
        """Account for one call."""
        with self.lock:
            self.calls += 1
            if loss:
                self.losses += 1
                print("LOSS", loss, flush=True)


class Visit:
    """One client, and some operations on it, each checked and accounted for."""

    def __init__(self, soak, dice):
        self.soak = soak
        self.dice = dice
        self.place = dice.choice(["memory", "stdio", "http", "sse"])
        self.version = dice.choice(VERSIONS)
        self.restarts = soak.restarts
        url = f"http://127.0.0.1:{soak.http.port}/mcp"
        if self.place == "sse":
            self.version = "2024-11-05"
            url = url.replace("/mcp", "/sse")
        targets = {"memory": soak.server, "stdio": CHILD}
        self.client = Client(
            targets.get(self.place, url),
            protocol_version=self.version,
            timeout=PATIENCE,
            on_sample=lambda params: params["messages"][0]["content"]["text"].upper(),
        )

    def run(self):
        """Connect, do a few operations, and close."""
        if not self.check("connect", self.client.connect, lambda got: True):
            return
        operations = [
            self.call_at_once,
            self.echo_much,
            self.hear_progress,
            self.answer_questions,
            self.give_up,
            self.run_out_of_time,
            self.fail_in_the_tool,
            self.look_around,
            self.listen,
        ]
        with contextlib.closing(self.client):
            for _ in range(self.dice.randint(1, 12)):
                self.dice.choice(operations)()
            if self.place == "stdio" and self.dice.random() < 0.3:
                self.expect(ConnectionClosed, lambda: self.client.call("leave"))

    def check(self, what, work, is_right):
        """Do some work, and account for it. Returns whether the outcome is right."""
        restarts = self.soak.restarts
        if self.place == "sse":
            # A session ends with the server that opened it.
            restarts = self.restarts
        loss = ""
        try:
            got = work()
            if not is_right(got):
                loss = f"wrong: {got!r:.200}"
        except Exception as error:
            loss = f"{type(error).__name__}: {error}"
            # The client's server was replaced, so the call may fail.
            over_http = self.place in ("http", "sse")
            if over_http and (restarts % 2 or restarts != self.soak.restarts):
                self.soak.book()
                return False
        where = f"{self.place} {self.version} {what}: "
        self.soak.book(loss and where + loss)
        return not loss

    def expect(self, kind, work):
        """Do work that must fail with an exception of this kind."""

        def fails():
            try:
                return work()
            except kind:
                return kind

        self.check(kind.__name__, fails, lambda got: got is kind)

    # The operations
    def call_at_once(self):
        texts = [str(self.dice.random()) for _ in range(self.dice.randint(1, 20))]

        def work():
            calls = [self.client.start_call("echo", {"text": each}) for each in texts]
            return [call.value(PATIENCE) for call in calls]

        self.check("calls at once", work, lambda got: got == texts)

    def echo_much(self):
        text = "x" * self.dice.choice([10, 100_000, 2_000_000])
        self.check("echo", lambda: self.client.call("echo", text=text), text.__eq__)

    def hear_progress(self):
        heard = []

        def work():
            self.client.call_tool(
                "tell", {"to": 3}, on_progress=lambda done, *_: heard.append(done)
            )
            return heard

        self.check("progress", work, lambda got: got == [1, 2, 3])

    def answer_questions(self):
        text = f"text {self.dice.random()}"
        right = text + f"1{text}".upper()
        self.check("ask", lambda: self.client.call("ask", text=text), right.__eq__)

    def give_up(self):
        def work():
            call = self.client.start_call("nap")
            call.cancel("enough")
            return call.result(PATIENCE)

        self.expect(Cancelled, work)

    def run_out_of_time(self):
        self.expect(Timeout, lambda: self.client.call_tool("nap", timeout=0.05))

    def fail_in_the_tool(self):
        self.expect(ToolError, lambda: self.client.call("fail", text="as asked"))
        self.expect(McpError, lambda: self.client.call("no such tool"))

    def look_around(self):
        name = f"n{self.dice.randrange(1000)}"
        right = f"text of {name}"
        self.check("read", lambda: self.client.read(f"soak://{name}"), right.__eq__)
        self.check("list", self.client.list_tools, lambda got: len(got) >= 7)
        self.check(
            "prompt",
            lambda: self.client.get_prompt("review", {"code": name})["messages"],
            lambda got: got[0]["content"]["text"] == f"review {name}",
        )

    def listen(self):
        def work():
            with self.client.listen() as events:
                # It ends the iteration if nothing arrives.
                timer = threading.Timer(PATIENCE, events.close)
                timer.start()
                self.client.call("change", name=f"t{self.dice.randrange(10**9)}")
                event = next(events)
                timer.cancel()
            return event["method"]

        right = "notifications/tools/list_changed"
        self.check("listen", work, right.__eq__)


def attack(soak, dice):
    """Attack the HTTP server once, in a way that no friend would."""
    head = (
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    )
    attacks = [
        b"",
        os.urandom(2000),
        head,
        head + b"Content-Length: 5000\r\n\r\nhalf a body",
        head + b"Content-Length: 9999999999\r\n\r\n",
        head + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
        head.replace(b"localhost", b"evil.example") + b"\r\n",
        head + b"X: " + b"y" * 100_000,
        head + b'Content-Length: 40\r\n\r\n{"jsonrpc": "2.0", "method": "\\ud800"}  ',
    ]
    place = ("127.0.0.1", soak.http.port)
    with contextlib.suppress(OSError), socket.create_connection(place, 1) as sock:
        sock.sendall(dice.choice(attacks))
        sock.settimeout(dice.choice([0.01, 0.5]))
        sock.recv(100)


def befriend(soak, dice):
    """Visit the server once, over one of the transports."""
    Visit(soak, dice).run()


def restart(soak, dice):
    """Replace the HTTP server. Calls that notice may fail."""
    soak.restarts += 1
    soak.http.close()
    soak.http = soak.server.start_http(sock=soak.socket.dup())
    soak.restarts += 1
    time.sleep(dice.uniform(1, 5))


def keep_doing(soak, job, number):
    """Run a job over and over until the time is up. This is one thread of the load."""
    dice = random.Random(f"{soak.seed} {number}")
    while time.monotonic() < soak.until:
        try:
            job(soak, dice)
        except Exception as error:
            soak.book(f"{job.__name__}: {type(error).__name__}: {error}")


def memory():
    """Return the MiB that this process has; 0 where the system does not tell."""
    with contextlib.suppress(OSError), open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / (1 << 20)
    return 0.0


def descriptors():
    """Return how many files and sockets are open; 0 where the system does not tell."""
    with contextlib.suppress(OSError), os.scandir("/proc/self/fd") as links:
        # PyPy leaves the libraries open that it has loaded.
        return sum(".so." not in os.path.realpath(link) for link in links)
    return 0


def verdict(calls, losses, growth, most, threads, opened):
    """Return the last line. `threads` and `opened` are counts before and after."""
    faults = {
        f"{losses} losses": losses,
        "memory": growth > most,
        "threads": threads[0] != threads[1],
        "descriptors": opened[0] != opened[1],
    }
    wrong = [name for name, is_wrong in faults.items() if is_wrong]
    begins = f"FAILED: {', '.join(wrong)}" if wrong else "ok"
    return (
        f"{begins}: {calls} calls, {losses} losses, memory {growth:+.1f} MiB, threads "
        f"{threads[0]} -> {threads[1]}, descriptors {opened[0]} -> {opened[1]}"
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.error = lambda why: sys.exit(f"soak: {why}; see --help")
    parser.add_argument("minutes", nargs="?", type=float, default=1.0)
    parser.add_argument("seed", nargs="?", type=float, default=1.0)
    # For the server that this program starts.
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        build_server().run()
        return 0
    minutes, seed = options.minutes, options.seed
    # The library would log each attack that it refuses.
    logging.disable()
    threads, opened = threading.active_count(), descriptors()
    soak = Soak(minutes * 60, seed)
    jobs = [befriend] * FRIENDS + [attack] * 2 + [restart]
    load = [
        # After Ctrl-C, they do not hold up the end.
        threading.Thread(target=keep_doing, args=(soak, job, number), daemon=True)
        for number, job in enumerate(jobs)
    ]
    for each in load:
        each.start()
    samples = [memory()]
    while time.monotonic() < soak.until:
        time.sleep(min(1.0, minutes * 6))
        samples.append(memory())
    for each in load:
        each.join()
    soak.http.close()
    soak.socket.close()
    for _ in range(600):
        if (threading.active_count(), descriptors()) == (threads, opened):
            break
        gc.collect()
        time.sleep(0.05)
    quarter = max(1, len(samples) // 4)
    growth = max(samples[-quarter:]) - max(samples[-2 * quarter : -quarter] or samples)
    line = verdict(
        soak.calls,
        soak.losses,
        growth,
        GROWTH if minutes > 1 else COLD_GROWTH,
        (threads, threading.active_count()),
        (opened, descriptors()),
    )
    print(line)
    return int(not line.startswith("ok"))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
