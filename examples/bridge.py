"""Offers any server to clients of any revision, on stdio or at a URL.

Teaches: how middleware can answer requests itself, and how to translate questions from
one era to the other.

Run: python3 examples/bridge.py TARGET                  offered on stdio
     python3 examples/bridge.py TARGET --http 8000      offered at a URL
     python3 examples/bridge.py --http 8000 -- python3 server.py --its-own options
TARGET is a URL, a script, or a command in quotes. --allow GLOB and --deny GLOB, which may
be repeated, select its tools.

Tools, resources, prompts, completions, progress, cancellation, logs, questions, list
changes and updates pass through. Each caller over HTTP has a client of its own, so that
its questions reach nobody else. A caller is a principal, or else a session, or else a
single request whose sender can be asked. On stdio there is one caller, and so one client.
A question stays open until the caller answers it, even if the other server has withdrawn
it. A server that has ended is started again by the next request.

There are at most ten clients, as each may be a process. A busy client is never closed for
another caller, which waits until some client is idle. Then the one that has been idle
longest is closed; its caller gets a new client with the next request.
"""

import argparse
import fnmatch
import os
import queue
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from functools import partial

# mcp_lite.py is in this folder, or one up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.dirname(HERE))

from mcp_lite import (  # noqa: E402
    Cancelled,
    Client,
    Context,
    InternalError,
    McpError,
    MethodNotFound,
    NotFound,
    Server,
    principal,
)

HANDED_ON = (
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "prompts/list",
    "prompts/get",
    "completion/complete",
)
QUESTIONS = ("elicitation", "sampling", "roots")
# Members of requests and results that concern only one side of the bridge.
NOT_HANDED_ON = (
    "_meta",
    "inputResponses",
    "requestState",
    "resultType",
    "ttlMs",
    "cacheScope",
)
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
PATIENCE = 600.0  # seconds to wait for the answer to a question, or for an idle client
PAUSE = 0.05  # seconds in which several clients may report the same change
MAX_LINKS = 10  # clients of the other server; each may be a process
MAX_WAITING = 128  # requests that wait for a client; each holds a connection
MAX_REQUESTS = 1000  # requests served at once; a waiting one must not block others


class CallerGone(Exception):
    """The request that was to carry a question has ended."""


class Relay:
    """A request that the other server is working on. It outlives the caller's rounds.

    An event is a function that gets the Context of the current round. None is the end.
    """

    def __init__(self):
        self.lock = threading.Lock()
        self.events = queue.SimpleQueue()
        # The event that a question has interrupted. The next round calls it again.
        self.interrupted = None
        # The pending answers; None once the request is over. Guarded by `lock`.
        self.answers = set()
        # The thread that waits for the other server's result.
        self.thread = None
        self.outcome = Future()
        # When the outcome arrived: time.monotonic().
        self.ended_at = None
        # The call of the other server, if the request is a tool call.
        self.call = None

    def follow(self, ctx):
        """Call the events until the end. A question may end the round in the middle of
        an event; the next round calls that event again."""
        event = self.interrupted or self.events.get()
        while event is not None:
            self.interrupted = event
            event(ctx)
            event = self.events.get()
        self.interrupted = None

    def ask(self, method, params):
        """Ask the caller, and block until the answer arrives. Raises the caller's error,
        or CallerGone if there is nobody to ask any more."""
        answer = Future()
        key = os.urandom(8).hex()

        def put(ctx):
            try:
                result = ctx.ask({key: (method, params)})[key]
            except Cancelled:
                self.end()
                raise
            except Exception as error:
                self.settle(answer, error=error)
            else:
                self.settle(answer, result=result)

        with self.lock:
            if self.answers is None:
                raise CallerGone()
            self.answers.add(answer)
            self.events.put(put)
        return answer.result(PATIENCE)

    def settle(self, answer, result=None, error=None):
        """Resolve a pending answer; do nothing if it has been resolved already."""
        with self.lock:
            is_open = self.answers is not None and answer in self.answers
            if is_open:
                self.answers.remove(answer)
        if is_open and error is not None:
            answer.set_exception(error)
        elif is_open:
            answer.set_result(result)

    def end(self):
        """Ask the caller nothing more, as the request is over. Idempotent."""
        with self.lock:
            unanswered = self.answers or ()
            self.answers = None
        for each in unanswered:
            each.set_exception(CallerGone())
        self.events.put(None)


class Link:
    """A client of the other server. It belongs to one caller, or to several callers that
    cannot be distinguished."""

    def __init__(self, bridge, key, declared, is_private):
        self.bridge = bridge
        # Its owner, with the capabilities that this caller has declared.
        self.key = key
        self.is_private = is_private
        # How many requests use it, and when the latest one began. Guarded by the bridge's
        # `changed`.
        self.users = 0
        self.used_at = 0.0
        # Serialises connecting.
        self.opening = threading.Lock()
        # The URIs that the caller has subscribed to.
        self.uris = set()
        # The requests in progress, the oldest first.
        self.relays = []
        callbacks = {
            "elicitation": dict.fromkeys(
                ("on_elicit", "on_elicit_url"), partial(self.ask, "elicitation/create")
            ),
            "sampling": {
                "on_sample": partial(self.ask, "sampling/createMessage"),
                "sampling_tools": True,
            },
            "roots": {"roots": lambda: self.ask("roots/list", {})["roots"]},
        }
        options = dict(bridge.options, validate=False)
        for name in declared:
            options.update(callbacks[name])
        self.client = Client(
            bridge.target, on_log=self.log, on_notification=bridge.note, **options
        )

    def open(self):
        """Connect, again if the server has ended, and return the client."""
        with self.opening:
            try:
                self.client.connect()
            except RuntimeError:
                # The client is connected already.
                return self.client
            try:
                self.prepare()
            except BaseException:
                # Otherwise, the next caller would believe that it is prepared.
                self.client.close()
                raise
        return self.client

    def prepare(self):
        """Subscribe to everything that the other server can report."""
        if "logging" in self.client.server_capabilities:
            self.client.set_log_level("debug")
        for uri in list(self.uris):
            self.client.subscribe(uri)
        # Not every server reports changes.
        with suppress(McpError):
            self.client.listen()
        self.bridge.introduction = (
            self.client.server_info,
            self.client.server_capabilities,
            self.client.instructions,
        )

    def subscribe(self, uri):
        self.open().subscribe(uri)
        self.uris.add(uri)

    def ask(self, method, params):
        """Pass a question of the other server on to the caller.

        A modern server asks on the thread that waits for its result. In a session, the
        question does not say which call it is for, so the latest call is assumed; if
        that one ends before the answer arrives, the one before it.
        """
        here = threading.current_thread()
        while True:
            relays = list(self.relays)
            mine = [each for each in relays if each.thread is here]
            if not relays:
                raise InternalError("the bridge has no caller whom it could ask")
            relay = (mine or relays)[-1]
            try:
                return relay.ask(method, params)
            except CallerGone:
                if mine:
                    raise InternalError("the caller has left") from None
                with suppress(ValueError):
                    self.relays.remove(relay)

    def log(self, *record):
        """Pass a log message on. As it does not say which call it belongs to, this is
        done only if it cannot belong to another caller."""
        relays = list(self.relays)[-1:] if self.is_private else list(self.relays)
        if len(relays) == 1:
            relays[0].events.put(lambda ctx: ctx.log(*record))

    def begin(self, relay, method, params, done):
        """Send a request to the other server. done() is called when the request ends."""
        self.relays.append(relay)

        def finish():
            relay.ended_at = time.monotonic()
            with suppress(ValueError):
                self.relays.remove(relay)
            relay.end()
            done()

        def report(*progress):
            relay.events.put(lambda ctx: ctx.progress(*progress))

        def work():
            try:
                relay.outcome.set_result(job())
            except Exception as error:
                relay.outcome.set_exception(error)
            # Pass on logs that arrived before the result, before the result.
            with suppress(ConnectionError):
                client.flush_callbacks(timeout=1.0)
            finish()

        try:
            client = self.open()
            given = {name: params[name] for name in params if name not in NOT_HANDED_ON}
            job = partial(client.request, method, given)
            relay.thread = threading.Thread(target=work, daemon=True)
            if method == "tools/call":
                relay.call = client.start_call(
                    given["name"], given.get("arguments"), on_progress=report
                )
                job = relay.call.result
            relay.thread.start()
        except BaseException:
            finish()
            raise


class Bridge:
    """Offers another server: run its attribute `server`. close() ends the clients."""

    def __init__(self, target, allow=("*",), deny=(), **client_options):
        # Raises TypeError or ValueError for anything but a target.
        Client(target, **client_options)
        self.target = target
        self.allow = allow
        self.deny = deny
        self.options = client_options
        # What the other server says about itself, once a client has reached it.
        self.introduction = None
        # Guards the next three attributes. Notified whenever a client becomes idle.
        self.changed = threading.Condition()
        # The oldest first.
        self.links = []
        # How many requests wait for a client.
        self.waiting = 0
        # The lists whose change has not been reported yet.
        self.news = set()
        # By a key that a request carries through all its rounds.
        self.relays = {}
        self.server = Server("bridge", max_workers=MAX_REQUESTS)
        self.server.middleware(self.serve)
        # A tool, a prompt and a template of its own make the server declare these kinds.
        # The middleware answers all requests for them.
        self.server.add_tool(lambda: "", name="bridge")
        self.server.add_prompt(lambda: "", name="bridge")
        self.server.add_resource("{+x}", lambda x: x)

    def close(self):
        """End the clients, and so the servers that they started."""
        with self.changed:
            links = list(self.links)
        for link in links:
            link.client.close()

    # Changes
    def note(self, method, params):
        """Report a change to the callers, but once, even if several clients report it."""
        if method == "notifications/resources/updated":
            self.server.resource_updated(params["uri"])
        elif method.endswith("/list_changed"):
            with self.changed:
                is_first = not self.news
                self.news.add(method.split("/")[1])
                if is_first:
                    timer = threading.Timer(PAUSE, self.report_changes)
                    timer.daemon = True
                    timer.start()

    def report_changes(self):
        with self.changed:
            kinds = self.news
            self.news = set()
        for kind in kinds:
            # Adding or removing a registration notifies every caller once.
            steps = {
                "tools": (
                    partial(self.server.remove_tool, "change"),
                    partial(self.server.add_tool, lambda: "", name="change"),
                ),
                "prompts": (
                    partial(self.server.remove_prompt, "change"),
                    partial(self.server.add_prompt, lambda: "", name="change"),
                ),
                "resources": (
                    partial(self.server.remove_resource, "change:it"),
                    partial(self.server.add_resource, "change:it", lambda: ""),
                ),
            }
            remove, add = steps[kind]
            try:
                remove()
            except KeyError:
                add()

    # Clients
    def owner_of(self, ctx, is_call):
        """Return (key, is_alone): the owner of the client that serves a request, and
        whether that client must serve no other request meanwhile."""
        declared = frozenset(QUESTIONS).intersection(ctx.client_capabilities)
        caller = principal(ctx.auth) or ctx.session_id
        if not ctx.headers:
            caller = "stdio"
        # A modern request without a principal may come from anybody, and a question must
        # reach the caller who waits. So each request whose caller can be asked has a
        # client to itself.
        is_modern = ctx.protocol_version >= "2026-07-28"
        is_alone = bool(is_call and declared and not caller and is_modern)
        return (repr(caller) if caller else None, declared), is_alone

    def take(self, ctx, is_call=False):
        """Return a Link for the caller, who must give it back. Blocks until there is one.
        Raises InternalError."""
        key, is_alone = self.owner_of(ctx, is_call)
        ctx.on_cancel(self.wake)
        until = time.monotonic() + PATIENCE
        with self.changed:
            if self.waiting >= MAX_WAITING:
                raise InternalError("the bridge is busy: too many requests wait")
            self.waiting += 1
            try:
                link, idle = self.pick(key, is_alone)
                while link is None:
                    if not self.changed.wait(until - time.monotonic()):
                        raise InternalError("the bridge is busy: no client became idle")
                    ctx.check_cancelled()
                    link, idle = self.pick(key, is_alone)
            finally:
                self.waiting -= 1
        if idle is not None:
            try:
                idle.client.close()
            except BaseException:
                self.give_back(link)
                raise
        return link

    def pick(self, key, is_alone):
        """Return (link for the caller, idle link to close), or (None, None) if all are
        busy. Call this with `changed` held."""
        idle = None
        # The oldest first: a caller's first client has its subscriptions.
        for link in self.links:
            if link.key == key and not (is_alone and link.users):
                break
        else:
            if len(self.links) >= MAX_LINKS:
                unused = [each for each in self.links if not each.users]
                if not unused:
                    return None, None
                # Clients with subscriptions go last.
                idle = min(unused, key=lambda each: (bool(each.uris), each.used_at))
                self.links.remove(idle)
            link = Link(self, key, key[1], is_private=key[0] is not None)
            self.links.append(link)
        link.users += 1
        link.used_at = time.monotonic()
        return link, idle

    def give_back(self, link):
        with self.changed:
            link.users -= 1
            self.changed.notify_all()

    def wake(self):
        with self.changed:
            self.changed.notify_all()

    @contextmanager
    def borrowed(self, ctx):
        """A context manager that takes a Link for the caller, and gives it back."""
        link = self.take(ctx)
        try:
            yield link
        finally:
            self.give_back(link)

    # Requests
    def serve(self, ctx: Context, method, params, call_next):
        """The middleware: answer requests in place of this server."""
        try:
            if method in HANDED_ON:
                return self.hand_on(ctx, method, params)
            if method in ("initialize", "server/discover"):
                return self.introduce(ctx, call_next())
            if method == "resources/subscribe":
                with self.borrowed(ctx) as link:
                    link.subscribe(params["uri"])
            if method == "subscriptions/listen":
                with self.borrowed(ctx) as link:
                    self.agree(link, params["notifications"])
            return call_next()
        except OSError as error:
            # The other server has ended, so this is no bug of the bridge.
            raise InternalError(str(error)) from None

    def agree(self, link, wanted):
        """Subscribe, and drop the URIs whose changes the other server does not report."""
        link.open()
        for uri in wanted.pop("resourceSubscriptions", []):
            with suppress(MethodNotFound, NotFound):
                link.subscribe(uri)
                wanted.setdefault("resourceSubscriptions", []).append(uri)

    def introduce(self, ctx, result):
        """Introduce the bridge as the other server introduces itself."""
        if self.introduction is None:
            with self.borrowed(ctx) as link:
                link.open()
        info, capabilities, instructions = self.introduction
        # A server of 2024-11-05 need not declare completions.
        offered = {"completions": {}, **capabilities}
        result["capabilities"] = {
            name: offered[name] for name in result["capabilities"] if name in offered
        }
        place = result if "serverInfo" in result else result.setdefault("_meta", {})
        place["serverInfo" if place is result else SERVER_INFO] = info
        if instructions:
            result["instructions"] = instructions
        return result

    def is_offered(self, tool):
        fits = partial(fnmatch.fnmatchcase, tool)
        return any(map(fits, self.allow)) and not any(map(fits, self.deny))

    def hand_on(self, ctx, method, params):
        """Begin a request to the other server, or continue it in a later round."""
        if method == "tools/call" and not self.is_offered(params["name"]):
            raise NotFound(f"Unknown tool: {params['name']}")
        key = ctx.once("bridge", lambda: os.urandom(16).hex())
        relay = self.relays.get(key)
        if relay is None:
            relay = Relay()
            link = self.take(ctx, is_call=True)
            link.begin(relay, method, params, partial(self.give_back, link))
            self.forget_abandoned()
            self.relays[key] = relay
        ctx.on_cancel(relay.end)
        if relay.call is not None:
            ctx.on_cancel(relay.call.cancel)
        relay.follow(ctx)
        self.relays.pop(key, None)
        ctx.check_cancelled()
        far = relay.outcome.result()
        result = {name: far[name] for name in far if name not in NOT_HANDED_ON}
        if method == "tools/list":
            result["tools"] = [
                tool
                for tool in far["tools"]
                if "name" in tool and self.is_offered(tool["name"])
            ]
        return result

    def forget_abandoned(self):
        """Drop results whose callers never came back for them."""
        since = time.monotonic() - PATIENCE
        for key, relay in list(self.relays.items()):
            if relay.ended_at is not None and relay.ended_at < since:
                self.relays.pop(key, None)


def address(text):
    """Return (host, port) of [HOST:]PORT. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if int(port) not in range(65536):
        raise ValueError(port)
    return host.strip("[]") or "127.0.0.1", int(port)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.error = lambda why: sys.exit(f"bridge: {why}; see --help")
    parser.add_argument("target", nargs="+", help="a URL, a script, or a command")
    parser.add_argument("--http", type=address, metavar="[HOST:]PORT")
    parser.add_argument("--allow", action="append", metavar="GLOB")
    parser.add_argument("--deny", action="append", default=[], metavar="GLOB")
    options = parser.parse_args()
    try:
        bridge = Bridge(
            options.target if options.target[1:] else options.target[0],
            options.allow or ["*"],
            options.deny,
            # The server may need variables that a host has set, such as a key.
            env=dict(os.environ),
        )
    except (TypeError, ValueError) as error:
        parser.error(str(error))
    with closing(bridge):
        if options.http is None:
            bridge.server.run()
        else:
            host, port = options.http
            bridge.server.run("http", host=host, port=port)


if __name__ == "__main__":
    main()
