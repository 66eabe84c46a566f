"""Minutes of mixed load with faults: every transport, every revision, and every call's outcome accounted for.

Teaches: a test of endurance is bookkeeping. Each call ends in exactly one of a right answer (its value is
checked), a failure that this program asked for, or a LOSS; what was not open before is not open after.
Run: python3 examples/soak.py [minutes, else 1] [seed, else 1]; it ends with 0 and "ok: ...", or "FAILED: ..."
"""

import contextlib
import faulthandler
import functools
import gc
import http.client
import json
import logging
import os
import queue
import random
import signal
import socket
import statistics
import struct
import sys
import threading
import time

sys.path.insert(
    0, os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
)  # where mcp_lite.py is
import mcp_lite  # noqa: E402
from mcp_lite import Cancelled, Client, ConnectionClosed, Context, MissingCapability  # noqa: E402
from mcp_lite import Server, Timeout, ToolError  # noqa: E402

PATIENCE = 30.0  # seconds for any answer: later is never
GROWTH = (
    16.0  # MiB by which a run's last quarter may exceed the one before, once it is warm
)
WARM, COLD_GROWTH = 30.0, 64.0  # seconds that takes; and what a shorter run may grow
VERSIONS = (*mcp_lite.LEGACY_VERSIONS, mcp_lite.NEWEST, "auto")
FORM = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
}
CHILD = [sys.executable, os.path.abspath(__file__), "--serve"]
NEVER = object()  # what no answer is equal to


def build_server(running):
    """The other end of every call. `running` has an item for each wait() that has not ended."""
    server = Server("soak", page_size=5)

    def tell(to: int, token: str, ctx: Context) -> str:
        ctx.warning(token)
        for n in range(1, to + 1):
            ctx.progress(n, to)
        return token

    def ask(kind: str, text: str, ctx: Context) -> str:
        if kind == "elicit":
            return ctx.elicit(text, FORM)["content"]["name"]
        if kind == "roots":
            return ctx.roots()[0]["uri"] + text
        return ctx.once("a", lambda: text) + "".join(
            ctx.sample(n + text)["content"]["text"] for n in "12"
        )

    def wait(ctx: Context) -> None:
        running.append(ctx)
        try:
            ctx.sleep(60)
        finally:
            running.remove(ctx)

    def fail(text: str) -> None:
        raise ToolError(text) if text < "8" else LookupError(text)

    def change(tool: str, uri: str) -> str:
        server.add_tool(lambda: tool, name=tool)
        server.remove_tool(tool)
        server.resource_updated(uri)
        return tool

    def whoami(ctx: Context) -> str:
        return f"{os.getpid()} {ctx.session_id or ''}"

    for tool in (tell, ask, wait, fail, change, whoami):
        server.add_tool(tool)
    server.add_tool(lambda a, b: a + b, name="add")
    server.add_tool(lambda text: text, name="echo")
    server.add_tool(lambda: os._exit(3), name="leave")
    server.add_tool(wait, name="overdue", timeout=0.02)
    server.add_resource("note://{name}", lambda name: "about " + name, name="note")
    server.add_prompt(lambda code: "review " + code, name="review")
    server.completion("review", "code")(lambda value: [value + "1", value + "2"])
    return server


class Soak(logging.Handler):
    """What the threads share: a server, in memory and on a port; what became of every call; when to stop."""

    def __init__(self, seconds, seed):
        super().__init__(logging.ERROR)
        self.seconds, self.seed, self.stop, self.running = (
            seconds,
            seed,
            threading.Event(),
            [],
        )
        self.counts = threading.Lock()  # guards the next two lines
        self.calls = self.failures = 0
        self.losses, self.answered = [], set()
        self.server = build_server(self.running)
        self.http = self.server.start_http(session_seconds=60.0)
        self.url, self.port = self.http.url, self.http.port
        self.restarts = 0  # counts beginnings and ends: odd while the port is closed

    def book(self, failures=0, answered=None, loss=None):
        """Book the outcome of one call: it failed as it should, answered somewhere, or is lost."""
        with self.counts:
            self.calls, self.failures = self.calls + 1, self.failures + failures
            self.answered |= {answered} - {None}
            self.losses += [loss] if loss else []
        if loss and len(self.losses) <= 20:
            print(f"LOSS {loss:.500}\n", end="", flush=True)

    def emit(self, record):  # what the library logs as an error is its own failure
        self.book(loss="logged: " + record.getMessage())

    def restart(self):
        """Close the HTTP server in the middle of everything, and start it again on the same port."""
        self.restarts += 1
        self.http.close()
        until, self.http = time.monotonic() + PATIENCE, None
        while self.http is None:
            try:
                self.http = self.server.start_http(port=self.port, session_seconds=60.0)
            except OSError:  # the system gave it to the other end of some connection
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)
        self.restarts += 1

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE)

    def restarted_since(self, mark):
        return mark % 2 == 1 or self.restarts != mark


class Gone(Exception):
    """The server of this client is gone: the visit is over."""


class Visit:
    """A client's stay: it connects, does this and that, and leaves, politely or not."""

    def __init__(self, soak, place, version, dice):
        self.soak, self.place, self.dice, self.who = (
            soak,
            place,
            dice,
            f"{place} {version}",
        )
        self.mark = soak.restarts  # restarts of the server since then are an excuse
        self.logged = queue.SimpleQueue()
        http = {"http": soak.url, "sse": soak.url.replace("/mcp", "/sse")}
        self.client = Client(
            {"memory": soak.server, "stdio": CHILD, **http}[place],
            version=version,
            timeout=PATIENCE,
            roots=["file:///"],
            on_elicit=lambda params: {
                "action": "accept",
                "content": {"name": params["message"]},
            },
            on_sample=lambda params: params["messages"][0]["content"]["text"],
            on_log=lambda level, data, logger: self.logged.put(data),
        )

    def run(self):
        with contextlib.suppress(Gone), contextlib.closing(self.client):
            self.settle("connect", lambda: self.client.connect() is self.client, True)
            self.settle(
                "set_log_level", lambda: self.client.set_log_level("info"), None
            )
            for _ in range(self.dice.choice((5, 20, 80))):
                if self.soak.stop.is_set():
                    return
                if self.place == "http":  # the others must connect again
                    self.mark = self.soak.restarts
                self.settle(
                    None,
                    functools.partial(self.dice.choice(OPERATIONS[self.place]), self),
                    None,
                )
            leave = self.dice.choice(
                (Visit.look_around, Visit.close_with_calls_in_flight)
            )
            self.settle(None, functools.partial(leave, self), None)

    def settle(self, what, call, right, failure=()):
        """Make one call and book its one outcome: whether it was answered. Without `what`, call() settles."""
        try:
            value = call()
            if value == right:
                if what:
                    self.soak.book(answered=self.place)
                return True
            self.soak.book(
                loss=f"{self.who}: {what}: expected {right!r:.150}, got {value!r:.150}"
            )
        except Gone:
            raise
        except failure:
            self.soak.book(failures=1)
        except Exception as error:
            ended = isinstance(error, ConnectionClosed) or "no such session" in str(
                error
            )
            if (
                ended
                and self.place in ("http", "sse")
                and self.soak.restarted_since(self.mark)
            ):
                self.soak.book(failures=1)
                self.soak.stop.wait(0.05)  # until the port is open again, say
            else:
                self.soak.book(
                    loss=f"{self.who}: {what}: expected {right!r:.150}, got {error!r}"
                )
            if what == "connect" or ended and self.place != "http":
                raise Gone from error
        return False

    def call(self, name, right, failure=(), **arguments):
        return self.settle(
            name, lambda: self.client.call(name, **arguments), right, failure
        )

    def collect(self, call, right, failure=()):
        return self.settle(
            "result", lambda: call.result()["content"][0]["text"], right, failure
        )

    def hear(self, inbox, item):
        """Settle that the item comes; what came before it goes. A restart on the way may have cost it."""

        def wait():
            until = time.monotonic() + PATIENCE
            while time.monotonic() < until:
                with contextlib.suppress(queue.Empty):
                    if inbox.get(timeout=1.0) == item:
                        return item
                    continue
                if self.soak.restarted_since(self.mark) and self.place in (
                    "http",
                    "sse",
                ):
                    raise ConnectionClosed("lost with the server")
            raise Timeout(f"{item} did not come")

        self.settle("hear", wait, item)

    def token(self):
        return f"{self.dice.getrandbits(64):016x}"

    # What a visitor does
    def calculate(self):
        a, b = self.dice.randrange(10**6), self.dice.randrange(10**6)
        self.settle("add", lambda: int(self.client.call("add", a=a, b=b)), a + b)

    def echo_large(self):
        text = self.token() * self.dice.choice((10, 1000, 10_000, 60_000))
        self.call("echo", text, text=text)

    def hear_progress_and_a_log(self):
        to, token, seen = self.dice.choice((1, 10, 300)), self.token(), []
        call = self.client.start_call(
            "tell",
            {"to": to, "token": token},
            on_progress=lambda *told: seen.append(told),
        )
        if self.collect(call, token):
            self.settle(
                "progress", lambda: seen, [(n, to, None) for n in range(1, to + 1)]
            )
            self.hear(self.logged, token)

    def answer_questions(self):
        text, old = self.token(), self.client.protocol_version < "2025-06-18"
        self.call(
            "ask",
            NEVER if old else text,
            MissingCapability if old else (),
            kind="elicit",
            text=text,
        )
        self.call("ask", "file:///" + text, kind="roots", text=text)
        self.call("ask", text + "1" + text + "2" + text, kind="sample", text=text)

    def give_up(self):
        seconds = self.dice.choice((0, 0.001, 0.02))
        self.settle(
            "timeout",
            lambda: self.client.call_tool("wait", timeout=seconds),
            NEVER,
            Timeout,
        )
        call = self.client.start_call("wait")
        self.soak.stop.wait(seconds)
        call.cancel("changed my mind")
        self.collect(call, NEVER, Cancelled)

    def fail_in_the_tool(self):
        text = self.token()
        said = text if text < "8" else "LookupError: " + text
        self.collect(self.client.start_call("fail", {"text": text}), said)
        self.collect(self.client.start_call("overdue"), "timed out after 0.02 seconds")
        self.call("fail", NEVER, ToolError, text=text)

    def look_around(self):
        token, client = self.token(), self.client
        self.settle("ping", client.ping, None)
        self.settle(
            "list_tools",
            lambda: TOOLS - {tool["name"] for tool in client.list_tools()},
            set(),
        )
        self.settle("read", lambda: client.read("note://" + token), "about " + token)
        self.settle(
            "complete",
            lambda: client.complete("review", "code", token),
            [token + "1", token + "2"],
        )
        self.settle(
            "get_prompt",
            lambda: client.get_prompt("review", {"code": token})["messages"],
            [{"role": "user", "content": {"type": "text", "text": "review " + token}}],
        )

    def burst(self):
        texts = [self.token() for _ in range(self.dice.choice((2, 10, 40)))]
        calls = [
            (text, self.client.start_call("echo", {"text": text})) for text in texts
        ]
        self.dice.shuffle(calls)
        for text, call in calls:
            self.collect(call, text)

    def listen(self):
        tool, uri, events = (
            "extra" + self.token(),
            "note://" + self.token(),
            queue.SimpleQueue(),
        )
        with self.client.listen(uris=[uri]) as heard:

            def take_down():
                with contextlib.suppress(ConnectionClosed):
                    for event in heard:
                        events.put(event["params"].get("uri") or event["method"])

            thread = threading.Thread(target=take_down, name="soak-listen")
            thread.start()
            if self.call("change", tool, tool=tool, uri=uri):
                self.hear(events, "notifications/tools/list_changed")
                self.hear(events, uri)
        thread.join()

    # Faults of its own making
    def end(self, how):
        """Have how() end the conversation with calls in flight: each fails, or was answered before."""
        text = self.token()
        calls = [
            (NEVER, self.client.start_call("wait"))
            for _ in range(self.dice.choice((1, 5)))
        ]
        calls += [(text, self.client.start_call("echo", {"text": text})) for _ in calls]
        how()
        for right, call in calls:
            self.collect(call, right, ConnectionClosed)

    def close_with_calls_in_flight(self):
        thread = threading.Thread(target=self.client.close, name="soak-close")
        self.end(thread.start)
        thread.join()
        self.call("add", NEVER, ConnectionClosed, a=1, b=1)

    def kill(self):
        """A server that is killed, or exits, can be started anew."""
        number = int(self.client.call("whoami").split()[0])
        self.end(
            self.dice.choice(
                (
                    lambda: os.kill(number, getattr(signal, "SIGKILL", signal.SIGTERM)),
                    lambda: self.call("leave", NEVER, ConnectionClosed),
                )
            )
        )
        self.call("add", NEVER, ConnectionClosed, a=1, b=1)
        self.client.close()
        self.settle("connect", lambda: self.client.connect() is self.client, True)

    def lose_session(self):
        """The server forgets a session: the next call opens another, and its caller does not notice."""
        _, session = self.client.call("whoami").split(" ")
        if session:
            connection = http.client.HTTPConnection("127.0.0.1", self.soak.port)
            # When it has just restarted, it has lost them all.
            with contextlib.closing(connection), contextlib.suppress(
                OSError, http.client.HTTPException
            ):
                connection.request(
                    "DELETE", "/mcp", headers={"Mcp-Session-Id": session}
                )
                connection.getresponse().read()
        self.calculate()


TOOLS = {
    "add",
    "echo",
    "tell",
    "ask",
    "wait",
    "overdue",
    "fail",
    "change",
    "whoami",
    "leave",
}
COMMON = [
    Visit.calculate,
    Visit.echo_large,
    Visit.hear_progress_and_a_log,
    Visit.answer_questions,
    Visit.give_up,
    Visit.fail_in_the_tool,
    Visit.look_around,
    Visit.burst,
    Visit.listen,
]
OPERATIONS = {
    "memory": COMMON,
    "stdio": [*COMMON, Visit.kill],
    "http": [*COMMON, Visit.lose_session],
    "sse": COMMON,
}


# What runs on each thread, until it is time to stop
def visits(soak, dice, place, turn):
    while not soak.stop.is_set():
        version, turn = VERSIONS[turn % len(VERSIONS)], turn + 1
        if place != "sse" or version != mcp_lite.NEWEST:
            Visit(soak, place, version, dice).run()


def raw_call(name, arguments):
    """The bytes of a modern tools/call over HTTP."""
    meta = {
        "progressToken": 1,
        "io.modelcontextprotocol/protocolVersion": mcp_lite.NEWEST,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": name, "arguments": arguments, "_meta": meta}
    body = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    )
    return (
        f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nMcp-Name: {name}\r\n"
        f"Accept: application/json, text/event-stream\r\nMcp-Method: tools/call\r\nConnection: close\r\n"
        f"MCP-Protocol-Version: {mcp_lite.NEWEST}\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


def hang_ups(soak, dice):
    """Raw sockets that hang up in the middle: of the head, the body, the handler, or the answer."""
    calls = (
        ("wait", {}),
        ("tell", {"to": 3000, "token": ""}),
        ("echo", {"text": "x" * 200_000}),
    )
    while not soak.stop.wait(0.02):
        data = raw_call(*dice.choice(calls))
        with contextlib.suppress(OSError), soak.connect() as sock:
            if dice.random() < 0.5:  # with a reset
                sock.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
            sock.sendall(
                data[
                    : dice.choice(
                        (len(data), dice.randrange(len(data)), dice.randrange(400))
                    )
                ]
            )
            sock.settimeout(dice.choice((0.001, 0.05)))
            sock.recv(dice.choice((1, 1000)))
        soak.book(failures=1)


def slow_readers(soak, dice):
    """Raw sockets that take their time with an answer, and get all of it."""
    while not soak.stop.is_set():
        mark, text, answer = (
            soak.restarts,
            "y" * dice.choice((1_000_000, 5_000_000)),
            b"",
        )
        with contextlib.suppress(OSError), soak.connect() as sock:
            sock.setsockopt(
                socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 17
            )  # far less than the answer
            sock.sendall(raw_call("echo", {"text": text}))
            for _ in range(10):
                answer += sock.recv(1 << 14)
                soak.stop.wait(0.05)
            answer += b"".join(iter(lambda: sock.recv(1 << 16), b""))
        if f'"text":"{text}"'.encode() in answer:
            soak.book(answered="slow readers")
        elif soak.restarted_since(mark):
            soak.book(failures=1)
        else:
            soak.book(loss=f"a slow reader got {len(answer)} bytes: {answer[:200]!r}")


def restarts(soak, dice):
    while not soak.stop.wait(dice.uniform(0.5, 1.0) * min(10.0, soak.seconds / 3)):
        soak.restart()


def run(soak, job, *arguments):
    """A job, on its thread, with dice of its own. One that fails is a loss."""
    try:
        job(soak, random.Random(f"{soak.seed} {job.__name__} {arguments}"), *arguments)
    except BaseException as error:
        soak.book(loss=f"{job.__name__}: {error!r}")
        raise


# What is looked at meanwhile, and at the end
def memory():
    """MiB in use; 0 where nobody tells."""
    with contextlib.suppress(OSError), open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
    return 0.0


def descriptors():
    """How many are open; 0 where nobody tells."""
    with contextlib.suppress(OSError):
        return len(os.listdir("/dev/fd")) - 1  # that of the listing
    return 0


def what_is_left(soak):
    """What should be gone when all is closed: {what: how many}."""
    gc.collect()
    found = {
        "handlers": len(soak.running),
        "conversations": sum(
            isinstance(each, mcp_lite.Connection) for each in gc.get_objects()
        ),
    }
    with contextlib.suppress(
        ChildProcessError, AttributeError
    ):  # none; or Windows, which has no such
        os.waitpid(-1, os.WNOHANG)
        found["child processes"] = 1
    return {what: count for what, count in found.items() if count}


def verdict(calls, losses, growth, most, threads, opened, left):
    """The last line: "ok: ...", or "FAILED: ..." and why. `threads` and `opened`: (before, after)."""
    wrong = [
        f"{count} {what}" for what, count in {"losses": losses, **left}.items() if count
    ]
    wrong += ["threads"] if threads[1] > threads[0] else []
    wrong += ["descriptors"] if opened[1] > opened[0] else []
    wrong += ["memory"] if growth > most else []
    return (f"FAILED: {', '.join(wrong)}: " if wrong else "ok: ") + (
        f"{calls} calls, {losses} losses, memory {growth:+.1f} MiB, threads {threads[0]} -> {threads[1]}, "
        f"descriptors {opened[0]} -> {opened[1]}"
    )


def main():
    before = threading.active_count(), descriptors()
    minutes, seed = (sys.argv[1:] + ["1", "1"][len(sys.argv) - 1 :])[:2]
    soak = Soak(float(minutes) * 60, seed)
    logging.getLogger("mcp_lite").addHandler(soak)
    jobs = [
        (visits, place, turn)
        for turn, place in enumerate(
            ("memory", "stdio", "http", "sse", "http", "memory", "stdio", "http")
        )
    ]
    workers = [
        threading.Thread(target=run, args=(soak, *job), name=f"soak {job}", daemon=True)
        for job in (*jobs, (hang_ups,), (slow_readers,), (restarts,))
    ]
    begin, samples, said = time.monotonic(), [], 0.0
    for worker in workers:
        worker.start()
    while (elapsed := time.monotonic() - begin) < soak.seconds:
        time.sleep(min(0.2, soak.seconds / 20))
        samples.append(memory())
        if elapsed - said >= min(5.0, soak.seconds / 4):
            said = elapsed
            print(
                f"{elapsed:6.1f} s {soak.calls:8} calls {soak.failures:7} expected failures "
                f"{len(soak.losses):3} losses {memory():6.1f} MiB {threading.active_count():4} threads "
                f"{descriptors():4} descriptors",
                flush=True,
            )
    soak.stop.set()
    until = time.monotonic() + 3 * PATIENCE
    for worker in workers:
        worker.join(max(0.0, until - time.monotonic()))
        if worker.is_alive():
            soak.book(loss=f"{worker.name} hangs")
            faulthandler.dump_traceback()
    soak.http.close()
    until = time.monotonic() + PATIENCE  # what is closed may take a moment to be gone
    while time.monotonic() < until and (
        threading.active_count() > before[0]
        or descriptors() > before[1]
        or what_is_left(soak)
    ):
        time.sleep(0.1)
    for place in {
        *OPERATIONS,
        *(["slow readers"] if soak.seconds >= WARM else []),
    } - soak.answered:
        soak.book(loss=f"{place}: nothing was answered")
    half, most = len(samples) // 2, GROWTH if soak.seconds >= WARM else COLD_GROWTH
    third, fourth = samples[half : half + half // 2], samples[half + half // 2 :]
    growth = statistics.median(fourth) - statistics.median(third)
    line = verdict(
        soak.calls,
        len(soak.losses),
        growth,
        most,
        (before[0], threading.active_count()),
        (before[1], descriptors()),
        what_is_left(soak),
    )
    print(line)
    return 0 if line.startswith("ok: ") else 1


if __name__ == "__main__":
    if "--serve" in sys.argv:
        build_server([]).run()
    else:
        sys.exit(main())
