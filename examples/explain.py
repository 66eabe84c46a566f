"""Explains a conversation: each message in words, with its page of the specification.

Teaches: what `trace=` receives, and what each method is for.

Run: python3 examples/explain.py TARGET        a URL, a script, or a command in quotes
     python3 examples/explain.py TARGET TOOL '{"city": "Oslo"}'    calls a tool as well
     python3 examples/explain.py -- COMMAND ARGS    a command without quotes
     python3 examples/explain.py --sheet       all methods and errors on one page
In a program: Client(target, trace=Explainer()), or Server(name, trace=Explainer()).

Each explanation is printed once, where it first applies. "-->" points from the client to
the server, and "<--" from the server to the client, whichever of them is traced.
"""

import argparse
import json
import os
import re
import sys
import textwrap
import threading
import time
from collections import namedtuple
from functools import partial

# mcp_lite.py is in this folder, or one up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.dirname(HERE))

from mcp_lite import (  # noqa: E402
    ERRORS,
    METHODS,
    AuthorizationError,
    Client,
    McpError,
    Timeout,
    ToolError,
    UnsupportedVersion,
    printable,
)

SPECIFICATION = "https://modelcontextprotocol.io/specification/"
META = "io.modelcontextprotocol/"
WIDTH = 90
# mcp_lite understands these, although no revision defines them.
IN_NO_REVISION = ("initialized", "$/cancelRequest", -32800)
LONGEST = 1_000  # characters of a message; the rest is left out
FIRST_MODERN = "2026-07-28"

# For each method: its page of the specification, its purpose, and what a result and an
# error mean.
Words = namedtuple("Words", "page purpose outcome setback", defaults=("", ""))
WORDS = {
    "initialize": Words(
        "basic/lifecycle",
        "Opens a session: the client names itself, its revision and its capabilities.",
        "The server has chosen the revision, and says what it offers.",
        "There is no session: the server rejects the revision, or has no sessions.",
    ),
    "notifications/initialized": Words(
        "basic/lifecycle",
        "The session is open. From now on the server may ask, too.",
    ),
    "initialized": Words(
        "basic/lifecycle",
        "Not in any revision. Some tutorials have it for `notifications/initialized`.",
    ),
    "ping": Words(
        "basic/utilities/ping",
        "Does the other side still answer? Either side may ask, at any time.",
        "It does.",
    ),
    "server/discover": Words(
        "server/discover",
        "Which revisions does the server speak, and what does it offer?",
        "The server speaks the modern era, in these revisions.",
        "Most likely a legacy server: the client tries `initialize`.",
    ),
    "tools/list": Words(
        "server/tools",
        "Which functions may the model call, with which arguments?",
        "The client shows these to its model.",
    ),
    "tools/call": Words(
        "server/tools",
        "The model wants this function to run, with these arguments.",
        "The value of the function, for the model to read.",
        "There is no such tool, or its arguments are wrong.",
    ),
    "resources/list": Words(
        "server/resources",
        "Which texts and data can the program show to the model?",
        "The client may read each of these by its URI.",
    ),
    "resources/templates/list": Words(
        "server/resources",
        "Which resources have URIs with blanks to fill in?",
    ),
    "resources/read": Words(
        "server/resources",
        "The program wants the contents of this URI for its model.",
        "The contents: text, or bytes in base64.",
    ),
    "resources/subscribe": Words(
        "server/resources",
        "The client wants to know whenever this resource changes.",
        "The server will notify it of each change.",
    ),
    "resources/unsubscribe": Words(
        "server/resources",
        "The client no longer wants to know about this resource.",
    ),
    "prompts/list": Words(
        "server/prompts",
        "Which prepared messages can the user pick, say as commands?",
        "The client offers these to its user.",
    ),
    "prompts/get": Words(
        "server/prompts",
        "The user has picked this one, with these arguments.",
        "Messages, which the client sends to its model.",
    ),
    "completion/complete": Words(
        "server/utilities/completion",
        "The user is typing an argument: what could it be?",
        "The client suggests these.",
    ),
    "logging/setLevel": Words(
        "server/utilities/logging",
        "The client sets the lowest level of log messages that it wants.",
    ),
    "subscriptions/listen": Words(
        "basic/patterns/subscriptions",
        "The client wants to know of changes. This request stays open.",
        "The subscription is over.",
    ),
    "roots/list": Words(
        "client/roots",
        "The server asks which folders it may work on.",
        "These are the roots.",
    ),
    "sampling/createMessage": Words(
        "client/sampling",
        "The server asks the client's model to write a text.",
        "The text that the model has written.",
    ),
    "elicitation/create": Words(
        "client/elicitation",
        "The server asks the user to fill in a form, or visit a page.",
        "The user's action, and the content of the form.",
    ),
    "notifications/cancelled": Words(
        "basic/patterns/cancellation",
        "The sender no longer wants the answer, so the work should stop.",
    ),
    "$/cancelRequest": Words(
        "basic/patterns/cancellation",
        "Not in any revision. Language servers have it for `notifications/cancelled`.",
    ),
    "notifications/progress": Words(
        "basic/patterns/progress",
        "Reports a request's progress, by the token that was in the request.",
    ),
    "notifications/message": Words(
        "server/utilities/logging",
        "A log message, for people on the client's side.",
    ),
    "notifications/tools/list_changed": Words(
        "server/tools",
        "The tools have changed: a client asks for its list again.",
    ),
    "notifications/resources/list_changed": Words(
        "server/resources",
        "The resources have changed: a client asks for its list again.",
    ),
    "notifications/resources/updated": Words(
        "server/resources",
        "A resource has changed: the client may read it again.",
    ),
    "notifications/prompts/list_changed": Words(
        "server/prompts",
        "The prompts have changed: a client asks for its list again.",
    ),
    "notifications/elicitation/complete": Words(
        "client/elicitation",
        "The user has finished on the page that the server sent them to.",
    ),
    "notifications/subscriptions/acknowledged": Words(
        "basic/patterns/subscriptions",
        "The subscription is open, for these kinds of changes.",
    ),
    "notifications/roots/list_changed": Words(
        "client/roots",
        "The folders have changed: the server may ask for them again.",
    ),
}
NO_WORDS = Words("basic/index", "The specification does not have this method.")
# The path of a member, what it means, and its page.
MEMBERS = (
    (
        ("params", "_meta", META + "protocolVersion"),
        "Modern: the request carries its revision, {}. There is no session.",
        "basic/index",
    ),
    (
        ("params", "_meta", META + "clientCapabilities"),
        "The client can answer questions of these kinds: {}.",
        "basic/index",
    ),
    (
        ("params", "_meta", "progressToken"),
        "The sender asks for progress, which will carry this token.",
        "basic/patterns/progress",
    ),
    (
        ("params", "inputResponses"),
        "The request comes again, with the answers to these questions: {}.",
        "basic/patterns/mrtr",
    ),
    (
        ("result", "inputRequests"),
        "This is a question in place of a result: {}. The client answers it, and sends "
        "the request again. This is a multi round-trip request (MRTR).",
        "basic/patterns/mrtr",
    ),
    (
        ("result", "requestState"),
        "The server remembers nothing between rounds. The client carries its state.",
        "basic/patterns/mrtr",
    ),
    (
        ("result", "protocolVersion"),
        "Legacy: a session is open, and speaks {} from now on.",
        "basic/lifecycle",
    ),
    (
        ("result", "nextCursor"),
        "There are more pages. The cursor asks for the next one.",
        "server/utilities/pagination",
    ),
    (
        ("result", "isError"),
        "The tool failed. The model may read why, and try something else.",
        "server/tools",
    ),
    (
        ("result", "structuredContent"),
        "The same result as data, in the shape of the tool's output schema.",
        "server/tools",
    ),
    (
        ("result", "ttlMs"),
        "The client may rely on this result for {} milliseconds.",
        "server/utilities/caching",
    ),
    (
        ("result", "cacheScope"),
        "Who may receive this result from a cache: {} (private means this client alone, "
        "public means anybody).",
        "server/utilities/caching",
    ),
)
# Where a message names its revision.
VERSION_PLACES = (
    ("params", "_meta", META + "protocolVersion"),
    ("params", "protocolVersion"),
    ("result", "protocolVersion"),
)
# Pages that have another name in the modern era, and in the legacy era.
MODERN_PAGES = {
    "basic/lifecycle": "basic/versioning",
    "basic/transports": "basic/transports/streamable-http",
}
LEGACY_PAGES = {
    "basic/patterns/progress": "basic/utilities/progress",
    "basic/patterns/cancellation": "basic/utilities/cancellation",
}
# Beside the methods: where a member stands, its name, and what it is for.
BESIDE = (
    ("in a modern result", "<--  M inputRequests", "The three questions to a client"),
    ("in the parameters of a modern request", "-->  M inputResponses", "Their answers"),
    (
        f"in its _meta, behind {META}",
        "-->  M protocolVersion, clientCapabilities",
        "The revision, and what the client can be asked",
    ),
)
# Errors whose docstring has two sentences.
SHEET_ERRORS = {
    -32002: "No resource has this URI (-32602 for tools, and in the modern era)"
}
# HTTP around the messages: how a line begins, and what it means.
HTTP = {
    "POST": "A message travels in the body of a POST.",
    "GET": "The client opens a stream, on which the server may send by itself.",
    "DELETE": "The client ends its session.",
    "HTTP 200 text/event-stream": "The answer is an event, perhaps after others.",
    "HTTP 200": "The answer is the body of this response.",
    "HTTP 202": "The message was accepted. It is not answered.",
    "HTTP 401": "A token is needed, or the one that was sent is not valid.",
    "HTTP 403": "The token does not allow this, or the Host or Origin is wrong.",
    "HTTP 404": "There is no such session, or nothing at this path.",
}
# The exit code for an exception is that of the first row that matches.
EXIT_CODES = (
    (AuthorizationError, 3),
    ((ConnectionError, Timeout, UnsupportedVersion), 4),
    (KeyboardInterrupt, 130),
    ((McpError, ToolError), 5),
    (Exception, 1),
)


def place_of(page, version):
    """Return the path of a page in a revision, below SPECIFICATION."""
    pages = MODERN_PAGES if version >= FIRST_MODERN else LEGACY_PAGES
    # The first page of a folder has the folder's name.
    return f"{version}/{pages.get(page, page)}".replace("/index", "")


def look_up(message, path):
    """Return the value at a path of member names, or None."""
    for name in path:
        if not isinstance(message, dict):
            return None
        message = message.get(name)
    return message


def visible(members):
    """Return the members of params or of a result that are shown."""
    state = shorten(members.get("requestState", ""))[:20] + "..."
    shown = {**members, "requestState": state}
    hidden = ["_meta"] + ["resultType"] * (members.get("resultType") == "complete")
    return {key: shown[key] for key in members if key not in hidden}


def shorten(value):
    """Return a value on one line, without control characters."""
    value = value if isinstance(value, str) else json.dumps(value)
    text = "".join(each if each.isprintable() else " " for each in value[:LONGEST])
    left = f" ... and {len(value) - LONGEST} characters more"
    return text + (left if value[LONGEST:] else "")


class Explainer:
    """Prints each message, and explains each kind once. It is a value for `trace=`.

    write: receives the lines with their line ends; sys.stderr.write by default. It is
        called on the thread that sends or receives, one call at a time.
    without: methods that are skipped, with their answers; and members, such as
        "progressToken", that are not explained
    with_sides: show each id with the side that chose it. Both sides count from 1 or so,
        and an answer has the id of its request.
    """

    is_silent = False

    def __init__(self, write=None, without=(), with_sides=False):
        self.write = write or sys.stderr.write
        self.without = without
        self.with_sides = with_sides
        self.lock = threading.Lock()
        # The explanations printed so far.
        self.told = set()
        # The unanswered requests: their method, and when they were sent.
        self.waiting = {}
        self.version = "2025-11-25"

    def __call__(self, direction, line):
        """Explain one line: a message, a batch, or a line about HTTP."""
        with self.lock:
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                self.explain_http(direction, line.decode("utf-8", "replace"))
                return
            for each in message if isinstance(message, list) else [message]:
                if isinstance(each, dict):
                    self.explain(direction, each)

    def explain_http(self, direction, text):
        """Explain what HTTP adds, such as `POST /mcp` or `HTTP 202`."""
        self.show(direction, text)
        for start, meaning in HTTP.items():
            if text.startswith(start):
                self.note(meaning, "basic/transports")
                return

    def explain(self, direction, message):
        """Explain one message."""
        self.learn(message)
        if "method" in message:
            self.explain_method(direction, message)
        else:
            self.explain_answer(direction, message)
        for path, text, page in MEMBERS:
            value = look_up(message, path)
            # A member that is false or empty means nothing, but 0 does.
            is_passed_over = value is False or path[-1] in self.without
            if (value or value == 0) and not is_passed_over:
                words = ", ".join(value) if isinstance(value, dict) else value
                self.note(text, page, shorten(words))

    def learn(self, message):
        """Note the revision, on which the pages depend."""
        for path in VERSION_PLACES:
            version = look_up(message, path)
            if isinstance(version, str):
                self.version = version

    def explain_method(self, direction, message):
        name = message["method"]
        self.is_silent = name in self.without
        params = message.get("params") or {}
        if message.get("id") is not None:
            self.waiting[direction, str(message["id"])] = (name, time.monotonic())
        shown = visible(params)
        row = METHODS.get(name)
        # The parameter that names the subject of the request comes first.
        about = shown.pop(row.mirrored, "") if row and row.mirrored else ""
        rest = shorten(shown) if shown else ""
        self.show(direction, f"{name} {shorten(about)} {rest}", message)
        words = WORDS.get(name, NO_WORDS)
        self.note(words.purpose, words.page)

    def explain_answer(self, direction, message):
        key = ("<--" if direction == "-->" else "-->", str(message.get("id")))
        name, began = self.waiting.pop(key, ("", time.monotonic()))
        self.is_silent = name in self.without
        took = f"  (after {1000 * (time.monotonic() - began):.1f} ms)"
        words = WORDS.get(name, NO_WORDS)
        error = message.get("error")
        if error is not None:
            text = f"error {error.get('code')}: {error.get('message')}"
            self.show(direction, f"{name}: {shorten(text)}{took}", message)
            self.note(words.setback, words.page)
            return
        result = message.get("result") or {}
        self.show(direction, f"{name}: {shorten(visible(result))}{took}", message)
        is_outcome = not result.get("isError") and "inputRequests" not in result
        if is_outcome:
            self.note(words.outcome, words.page)

    def show(self, direction, text, message=None):
        """Print one line: the direction, the id, and a text."""
        if self.is_silent:
            return
        request_id = (message or {}).get("id")
        if request_id is not None:
            text = f"{shorten(request_id)} {text}"
            if self.with_sides:
                is_clients = (direction == "-->") == ("method" in message)
                text = ("client's " if is_clients else "server's ") + text
        line = f"{direction} {text}".replace("  ", " ")
        self.write(textwrap.fill(line, WIDTH, subsequent_indent="    ") + "\n")

    def note(self, text, page, value=""):
        """Print an explanation with its page, unless it was given before, even if for
        another value. The value replaces the {} in the text."""
        if self.is_silent or not text or text in self.told:
            return
        if not self.told:
            self.write(f"Pages in brackets are at {SPECIFICATION}\n")
        self.told.add(text)
        text = f"{text.replace('{}', value)} [{place_of(page, self.version)}]"
        for line in textwrap.wrap(text, WIDTH, break_on_hyphens=False):
            self.write(f"      {line}\n")


def sheet():
    """Return all methods and errors as lines, by page of the specification."""
    lines = [
        "--> to the server, <-- to the client; L legacy, M modern; ? wants an answer"
    ]
    rows = [row for row in METHODS.values() if row.name not in IN_NO_REVISION]
    for page in dict.fromkeys(WORDS[row.name].page for row in rows):
        lines.append(page)
        for row in [row for row in rows if WORDS[row.name].page == page]:
            arrow = {"client": "-->", "server": "<--"}.get(row.sender, "<->")
            legacy = "L" if row.since < FIRST_MODERN else " "
            era = legacy + ("M" if row.until >= FIRST_MODERN else " ")
            name = row.name + "?" * (row.kind == "request")
            lines += sheet_row(f"{arrow} {era} {name}", WORDS[row.name].purpose)
    for place, words, text in BESIDE:
        lines += [place, *sheet_row(words, text)]
    lines.append("errors")
    for code in sorted(ERRORS.keys() - set(IN_NO_REVISION), reverse=True):
        lines += sheet_row(
            f"{code:8} {ERRORS[code].__name__}",
            SHEET_ERRORS.get(code, ERRORS[code].__doc__),
        )
    return lines


def sheet_row(words, text):
    """Return the lines of an entry: its words, and the first sentence of a text."""
    first = re.split(r"(?<=[.?])\s|[:;]\s", text)[0].rstrip(".")
    margins = {"initial_indent": f"{words:48} ", "subsequent_indent": " " * 49}
    return textwrap.wrap(first, 116, **margins)


def print_out(text, end="\n"):
    """Print a text. It is no error if a reader such as `head` has had enough."""
    try:
        print(text, end=end, flush=True)
    except BrokenPipeError:
        # Nobody reads the rest. Python will flush stdout again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.error = lambda why: sys.exit(f"explain: {why}; see --help")
    parser.add_argument("target", nargs="?", help="a URL, a script, or a command")
    parser.add_argument("tool", nargs="?", help="a tool to call")
    parser.add_argument("arguments", nargs="?", default="{}", help="a JSON object")
    parser.add_argument("--protocol", default="auto", metavar="REVISION")
    parser.add_argument("--sheet", action="store_true", help="all methods and errors")
    # The words behind `--` are the command of a server.
    cut = [*sys.argv, "--"].index("--")
    command = sys.argv[cut + 1 :]
    options = parser.parse_args([""] * bool(command) + sys.argv[1:cut])
    if options.sheet or options.target is None:
        print_out("\n".join(sheet()))
        return
    explainer = Explainer(partial(print_out, end=""))
    try:
        arguments = json.loads(options.arguments)
        with Client(
            command or options.target,
            trace=explainer,
            protocol_version=options.protocol,
            # The server may need variables that a host has set, such as a key.
            env=dict(os.environ),
        ) as each:
            each.list_tools()
            if options.tool:
                each.call(options.tool, arguments)
    except (McpError, ToolError, OSError, ValueError, KeyboardInterrupt) as error:
        code = next(code for kind, code in EXIT_CODES if isinstance(error, kind))
        text = str(error) or type(error).__name__
        parser.exit(code, printable(f"explain: {text}") + "\n")


if __name__ == "__main__":
    main()
