"""Any server, offered to clients of any revision, on stdio or at a URL.

Teaches: middleware that answers by itself; a question of one era, asked in the other.

Run: python3 examples/bridge.py TARGET                  offered on stdio
     python3 examples/bridge.py TARGET --http 8000      offered at a URL
     python3 examples/bridge.py --http 8000 -- python3 server.py --its-own options
TARGET: a URL, a script, or a command in quotes. --allow GLOB and --deny GLOB, which may
be repeated, choose among its tools.

Tools, resources, prompts, completions, progress, cancellation, logs, questions, list
changes and updates pass through. Each caller over HTTP has a client of its own: its
questions reach nobody else. A server that has ended is started again by the next request.
"""

import argparse
import fnmatch
import os
import queue
import sys
import threading
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from functools import partial

# mcp_lite.py is one folder up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from mcp_lite import (  # noqa: E402
    Client,
    Context,
    InternalError,
    McpError,
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
# The capability of a client, the option that declares it, and the question.
QUESTIONS = {
    "elicitation": ("on_elicit", "elicitation/create"),
    "sampling": ("on_sample", "sampling/createMessage"),
    "roots": ("roots", "roots/list"),
}
OFFERED = ("tools", "resources", "prompts", "completions", "logging")
# Members that are about one round of a request, or about one side of the bridge.
NOT_HANDED_ON = ("_meta", "inputResponses", "requestState")
NOT_HANDED_BACK = ("_meta", "ttlMs", "cacheScope", "resultType")
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
PATIENCE = 600.0  # seconds for the answer to a question
MAX_RELAYS = 10_000  # requests at work
MAX_LINKS = 100  # clients of the other server: each may be a process


class Relay:
    """A request that the other server works at. It outlives a round of the caller's.

    An event is a function of the Context that is there to do it. The last event returns
    the result, or raises the error that stands in its place.
    """

    def __init__(self):
        self.events = queue.SimpleQueue()
        self.due = None
        self.asked = 0
        # The call at the other server, if it is one of a tool.
        self.call = None

    def follow(self, ctx):
        """Do the events until the last one. A question may end the round in the middle
        of an event; the next round does that event again."""
        while True:
            self.due = self.due or self.events.get()
            result = self.due(ctx)
            self.due = None
            if result is not None:
                return result

    def ask(self, method, params):
        """Have the caller asked. Blocks for the answer."""
        answer = queue.SimpleQueue()
        self.asked += 1
        key = f"bridge-{self.asked}"
        self.events.put(lambda ctx: answer.put(ctx.ask({key: (method, params)})[key]))
        return answer.get(timeout=PATIENCE)


class Link:
    """One caller's own client of the other server."""

    def __init__(self, bridge, declared, is_shared):
        self.bridge = bridge
        # Several strangers may use it at once.
        self.is_shared = is_shared
        self.lock = threading.Lock()
        # The server that was there last: another one must hear of the subscriptions.
        self.server_info = None
        self.uris = set()
        # Requests at work, the oldest first; and by the thread that waits for them.
        self.relays = []
        self.working = {}
        callbacks = {}
        for name in declared:
            option, method = QUESTIONS[name]
            callbacks[option] = lambda params, method=method: self.ask(method, params)
        if "roots" in callbacks:
            callbacks["roots"] = lambda: self.ask("roots/list", {})["roots"]
        self.client = Client(
            bridge.target,
            validate=False,
            on_log=self.log,
            on_notification=bridge.changed,
            **callbacks,
            **bridge.options,
        )

    def open(self):
        """Connect, again if the server has ended, and return the client."""
        with self.lock:
            # It refuses to connect where it is connected.
            with suppress(RuntimeError):
                self.client.connect()
            if self.client.server_info is not self.server_info:
                self.server_info = self.client.server_info
                self.listen()
        return self.client

    def listen(self):
        """Hear of list changes, of all logs, and of what was subscribed to before."""
        if "logging" in self.client.server_capabilities:
            self.client.set_log_level("debug")
        for uri in self.uris:
            self.client.subscribe(uri)
        # A server need not tell of changes.
        with suppress(McpError):
            changes = self.client.listen()
            threading.Thread(target=self.hear, args=(changes,), daemon=True).start()

    def hear(self, changes):
        # on_notification gets them as well. It ends with the connection.
        with suppress(OSError, McpError):
            deque(changes, maxlen=0)

    def subscribe(self, uri):
        client = self.open()
        if uri not in self.uris:
            client.subscribe(uri)
            self.uris.add(uri)

    def ask(self, method, params):
        """Ask a question of the other server's. A modern server asks on the thread that
        waits for its result; a session does not say which call it asks for, so the
        latest one is taken, unless that may be another caller's."""
        relay = self.working.get(threading.get_ident())
        if relay is None and (not self.relays or (self.is_shared and self.relays[1:])):
            raise InternalError("the bridge cannot tell which caller is asked")
        return (relay or self.relays[-1]).ask(method, params)

    def log(self, *told):
        for relay in self.relays[-1:]:
            relay.events.put(lambda ctx: ctx.log(*told))

    def begin(self, ctx, method, params):
        """Have the other server work at a request; return its Relay."""
        client = self.open()
        relay = Relay()
        given = {name: params[name] for name in params if name not in NOT_HANDED_ON}

        def tell(*told):
            relay.events.put(lambda ctx: ctx.progress(*told))

        def work():
            self.working[threading.get_ident()] = relay
            outcome = Future()
            try:
                outcome.set_result(job())
            except Exception as error:
                outcome.set_exception(error)
            # Logs that came before the result are told before it.
            client.flush_callbacks(timeout=1.0)
            del self.working[threading.get_ident()]
            self.relays.remove(relay)
            relay.events.put(lambda ctx: outcome.result())

        self.relays.append(relay)
        job = partial(client.request, method, given)
        if method == "tools/call":
            arguments = given.get("arguments")
            relay.call = client.start_call(given["name"], arguments, on_progress=tell)
            job = relay.call.result
        threading.Thread(target=work, daemon=True).start()
        return relay


class Bridge:
    """Another server, offered by `server`: run that. close() ends the clients."""

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
        here = self.server
        self.stand_ins = {
            "tools": (
                partial(here.remove_tool, "bridge"),
                partial(here.add_tool, lambda: "", name="bridge"),
            ),
            "prompts": (
                partial(here.remove_prompt, "bridge"),
                partial(here.add_prompt, lambda: "", name="bridge"),
            ),
            "resources": (
                partial(here.remove_resource, "bridge:{+x}"),
                partial(here.add_resource, "bridge:{+x}", lambda x: x),
            ),
        }
        for _, register in self.stand_ins.values():
            register()
        self.schemes = set()

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
        """The middleware: each request comes here first."""
        try:
            if method in HANDED_ON:
                return self.hand_on(ctx, method, params)
            if method in ("initialize", "server/discover"):
                return self.introduce(self.link(ctx), call_next())
            uris = params.get("notifications", {}).get("resourceSubscriptions", [])
            if method == "resources/subscribe":
                uris = [params["uri"]]
            for uri in uris:
                self.link(ctx).subscribe(uri)
            return call_next()
        except OSError as error:
            # The end of the other server is no failure of the bridge.
            raise InternalError(str(error)) from None

    def introduce(self, link, result):
        """Be what the other server says it is."""
        client = link.open()
        offered = client.server_capabilities
        result["capabilities"] = {
            name: value
            for name, value in result["capabilities"].items()
            if name in OFFERED and (name in offered or name == "completions")
        }
        if "serverInfo" in result:
            result["serverInfo"] = client.server_info
        else:
            result["_meta"] = {SERVER_INFO: client.server_info}
        if client.instructions:
            result["instructions"] = client.instructions
        self.offer_resources(client)
        return result

    def offer_resources(self, client):
        """Let callers subscribe to URIs that look like one of the other server's."""
        for each in client.list_resources() + client.list_resource_templates():
            scheme = (each.get("uri") or each["uriTemplate"]).partition(":")[0]
            if scheme not in self.schemes:
                self.schemes.add(scheme)
                self.server.add_resource(scheme + ":{+rest}", lambda rest: rest)

    def link(self, ctx):
        """The caller's own Link: that of its principal, else of its session."""
        caller = ctx.session_id
        if ctx.auth:
            caller = repr(sorted(ctx.auth.items(), key=repr))
        declared = frozenset(QUESTIONS).intersection(ctx.client_capabilities)
        key = caller, declared
        with self.lock:
            link = self.links.pop(key, None)
            if link is None:
                self.make_room()
                link = Link(self, declared, bool(ctx.headers) and caller is None)
            self.links[key] = link
        return link

    def make_room(self):
        """End the client that was idle for longest, where there are too many."""
        if len(self.links) < MAX_LINKS:
            return
        for key, link in self.links.items():
            if not link.relays:
                del self.links[key]
                threading.Thread(target=link.client.close, daemon=True).start()
                return
        raise InternalError("the bridge serves too many callers")

    def is_offered(self, tool):
        is_denied = any(fnmatch.fnmatchcase(tool, each) for each in self.deny)
        is_allowed = any(fnmatch.fnmatchcase(tool, each) for each in self.allow)
        return is_allowed and not is_denied

    def hand_on(self, ctx, method, params):
        """Begin a request to the other server, or go on with it in a later round."""
        if method == "tools/call" and not self.is_offered(params["name"]):
            raise NotFound(f"Unknown tool: {params['name']}")
        key = ctx.once("bridge", lambda: os.urandom(16).hex())
        relay = self.relays.get(key)
        if relay is None:
            # A caller may never come back with an answer: the oldest are forgotten.
            for old in list(self.relays)[:-MAX_RELAYS]:
                self.relays.pop(old, None)
            link = self.link(ctx)
            if not self.schemes:
                self.offer_resources(link.open())
            relay = self.relays[key] = link.begin(ctx, method, params)
        if relay.call is not None:
            ctx.on_cancel(relay.call.cancel)
        try:
            result = dict(relay.follow(ctx))
            del self.relays[key]
        except Exception:
            self.relays.pop(key, None)
            raise
        for member in NOT_HANDED_BACK:
            result.pop(member, None)
        if method == "tools/list":
            tools = result["tools"]
            result["tools"] = [each for each in tools if self.is_offered(each["name"])]
        return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("target", nargs="+", help="a URL, a script, or a command")
    parser.add_argument("--http", metavar="[HOST:]PORT")
    parser.add_argument("--allow", action="append", metavar="GLOB")
    parser.add_argument("--deny", action="append", default=[], metavar="GLOB")
    options = parser.parse_args()
    target = options.target if options.target[1:] else options.target[0]
    bridge = Bridge(target, options.allow or ["*"], options.deny)
    try:
        if options.http is None:
            bridge.server.run()
        else:
            host, _, port = options.http.rpartition(":")
            bridge.server.run("http", host=host or "127.0.0.1", port=int(port))
    finally:
        bridge.close()


if __name__ == "__main__":
    main()
