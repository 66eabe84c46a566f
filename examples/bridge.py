"""Any server, offered to clients of any revision, on stdio or at a URL.

Teaches: how middleware answers by itself, and how a question of one era is asked in the
other.

Run: python3 examples/bridge.py TARGET                  offered on stdio
     python3 examples/bridge.py TARGET --http 8000      offered at a URL
     python3 examples/bridge.py --http 8000 -- python3 server.py --its-own options
TARGET: a URL, a script, or a command in quotes. --allow GLOB and --deny GLOB, which may
be repeated, choose among its tools.

Tools, resources, prompts, completions, progress, cancellation, logs, questions, list
changes and updates pass through. Each caller over HTTP has a client of its own, so its
questions reach nobody else: each principal, else each session, else each request at
work whose caller can be asked. A question stays open until the caller answers it, even
if the other server has withdrawn it. A server that has ended is started again by the
next request. There are ten clients at most; the next caller ends the one that was used
longest ago.
"""

import argparse
import fnmatch
import os
import queue
import sys
import threading
from concurrent.futures import Future
from contextlib import closing, suppress
from functools import partial

# mcp_lite.py is one folder up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from mcp_lite import (  # noqa: E402
    Client,
    Context,
    InternalError,
    McpError,
    MethodNotFound,
    NotFound,
    Server,
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
# Members of a request or a result that are about one side of the bridge.
NOT_HANDED_ON = (
    "_meta",
    "inputResponses",
    "requestState",
    "resultType",
    "ttlMs",
    "cacheScope",
)
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
PATIENCE = 600.0  # seconds for the answer to a question
MAX_RELAYS = 10_000  # requests at work
MAX_LINKS = 10  # clients of the other server: each may be a process


class Relay:
    """A request that the other server works at. It outlives a round of the caller's.

    An event is a function that gets the Context of the present round; None is the end.
    """

    def __init__(self):
        self.events = queue.SimpleQueue()
        self.due = None
        # The thread that waits for the other server's result.
        self.thread = None
        self.outcome = Future()
        # The call at the other server, if it is one of a tool.
        self.call = None

    def follow(self, ctx):
        """Call the events until the end. A question may end the round in the middle of
        an event; the next round calls that event again."""
        self.due = self.due or self.events.get()
        while self.due is not None:
            self.due(ctx)
            self.due = self.events.get()

    def ask(self, method, params):
        """Have the caller asked. Blocks for the answer; raises what came instead."""
        answer = Future()
        key = os.urandom(8).hex()

        def put(ctx):
            try:
                answer.set_result(ctx.ask({key: (method, params)})[key])
            except Exception as error:
                answer.set_exception(error)

        self.events.put(put)
        return answer.result(PATIENCE)


class Link:
    """A client of the other server: one caller's own, or shared by those who cannot be
    told apart."""

    def __init__(self, bridge, declared, is_private):
        self.is_private = is_private
        self.lock = threading.Lock()
        # What the caller subscribed to.
        self.uris = set()
        # Requests at work, the oldest first.
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
            bridge.target, on_log=self.log, on_notification=bridge.changed, **options
        )

    def open(self):
        """Connect, again if the server has ended, and return the client."""
        # If it is still connected, connect() raises RuntimeError.
        with self.lock, suppress(RuntimeError):
            self.client.connect()
            if "logging" in self.client.server_capabilities:
                self.client.set_log_level("debug")
            for uri in self.uris:
                self.client.subscribe(uri)
            # A server need not tell of changes.
            with suppress(McpError):
                self.client.listen()
        return self.client

    def subscribe(self, uri):
        self.open().subscribe(uri)
        self.uris.add(uri)

    def ask(self, method, params):
        """Pass a question of the other server on to the caller.

        A modern server asks on the thread that waits for its result. A session does not
        say for which call it asks, so the latest one is taken.
        """
        here = threading.current_thread()
        relays = [each for each in self.relays if each.thread is here] or self.relays
        if not relays:
            raise InternalError("the bridge has no caller to ask: none is waiting")
        return relays[-1].ask(method, params)

    def log(self, *told):
        """Pass a log message on; it does not say what it is about, so only where it can
        be about nobody else."""
        relays = self.relays[-1:] if self.is_private else self.relays
        if len(relays) == 1:
            relays[0].events.put(lambda ctx: ctx.log(*told))

    def begin(self, relay, method, params):
        """Have the other server work at a request."""
        try:
            client = self.open()
        except Exception:
            self.relays.remove(relay)
            raise
        given = {name: params[name] for name in params if name not in NOT_HANDED_ON}

        def tell(*told):
            relay.events.put(lambda ctx: ctx.progress(*told))

        def work():
            try:
                relay.outcome.set_result(job())
            except Exception as error:
                relay.outcome.set_exception(error)
            # Logs that came before the result are told before it.
            with suppress(ConnectionError):
                client.flush_callbacks(timeout=1.0)
            self.relays.remove(relay)
            relay.events.put(None)

        job = partial(client.request, method, given)
        relay.thread = threading.Thread(target=work, daemon=True)
        if method == "tools/call":
            relay.call = client.start_call(
                given["name"], given.get("arguments"), on_progress=tell
            )
            job = relay.call.result
        relay.thread.start()


class Bridge:
    """Offers another server: run `server`. close() ends the clients."""

    def __init__(self, target, allow=("*",), deny=(), **client_options):
        self.target = target
        self.allow = allow
        self.deny = deny
        self.options = client_options
        self.lock = threading.Lock()
        # By caller and by what it declared, the latest used last.
        self.links = {}
        # By the key that travels with a request through its rounds.
        self.relays = {}
        self.server = Server("bridge")
        self.server.middleware(self.serve)
        # One tool, prompt and template stand for all that the other server has, as the
        # middleware gets the requests. Its clients hear when one is registered anew.
        self.stand_ins = {
            "tools": (
                partial(self.server.remove_tool, "bridge"),
                partial(self.server.add_tool, lambda: "", name="bridge"),
            ),
            "prompts": (
                partial(self.server.remove_prompt, "bridge"),
                partial(self.server.add_prompt, lambda: "", name="bridge"),
            ),
            "resources": (
                partial(self.server.remove_resource, "{+x}"),
                partial(self.server.add_resource, "{+x}", lambda x: x),
            ),
        }
        for _, register in self.stand_ins.values():
            register()

    def close(self):
        """End the clients, and so the servers that they started."""
        for link in list(self.links.values()):
            link.client.close()

    def changed(self, method, params):
        """Tell the callers of a change."""
        if method == "notifications/resources/updated":
            self.server.resource_updated(params["uri"])
        elif method.endswith("/list_changed"):
            for step in self.stand_ins[method.split("/")[1]]:
                step()

    def serve(self, ctx: Context, method, params, call_next):
        """Serve a request: the middleware gets each one first."""
        try:
            if method in HANDED_ON:
                return self.hand_on(ctx, method, params)
            link = self.link(ctx)
            if method in ("initialize", "server/discover"):
                return self.introduce(link.open(), call_next())
            if method == "resources/subscribe":
                link.subscribe(params["uri"])
            if method == "subscriptions/listen":
                self.agree(link, params["notifications"])
            return call_next()
        except OSError as error:
            # The end of the other server is no failure of the bridge.
            raise InternalError(str(error)) from None

    def agree(self, link, wanted):
        """Subscribe, or leave out what the other server does not tell of."""
        for uri in wanted.pop("resourceSubscriptions", []):
            with suppress(MethodNotFound, NotFound):
                link.subscribe(uri)
                wanted.setdefault("resourceSubscriptions", []).append(uri)

    def introduce(self, client, result):
        """Say of the bridge what the other server says of itself."""
        # A server of 2024-11-05 need not say that it completes.
        offered = {"completions": {}, **client.server_capabilities}
        result["capabilities"] = {
            name: offered[name] for name in result["capabilities"] if name in offered
        }
        place = result if "serverInfo" in result else result.setdefault("_meta", {})
        place["serverInfo" if place is result else SERVER_INFO] = client.server_info
        if client.instructions:
            result["instructions"] = client.instructions
        return result

    def link(self, ctx, *relays):
        """Return the Link of the caller's principal, else of its session; it gets these
        relays."""
        caller = ctx.auth or ctx.session_id
        declared = frozenset(QUESTIONS).intersection(ctx.client_capabilities)
        key = repr(caller), declared
        # Modern requests of no principal may come from anybody, and a question is for
        # the one that waits. Where the caller can be asked, each request has a Link to
        # itself while it is at work.
        must_be_idle = (
            relays and declared and not caller and ctx.protocol_version >= "2026-07-28"
        )
        with self.lock:
            while must_be_idle and key in self.links and self.links[key].relays:
                key += ("another",)
            link = self.links.pop(key, None) or Link(self, declared, bool(caller))
            # Of too many one goes: not at work, if there is one; used longest ago.
            idle = [each for each in self.links if not self.links[each].relays]
            gone = [*idle, *self.links][: len(self.links) // MAX_LINKS]
            clients = [self.links.pop(each).client for each in gone]
            link.relays.extend(relays)
            self.links[key] = link
        for client in clients:
            client.close()
        return link

    def is_offered(self, tool):
        fits = partial(fnmatch.fnmatchcase, tool)
        return any(map(fits, self.allow)) and not any(map(fits, self.deny))

    def hand_on(self, ctx, method, params):
        """Begin a request to the other server, or go on with it in a later round."""
        if method == "tools/call" and not self.is_offered(params["name"]):
            raise NotFound(f"Unknown tool: {params['name']}")
        key = ctx.once("bridge", lambda: os.urandom(16).hex())
        relay = self.relays.get(key)
        if relay is None:
            relay = Relay()
            self.link(ctx, relay).begin(relay, method, params)
            self.relays[key] = relay
            # A caller may never come back with an answer: the oldest are forgotten.
            for old in list(self.relays)[:-MAX_RELAYS]:
                self.relays.pop(old, None)
        if relay.call is not None:
            ctx.on_cancel(relay.call.cancel)
        relay.follow(ctx)
        self.relays.pop(key, None)
        far = relay.outcome.result()
        result = {name: far[name] for name in far if name not in NOT_HANDED_ON}
        if method == "tools/list":
            result["tools"] = [
                tool for tool in far["tools"] if self.is_offered(tool["name"])
            ]
        return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("target", nargs="+", help="a URL, a script, or a command")
    parser.add_argument("--http", metavar="[HOST:]PORT")
    parser.add_argument("--allow", action="append", metavar="GLOB")
    parser.add_argument("--deny", action="append", default=[], metavar="GLOB")
    options = parser.parse_args()
    bridge = Bridge(
        options.target if options.target[1:] else options.target[0],
        options.allow or ["*"],
        options.deny,
        # A server may need what a host put into the environment: a key, say.
        env=dict(os.environ),
    )
    with closing(bridge):
        if options.http is None:
            bridge.server.run()
        else:
            host, _, port = options.http.rpartition(":")
            bridge.server.run("http", host=host or "127.0.0.1", port=int(port))


if __name__ == "__main__":
    main()
