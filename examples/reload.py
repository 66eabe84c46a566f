"""Restarts a server whenever its file changes, while its client stays connected.

Teaches: what makes up a client's conversation with a server. To replace the server
unnoticed, a relay must repeat the session's handshake and its settings, open
subscriptions again, make sure that each request gets one answer, and notify the client
that the lists may have changed.

Run: python3 reload.py server.py [arguments of server.py]
In the config of a desktop program, or as a Client's target, use this command instead of
python3 server.py [arguments of server.py]

A change of any .py file in the folder of server.py triggers a restart. The old server
answers the requests that it has received, and the new one gets all later ones. If the new
one fails, its stderr says why, and requests are refused until the next change.

reload.py serves on stdio, needs only the standard library, and works for any server in
Python, with mcp_lite or without.
"""

import argparse
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

TICK = 0.2  # seconds between two checks of the files
GRACE = 8.0  # seconds that an old server has to answer what it has received

LISTEN = "subscriptions/listen"
INITIALIZED = "notifications/initialized"
CANCELLED = "notifications/cancelled"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
META_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
# Requests that change a session: each new server gets them, too.
SETTINGS = ("logging/setLevel", "resources/subscribe", "resources/unsubscribe")
# For each list: the capability, and the member of a subscription's filter, with which a
# server promises to report changes of it; and the notification that does so.
LISTS = (
    ("tools", "toolsListChanged", "notifications/tools/list_changed"),
    ("prompts", "promptsListChanged", "notifications/prompts/list_changed"),
    ("resources", "resourcesListChanged", "notifications/resources/list_changed"),
)


def parse(line):
    """Return the object on a line; {} for anything else, such as a batch."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def member(value, *names):
    """Return a nested member, or None if it is missing."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def key_of(request_id):
    """Return an id as a text, for use in sets and dicts; None for no id. The texts of 1
    and "1" differ."""
    return None if request_id is None else json.dumps(request_id)


def pass_lines(stream, put, source):
    """Put (source, line) for each line of a stream, and (source, b"") at its end."""
    with stream:
        for line in stream:
            put((source, line))
    put((source, b""))


def stamps(folder):
    """Return the time and the size of each .py file in a folder."""
    found = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                about = entry.stat()
                found[entry.name] = (about.st_mtime_ns, about.st_size)
    return found


def watch(folder, put):
    """Put ("files", b"") whenever a file in the folder has changed."""
    before = stamps(folder)
    while True:
        time.sleep(TICK)
        try:
            now = stamps(folder)
        except OSError:
            # A file has just been removed: check again.
            continue
        if now != before:
            before = now
            put(("files", b""))


class Run:
    """One run of the server, from its start to the end of its output.

    The sets hold key_of() the ids of requests:
        unanswered  of the client, until this run answers
        repeated    of the client, sent to an older run before
        questions   of this run, until the client answers
    """

    def __init__(self, command, put):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.unanswered = set()
        self.repeated = set()
        self.questions = set()
        # Lines held back until a repeated handshake is over; None at other times.
        self.waiting = None
        arguments = (self.process.stdout, put, self)
        threading.Thread(target=pass_lines, args=arguments, daemon=True).start()

    def send(self, line):
        """Send a line, now or after the handshake."""
        if self.waiting is not None:
            self.waiting.append(line)
            return
        # If the server has ended, so does its output, and with it this run.
        with suppress(OSError, ValueError):
            self.process.stdin.write(line)
            self.process.stdin.flush()

    def send_message(self, message):
        """Send a message."""
        self.send(json.dumps(message).encode() + b"\n")

    def finish(self):
        """Let it answer the requests that it has received, and end."""
        with suppress(OSError):
            self.process.stdin.close()
        timer = threading.Timer(GRACE, self.process.kill)
        timer.daemon = True
        timer.start()


class Relay:
    """Passes messages between a client and the latest run of a server.

    All of it runs on one thread, which takes lines from a queue; other threads only put
    lines there. So nothing here needs a lock.
    """

    def __init__(self, command):
        self.command = command
        self.lines = queue.SimpleQueue()
        # The request that opened the client's session, and those in SETTINGS.
        self.initialize = None
        self.settings = []
        # key_of(id) -> request, for each open subscription.
        self.subscriptions = {}
        # All runs that have not ended; the latest one, or None if it has ended.
        self.runs = set()
        self.run = None
        self.begin()

    def serve(self, folder):
        """Pass lines until the client has left, and all runs have ended."""
        for target, *arguments in (
            (pass_lines, sys.stdin.buffer, self.lines.put, "client"),
            (watch, folder, self.lines.put),
        ):
            threading.Thread(target=target, args=arguments, daemon=True).start()
        is_over = False
        while self.runs or not is_over:
            source, line = self.lines.get()
            if source == "files":
                if not is_over:
                    self.begin_again()
            elif source != "client":
                self.from_server(source, line)
            elif line:
                self.from_client(line)
            else:
                is_over = True
                for run in self.runs:
                    run.finish()

    def begin(self):
        """Start the server."""
        self.run = Run(self.command, self.lines.put)
        self.runs.add(self.run)

    def begin_again(self):
        """Start the server again, and restore the state of the old one."""
        print("reload.py: a file has changed", file=sys.stderr, flush=True)
        if self.run is not None:
            self.run.finish()
            self.withdraw_questions(self.run)
        self.begin()
        if self.initialize is not None:
            self.repeat(self.initialize)
            self.run.waiting = []
        for request in self.subscriptions.values():
            self.repeat(request)

    def repeat(self, request):
        """Send an earlier request of the client to the new run. It keeps its id only if
        it is a subscription; the client has the answers to all others."""
        request_id = request["id"]
        if request["method"] != LISTEN:
            request_id = f"reload-{len(self.run.repeated)}"
        self.run.repeated.add(key_of(request_id))
        self.run.send_message({**request, "id": request_id})

    # To the client
    def tell(self, **message):
        """Send the client a message."""
        self.tell_line(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def tell_line(self, line):
        """Send the client a line."""
        # If the client has gone, its requests end, too.
        with suppress(OSError):
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()

    def tell_changes(self, lists, **params):
        """Notify the client that these lists, rows of LISTS, may have changed."""
        for _, _, method in lists:
            self.tell(method=method, params=params)

    def refuse(self, key):
        """Answer a request that no run will answer."""
        why = "the server has ended; it starts again when its file changes"
        self.tell(id=json.loads(key), error={"code": -32603, "message": why})

    def withdraw_questions(self, run):
        """Notify the client that the questions of a run need no answers any more."""
        for key in run.questions:
            params = {"requestId": json.loads(key), "reason": "the server has ended"}
            self.tell(method=CANCELLED, params=params)
        run.questions.clear()

    # From the client
    def from_client(self, line):
        """Pass a line on. An answer goes only to the run that asked."""
        message = parse(line)
        method = message.get("method")
        key = key_of(message.get("id"))
        run = self.run
        if method == CANCELLED:
            request_id = member(message, "params", "requestId")
            self.subscriptions.pop(key_of(request_id), None)
        if method is not None and key is not None:
            self.remember(message)
            if run is None:
                self.refuse(key)
            else:
                run.unanswered.add(key)
        elif key is not None:
            if run is None or key not in run.questions:
                return
            run.questions.discard(key)
        if run is not None:
            run.send(line)

    def remember(self, request):
        """Store a request that the next run needs, too."""
        method = request["method"]
        if method == "initialize":
            self.initialize = request
            self.settings = []
        elif method in SETTINGS:
            self.settings.append(request)
        elif method == LISTEN:
            self.subscriptions[key_of(request["id"])] = request

    # From a run
    def from_server(self, run, line):
        """Pass a line on, unless it would reveal to the client that the server was
        replaced."""
        message = parse(line)
        method = message.get("method")
        key = key_of(message.get("id"))
        if not line:
            self.ended(run)
        elif method is None and key is not None:
            self.pass_answer(run, key, message, line)
        elif key is not None:
            run.questions.add(key)
            self.tell_line(line)
        elif method == CANCELLED:
            # A run withdraws a question, or closes a subscription when it ends.
            key = key_of(member(message, "params", "requestId"))
            if key in run.questions:
                run.questions.discard(key)
                self.tell_line(line)
        elif not self.is_of_subscription(run, method, member(message, "params")):
            self.tell_line(line)

    def pass_answer(self, run, key, message, line):
        """Pass an answer on if the client waits for it. An answer ends a subscription,
        unless it comes from an old run that ends."""
        is_old = run is not self.run and key in self.subscriptions
        if key in run.repeated and key not in self.subscriptions:
            self.go_on(run, message)
        elif not is_old:
            self.subscriptions.pop(key, None)
            self.tell_line(line)
        run.unanswered.discard(key)

    def go_on(self, run, message):
        """Handle the answer to a repeated request. After the handshake, send the
        settings, and the lines that were held back."""
        if run.waiting is None or run is not self.run:
            return
        waiting = run.waiting
        run.waiting = None
        run.send_message({"jsonrpc": "2.0", "method": INITIALIZED})
        for request in self.settings:
            self.repeat(request)
        for line in waiting:
            run.send(line)
        offers = member(message, "result", "capabilities")
        lists = [each for each in LISTS if member(offers, each[0], "listChanged")]
        self.tell_changes(lists)

    def is_of_subscription(self, run, method, params):
        """Return whether a notification only reports that a subscription was opened or
        closed. If a new run has opened it, report changes of the lists instead."""
        request_id = member(params, "_meta", META_SUBSCRIPTION)
        key = key_of(request_id)
        if key not in self.subscriptions:
            return False
        if run is not self.run:
            return True
        if method != ACKNOWLEDGED or key not in run.repeated:
            return False
        granted = member(params, "notifications")
        lists = [each for each in LISTS if member(granted, each[1])]
        self.tell_changes(lists, _meta={META_SUBSCRIPTION: request_id})
        return True

    def ended(self, run):
        """Refuse the requests that a run has left unanswered."""
        self.runs.discard(run)
        run.process.wait()
        self.withdraw_questions(run)
        for key in run.unanswered - self.subscriptions.keys():
            self.refuse(key)
        if run is self.run:
            self.run = None


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.error = lambda why: sys.exit(f"reload: {why}; see --help")
    parser.add_argument("script", help="the server's file; its arguments follow")
    # Options behind the script belong to the script.
    script = os.path.abspath(parser.parse_args(sys.argv[1:2]).script)
    if not os.path.isfile(script):
        parser.error(f"{script}: no such file")
    # Ctrl-C ends this program; the server's input ends with it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    Relay([sys.executable, script, *sys.argv[2:]]).serve(os.path.dirname(script))


if __name__ == "__main__":
    main()
