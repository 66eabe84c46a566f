"""Makes a copy of mcp_lite.py that has only the features you need.

Teaches: how to find the code that a program can reach from the names that it uses. The
cut uses `ast`: it keeps the reachable definitions, in order, with their comments.

Run: python3 examples/vendor.py server -o vendor/mcp_lite.py
     python3 examples/vendor.py tools http --no-comments -o vendor/mcp_lite.py
     python3 examples/vendor.py --check vendor/mcp_lite.py

-o creates missing folders; without it, the copy goes to stdout. The features, and after
a colon, the features that they imply:

tools       Server with tools alone, without resources, prompts, completions,
            subscriptions, questions and log messages to the client, methods of
            extensions, schemas of your own, and patterns; results are not checked
server      Server with everything it can offer
client      Client; in memory, too, if Server is kept
stdio       both on standard streams, or any other pair of streams; kept unless the copy
            has http
http        both over HTTP, in revision 2026-07-28 alone
legacy      the sessions of older revisions over HTTP, and HTTP+SSE: http
oauth       logins of the client: client, http
cli         the command line: client, stdio

A part that was left out raises NotImplementedError when it is called; the error has the
command that makes a copy with that part. Without `cli`, `python3 -m mcp_lite` accepts
only --version.

The first line of a copy has its version, its features, and the SHA-256 of the file that
it was cut from; the second line has the SHA-256 of the rest. From these, --check tells
whether a copy is as cut, was changed by hand, or is old. Without --force, vendor.py
overwrites nothing but unchanged copies.
"""

import argparse
import ast
import re
import sys
import textwrap
import tokenize
from collections import namedtuple
from contextlib import suppress
from hashlib import sha256
from itertools import takewhile
from pathlib import Path

# mcp_lite.py is one folder up, or in this one.
HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "mcp_lite.py"
if (HERE / "mcp_lite.py").exists():
    SOURCE = HERE / "mcp_lite.py"

FEATURES = ("tools", "server", "client", "stdio", "http", "legacy", "oauth", "cli")
# (features, what they imply together). Three features are internal: `full` is what a
# copy with tools alone can do without; `sessions` begin with `initialize`; `requests` are
# those that this side sends.
IMPLIED = (
    ("cli", "client stdio"),
    ("oauth", "client http"),
    ("legacy", "http sessions"),
    ("stdio", "sessions"),
    ("server", "tools full"),
    ("client", "full sessions requests"),
    ("server sessions", "requests"),
)
# The feature that a user names to get an internal one.
SHOWN = {
    "tools": "server",
    "full": "server",
    "sessions": "legacy",
    "requests": "legacy",
}
# A copy without all of these features leaves out these names and methods of classes.
# Everything else is kept if it can be reached.
NEEDS = (
    ("tools", "Server ServerEndpoint MainThread Context Param"),
    ("tools", "Audio Image EmbeddedResource ResourceLink"),
    ("server", "Message UriTemplate"),
    ("server", "Server.resource Server.prompt Server.completion Server.method"),
    ("server", "Server.remove_resource Server.remove_prompt Server.resource_updated"),
    ("server", "Context.elicit Context.elicit_url Context.sample Context.roots"),
    ("server", "Context.ask Context.once Signer"),
    (
        "http",
        "Server.start_http Server.wsgi_app Server.wsgi Server.handle Server._run_http",
    ),
    ("http", "Context.close_stream header_parameters"),
    ("http", "ServerEndpoint.header_parameters ClientEndpoint.header_parameters"),
    ("stdio", "StreamTransport end_stream wait_for LineOutbox"),
    ("stdio", "LineFramer private_wire Child inherited_environment"),
    ("stdio", "Server.connect Server.serve Server._serve"),
    ("stdio", "Connection.read_all Connection.read Connection.feed"),
    ("client", "Client ClientEndpoint HttpFailure AuthorizationError child_details"),
    ("client http", "Client._open_url"),
    ("server client stdio", "MemoryTransport"),
    ("server", "ServerEndpoint._find_resource Signature.completions"),
    ("server", "Context.log Context.debug Context.info Context.warning Context.error"),
    ("server", "ServerEndpoint.notify_list_changed ServerEndpoint.input_ended"),
    ("server", "ServerEndpoint._declare ServerEndpoint._grant Signature._use_schema"),
    ("server", "ServerEndpoint.notify ServerEndpoint._resources_read"),
    ("server", "ServerEndpoint._subscriptions_listen"),
    ("server stdio", "Deputy"),
    ("server", "Subscription Context._record"),
    ("requests", "Protocol._receive_response"),
    ("full", "validate Schema search_pattern"),
    ("full", "_Validator.check _Validator.attempt _Validator.member _Validator.key"),
    ("full", "_Validator.prefix_items _Validator.items _Validator.contains"),
    ("full", "_Validator.properties _Validator.required _Validator.is_schema"),
    ("tools", "Protocol._admit_modern"),
    ("tools sessions", "Protocol._open_session Context._ask_legacy"),
    ("sessions full", "Connection.receive_batch"),
    ("requests", "PendingRequest Connection.request Connection.register"),
    ("legacy", "LegacyEndpoint LegacyHttp"),
)
# The same for all classes and functions of a section.
SECTIONS = {
    "HTTP endpoint": {"tools", "http"},
    "HTTP server": {"tools", "http"},
    "HTTP client": {"client", "http"},
    "Authorization": {"oauth"},
    "Command line": {"cli"},
}
# Rows of the table METHODS, by the beginning of their names.
ROWS = (
    ("full", "resources/ prompts/ completion/ subscriptions/ logging/"),
    ("full", "roots/ sampling/ elicitation/ notifications/resources/"),
    ("full", "notifications/prompts/ notifications/subscriptions/"),
    ("full", "notifications/elicitation/ notifications/roots/"),
    ("sessions", "initialize notifications/initialized ping logging/"),
    ("sessions", "resources/subscribe resources/unsubscribe"),
    ("sessions", "notifications/elicitation/ notifications/roots/"),
)
# The rows of the table _KEYWORDS that Param uses. A copy that checks no whole schemas
# needs no others.
LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
# The search for reachable code begins here and at the public names.
ALSO_PUBLIC = ("__version__", "METHODS", "annotations")
# Replacements for parts that are left out, where a call must not raise an error.
STAND_INS = {
    "LegacyEndpoint": '''
class LegacyEndpoint:
    """Replaces the sessions of older revisions, which this copy lacks."""

    def __init__(self, *given: object) -> None:
        self.sessions: Json = {}

    def post(self, exchange: object) -> None:
        """Refuse a legacy message. Raises UnsupportedVersion."""
        check_modern_version(LAST_LEGACY)
''',
    "LegacyHttp": '''
class LegacyHttp(HttpTransport):
    """Replaces the sessions of older revisions, which this copy lacks."""

    def __init__(self, caller: HttpCaller, *given: object) -> None:
        super().__init__(caller)

    def _post(self, post: _Post) -> None:
        if post.opens_session:
            raise NotImplementedError(_left_out("the sessions of older servers", "legacy"))
        super()._post(post)
''',
    "OAuth": '''

class OAuth:
    """Replaces the logins, which this copy lacks. The command line, which makes one with
    may_log_in=False, sends no token."""

    def __init__(self, *given: object, may_log_in: bool = True, **options: object) -> None:
        if may_log_in:
            raise NotImplementedError(_left_out("OAuth", "oauth"))

    def __call__(self, challenge: object) -> Json:
        return {}

    def login(self, url: str) -> None:
        """Never called, as nobody can make one that may log in."""

    logout = login
''',
    "Connection.receive_batch": '''
    def receive_batch(self, *given: object) -> None:
        """Refuse a batch, which only sessions have."""
        raise InvalidRequest(f"a batch: only {BATCH_VERSION} has them")
''',
    "Protocol._admit_modern": '''
    def _admit_modern(self, request: Request) -> None:
        """Refuse a request, which modern servers do not send. Raises InvalidRequest."""
        raise InvalidRequest(f"{request.method}: a modern server sends no requests")
''',
    "LineFramer": '''
class LineFramer:
    """Replaces the reader of lines, which this copy lacks."""

    def __init__(self, *given: object) -> None:
        pass
''',
    "Signer": '''
class Signer:
    """Replaces the signed states of questions, which this copy lacks."""

    def __init__(self, key: object) -> None:
        pass

    def open(self, *given: object) -> Json:
        raise InvalidParams("requestState: not from this server")
''',
    "Deputy": '''
class Deputy:
    """Replaces the optimisation by which the reading thread serves requests itself."""

    def __init__(self, connection: Connection, signals: Signals, serves: bool) -> None:
        self._connection = connection
        self._signals = signals

    def wait(self) -> str:
        """Start the reading thread. Block for the next signal, and return it."""
        start_thread("mcp-reader", self._read)
        return next_signal(self._connection, self._signals)

    def _read(self) -> None:
        try:
            self._connection.read_all()
        finally:
            self._signals.put(INPUT_ENDED)
''',
    "Schema": '''
class Schema:
    """Replaces the check of values against a schema: this copy does not check results."""

    def __init__(self, schema: object) -> None:
        pass

    def errors(self, value: object) -> list[str]:
        """Return no errors."""
        return []

    @property
    def patterns(self) -> dict[str, Any]:
        """Refuse a limit that is a pattern. Raises NotImplementedError."""
        raise NotImplementedError(_left_out("patterns", "server"))
''',
    "Subscription": '''
class Subscription:
    """Replaces a listener, as this copy sends no notifications of changes."""

    def __init__(self, *given: object) -> None:
        pass
''',
    "Context._record": '''
    @property
    def _record(self) -> Json:
        """Refuse the state of a question. Raises InvalidParams."""
        raise InvalidParams("requestState: not from this server")
''',
    "Protocol._receive_response": '''
    def _receive_response(self, message: Json) -> Refusal:
        """Refuse an answer: this copy sends no requests."""
        return Refusal("the request it answers is not open", is_late=True)
''',
    "ServerEndpoint.notify_list_changed": '''
    def notify_list_changed(self, kind: str) -> None:
        """Do nothing, as this copy sends no notifications of changes."""
''',
    "ServerEndpoint.input_ended": '''
    def input_ended(self, connection: Connection) -> None:
        """Do nothing, as this copy has no subscriptions to end."""
''',
    "ServerEndpoint._declare": '''
    def _declare(self, ctx: Context) -> Json:
        """Return the capabilities that this server declares to a client."""
        return {"tools": {}} if "tools" in self.declared else {}
''',
    "ServerEndpoint._grant": '''
    def _grant(self, *given: object) -> Json:
        """Grant no subscription, as this copy sends no notifications of changes."""
        return {}
''',
    "header_parameters": '''
def header_parameters(*given: object) -> list[tuple[list[str], str]]:
    """Return no headers for arguments, as only HTTP has these."""
    return []
''',
    "child_details": '''
def child_details(*given: object) -> str:
    """Return nothing, as this copy starts no child processes."""
    return ""
''',
    "main": '''
def main() -> int:
    """Replaces the command line, which this copy lacks."""
    if sys.argv[1:] != ["--version"]:
        sys.exit(_left_out("the command line", "cli"))
    from hashlib import sha256

    with open(__file__, "rb") as file:
        digest = sha256(file.read()).hexdigest()
    print(f"{__version__}, cut to: {_CUT_TO}")
    print(f"revisions: {', '.join(SPOKEN)}\\nsha256: {digest}")
    return 0
''',
}
LEFT_OUT = '''
# mypy: warn_unused_ignores=False
if TYPE_CHECKING:
    from typing import NoReturn

# The features of this copy.
_CUT_TO = "%s"


def _left_out(what: str, needs: str) -> str:
    """Return the text of an error, with the command that makes a fuller copy."""
    return (
        f"this copy of mcp_lite was made without {what}; to make one that has it:"
        f' python3 examples/vendor.py {_CUT_TO} {needs} -o "{__file__}"'
    )


def _without(what: str, needs: str) -> Callable[..., NoReturn]:
    """Return a replacement for a method that this copy lacks."""

    def refuse(*given: object, **options: object) -> NoReturn:
        raise NotImplementedError(_left_out(what, needs))

    return refuse


class _LeftOut(Any):  # type: ignore[misc] # at run time, Any is object
    """Replaces a class that this copy lacks."""

    needs = ""

    def __init__(self, *given: object, **options: object) -> None:
        _without(type(self).__name__, self.needs)()
'''
# A copy's docstring has these in place of the file's example.
SERVER_EXAMPLE = """A server is functions:
    from mcp_lite import Server
    server = Server("weather", version="1.0")

    @server.tool
    def forecast(city: str, days: int = 3) -> str:
        "The forecast for a city."
        return f"{days} days of sun over {city}"

    server.run(%s)
"""
CLIENT_EXAMPLE = """A client is calls:
    from mcp_lite import Client

    with Client(%s) as client:
        print(client.call("forecast", city="Oslo"))
"""
STAND_IN = """

class %s(_LeftOut):
    needs = "%s"
"""

NAMES = {name: set(needs.split()) for needs, names in NEEDS for name in names.split()}
BANNER = re.compile(r"^#{79}\n# (?:\d+\. )?(.+?) #+\n#{79}\n", re.MULTILINE)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS = (*FUNCTIONS, ast.ClassDef)
# A statement of the top level, in Parts.
Piece = namedtuple("Piece", "node names needs banner parts")
# A method, a row of METHODS, or a statement under `if TYPE_CHECKING:`. The text between
# two of these is a Part without a node.
Part = namedtuple("Part", "name node needs text")


def walk(node, without=(), without_fields=()):
    """Yield a node and all nodes inside it, except these nodes and fields."""
    left = [node]
    while left:
        node = left.pop()
        yield node
        for field in node._fields:
            if field in without_fields:
                continue
            value = getattr(node, field, None)
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, ast.AST) and part not in without:
                    left.append(part)


def words_in(node, without=()):
    """Return the words in a piece of code: names, and ".name" for an attribute or a text
    that may name one. Annotations do not count, as they are not evaluated."""
    words = set()
    for each in walk(node, without, ("annotation", "returns")):
        if isinstance(each, ast.Name):
            words.add(each.id)
        elif isinstance(each, ast.Attribute):
            words.add("." + each.attr)
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            words.add("." + each.value)
    return words


def hints_in(node, without=()):
    """Return the names in a piece of code, those in its annotations included."""
    hints = set()
    for each in walk(node, without):
        if isinstance(each, ast.Name):
            hints.add(each.id)
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            hints.add(each.value)
    return hints


def names_made_by(node):
    """Return the names that a statement of the top level defines, or changes."""
    if isinstance(node, DEFINITIONS):
        return {node.name}
    if isinstance(node, ast.If) and not is_for_types(node):
        return set().union(*map(names_made_by, node.body))
    targets = getattr(node, "targets", None) or [getattr(node, "target", ast.Pass())]
    imports = [each.asname or each.name for each in getattr(node, "names", ())]
    words = {name.partition(".")[0] for name in imports}.union(*map(words_in, targets))
    return {each for each in words if not each.startswith(".")}


def is_for_types(node):
    """Return whether a statement is `if TYPE_CHECKING:`."""
    return isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"


# The classes of the rows of METHODS that are requests.
ROW_CLASSES = ("Method", "Legacy")


def parts_of(node):
    """Return the (name, node, needs) of each Part of a statement."""
    if isinstance(node, ast.ClassDef):
        methods = [each for each in node.body if isinstance(each, FUNCTIONS)]
        names = [f"{node.name}.{each.name}" for each in methods]
        return [
            (name, each, NAMES.get(name, set())) for name, each in zip(names, methods)
        ]
    if is_for_types(node):
        return [("", each, set()) for each in node.body]
    if "_KEYWORDS" in names_made_by(node):
        rows = zip(node.value.keys, node.value.values)
        return [("", row, keyword_needs(key)) for key, row in rows]
    if "METHODS" not in names_made_by(node):
        return []
    calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
    rows = [each for each in calls if getattr(each.func, "id", "") in ROW_CLASSES]
    return [("", row, row_needs(row.args[0].value)) for row in rows]


def keyword_needs(key):
    """Return the features without which a copy has no row for a keyword."""
    # Limits of lengths have no key of their own: **_counted(...).
    is_limit = key is None or getattr(key, "value", "") in LIMITS
    return set() if is_limit else {"full"}


def row_needs(method):
    """Return the features without which a copy has no row for a method."""
    return {
        feature for feature, names in ROWS if method.startswith(tuple(names.split()))
    }


def lead_of(lines):
    """Return how many lines at the end are comments, or blank."""
    is_lead = [line.strip() == "" or line.lstrip()[0] == "#" for line in lines]
    return len(list(takewhile(bool, reversed(is_lead))))


def split(source):
    """Return the top level as Pieces."""
    lines = source.splitlines(keepends=True)
    pieces = []
    title = ""
    end = 0
    for node in ast.parse(source).body:
        first = min(
            each.lineno for each in [node, *getattr(node, "decorator_list", ())]
        )
        text = "".join(lines[end : first - 1])
        banner = ""
        needs = set()
        for head in BANNER.finditer(text):
            title = head[1]
            # The comment right above a statement is its own, the rest its section's.
            own = re.search(r"(#.*\n)*\Z", text[head.end() :])[0]
            banner = text[: len(text) - len(own)]
        if isinstance(node, DEFINITIONS):
            needs = SECTIONS.get(title, set()) | NAMES.get(node.name, set())
        parts = [Part("", None, set(), text[len(banner) :])]
        end = first - 1
        for name, each, part_needs in parts_of(node):
            decorators = getattr(each, "decorator_list", ())
            start = min(one.lineno for one in [each, *decorators]) - 1
            start -= lead_of(lines[end:start])
            parts.append(Part("", None, set(), "".join(lines[end:start])))
            end = each.end_lineno
            parts.append(Part(name, each, part_needs, "".join(lines[start:end])))
        parts.append(Part("", None, set(), "".join(lines[end : node.end_lineno])))
        end = node.end_lineno
        pieces.append(Piece(node, names_made_by(node), needs, banner, parts))
    return pieces


class Reach:
    """What can be reached from the public names.

    pieces: all Pieces of the file
    features: those that the copy has
    public: the names in `__all__`
    """

    def __init__(self, pieces, features, public):
        self.features = features
        self.public = public
        self.is_whole = features.issuperset(FEATURES)
        self.classes = {
            piece.node.name: piece.node
            for piece in pieces
            if isinstance(piece.node, ast.ClassDef)
        }
        # The words in the code that is kept, and the names in its annotations.
        self.words = {*public, *ALSO_PUBLIC}
        self.hints = set()
        # The nodes that are kept, and {name: the features it needs} of those that are
        # not, though something that is kept names them.
        self.kept = set()
        self.absent = {}
        before = None
        while before != (len(self.words), len(self.kept)):
            before = len(self.words), len(self.kept)
            for piece in pieces:
                self.visit(piece)
        # A name for type checkers alone is kept if an annotation uses it.
        for piece in pieces:
            if is_for_types(piece.node):
                self.keep_hints(piece.node.body)

    def visit(self, piece):
        """Keep a Piece, and its Parts, if they can be reached by now."""
        if piece.names and not piece.names & self.words:
            return
        if not piece.needs <= self.features:
            (name,) = piece.names
            if name not in self.absent:
                self.stand_in(name, piece.needs)
            return
        parts = [part for part in piece.parts if part.node]
        self.keep(piece.node, {part.node for part in parts})
        if is_for_types(piece.node):
            return
        for part in parts:
            if part.name and not self.is_reached(piece.node, part.node.name):
                continue
            if part.needs <= self.features:
                self.keep(part.node)
            elif part.name:
                self.stand_in(part.name, part.needs)

    def keep(self, node, without=()):
        """Keep the code of a node, except these nodes inside it."""
        if node not in self.kept:
            self.kept.add(node)
            self.words |= words_in(node, without)
            self.hints |= hints_in(node, without)

    def stand_in(self, name, needs):
        """Note a name that the copy lacks."""
        self.absent[name] = needs
        code = ast.parse(textwrap.dedent(STAND_INS.get(name, "")))
        self.words |= words_in(code)
        self.hints |= hints_in(code)

    def is_reached(self, cls, method):
        """Return whether something may call this method of a class that is kept."""
        if self.is_whole or method.startswith("__") or "." + method in self.words:
            return True
        if cls.name in self.public and not method.startswith("_"):
            return True
        # A base class from elsewhere may call any method.
        bases = [getattr(each, "id", None) for each in cls.bases]
        return any(each not in self.classes for each in bases) or any(
            self.is_reached(self.classes[each], method) for each in bases
        )

    def keep_hints(self, statements):
        """Keep those that an annotation names, or another that is kept."""
        before = None
        while before != len(self.kept):
            before = len(self.kept)
            for each in statements:
                if names_made_by(each) & self.hints:
                    self.keep(each)


def cut(source, features, with_comments=True):
    """Return the text of a copy with these features."""
    shown = with_implied(features)
    shown |= set() if "http" in shown else {"stdio"}
    words = feature_words(shown)
    pieces = split(source)
    values = {name: each.node for each in pieces for name in each.names}
    public = ast.literal_eval(values["__all__"].value)
    reach = Reach(pieces, with_implied(shown), public)
    text = ""
    banner = title = ""
    titles = set()
    for piece in pieces:
        # A banner comes with the first piece of its section that is kept.
        banner = piece.banner or banner
        if piece.banner:
            title = BANNER.search(piece.banner)[1]
        (name,) = piece.names if len(piece.names) == 1 else [""]
        if name == "__all__":
            names = [
                f'    "{name}",\n' for name in public if values[name] in reach.kept
            ]
            text += f"__all__ = [\n{''.join(names)}]\n{LEFT_OUT % words}"
            text += hidden_types(values, reach)
        elif name in reach.absent:
            needs = needs_words(reach.absent[name] - reach.features)
            text += banner + STAND_INS.get(name, STAND_IN % (name, needs))
            banner = ""
        elif piece.node in reach.kept:
            text += banner + "".join(part_text(part, reach) for part in piece.parts)
            banner = ""
            titles.add(title)
    module = ast.Module([piece.node for piece in pieces], [])
    doc = ast.get_docstring(module, clean=False)
    text = text.replace(doc, describe(doc, with_implied(shown), titles), 1)
    version = values["__version__"].value.value
    text = text if with_comments else without_comments(text)
    head = f"# mcp_lite {version}, cut to: {words}; from SHA-256 {digest(source)}\n"
    return f"{head}# SHA-256 of the lines below: {digest(text)}\n{text}"


def with_implied(features):
    """Return the features, and the features that they imply."""
    implied = set(features)
    for given, others in IMPLIED:
        if implied.issuperset(given.split()):
            implied.update(others.split())
    return implied


def feature_words(features):
    """Return the features as a user names them."""
    words = [each for each in FEATURES if each in features]
    return " ".join(words).replace("tools server", "server")


def needs_words(needs):
    """Return the features that a user names to get the missing ones."""
    return " ".join(sorted({SHOWN.get(each, each) for each in needs}))


def part_text(part, reach):
    """Return the text of a Part in a copy."""
    if part.node is None or part.node in reach.kept:
        return part.text
    if part.name not in reach.absent:
        return ""
    if part.name in STAND_INS:
        return STAND_INS[part.name]
    if part.name.startswith("_"):
        # Nothing outside its class calls it.
        return ""
    needs = needs_words(part.needs - reach.features)
    return f'\n    {part.node.name} = _without("{part.name}", "{needs}")\n'


def hidden_types(values, reach):
    """Return declarations, for type checkers, of names that only annotations use."""
    hidden = [
        name
        for name in sorted(reach.hints & values.keys() - reach.absent.keys())
        if values[name] not in reach.kept
    ]
    lines = [f"    from typing import Any as {name}\n" for name in hidden]
    return "".join(["\n\nif TYPE_CHECKING:\n", *lines]) if lines else ""


def describe(doc, features, titles):
    """Return a copy's docstring, without the parts that the copy lacks.

    features: all of the copy's features, including implied ones
    titles: the titles of its sections
    """
    first, gap, rest = doc.partition("\n\n")
    left = feature_words(set(FEATURES) - features)
    if not left:
        return doc
    words = feature_words(features)
    first += f"\n\nThis is a copy, cut to: {words}. It lacks: {left}."
    if not {"tools", "client", "stdio"} <= features:
        has_http = "http" in features
        example = ""
        if "tools" in features:
            example += SERVER_EXAMPLE % ('"http", port=8000' * has_http)
        if "client" in features:
            url = "http://127.0.0.1:8000/mcp" if has_http else "server.py"
            example += CLIENT_EXAMPLE % f'"{url}"'
        rest = re.sub(
            r"(?ms)^A server is functions.*?\n(?=\nThe )", lambda _: example, rest
        )
        rest = re.sub(r"(?ms)^The path of one call,.*?\n\n", "", rest)
    if "http" not in features:
        rest = re.sub(r"(?ms)^    modern, over HTTP:.*?(?=\n\n)", "", rest)
        rest = re.sub(r"(?s) There are\nfour exceptions,.*?(?=\n\n)", "", rest)
    entries = re.split(r"(?m)^(?= {1,5}\d+\. |Part |\n)", rest)
    kept = []
    for entry in entries:
        title = re.match(r" +\d+\. (.+?)  ", entry)
        if title is None or title[1] in titles:
            kept.append(entry)
    # A part without sections goes, too.
    rest = re.sub(r"(?m)^Part .*\n(?=Part |\n)", "", "".join(kept))
    return first + gap + rest


def digest(text):
    """Return the SHA-256 of a text."""
    return sha256(text.encode()).hexdigest()


def state_of(path):
    """Return "as cut", or how a file differs from that."""
    head, _, rest = path.read_text("utf-8").partition("\n")
    second, _, rest = rest.partition("\n")
    features = re.match(r"# mcp_lite (\S+), cut to: .*; from SHA-256 (\w+)$", head)
    own = re.match(r"# SHA-256 of the lines below: (\w+)$", second)
    if not features or not own:
        return "no copy made by vendor.py"
    if own[1] != digest(rest):
        return "changed by hand"
    if features[2] != digest(SOURCE.read_text("utf-8")):
        return f"old: cut from another mcp_lite.py, {features[1]}"
    return "as cut"


def without_comments(text):
    """Return code without comments and docstrings, but with the licence at its head."""
    lines = text.splitlines(keepends=True)
    tree = ast.parse(text)
    words = tokenize.generate_tokens(iter(lines).__next__)
    for kind, text_of, (row, column), _, _ in words:
        is_hint = re.match("# (type|mypy|pyright): ", text_of)
        if kind == tokenize.COMMENT and row > tree.body[0].lineno and not is_hint:
            code = lines[row - 1][:column].rstrip()
            lines[row - 1] = code and code + "\n"
    for node in ast.walk(tree):
        if isinstance(node, (*DEFINITIONS, ast.Module)) and ast.get_docstring(node):
            row, end = node.body[0].lineno, node.body[0].end_lineno
            lines[row - 1 : end] = [""] * (end - row + 1)
            if len(node.body) == 1:
                lines[row - 1] = " " * node.body[0].col_offset + "pass\n"
    return re.sub(r"\n{4,}", "\n\n\n", "".join(lines))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.error = lambda why: sys.exit(f"vendor: {why}; see --help")
    parser.add_argument("features", nargs="*", metavar="FEATURE")
    parser.add_argument(
        "-o", dest="file", type=Path, help="the copy; by default, stdout"
    )
    parser.add_argument("--no-comments", action="store_true")
    parser.add_argument(
        "--check",
        type=Path,
        metavar="FILE",
        help="tell the state of a copy, or several",
    )
    parser.add_argument("--force", action="store_true", help="overwrite any file")
    options = parser.parse_args()
    try:
        run(parser, options)
    except (OSError, UnicodeError) as error:
        sys.exit(f"vendor: {error}")


def run(parser, options):
    """Check a copy, or make one."""
    if options.check:
        # Further words are files, too: --check vendor/*.py.
        files = [options.check, *map(Path, options.features)]
        states = [state_of(file) for file in files]
        for file, state in zip(files, states):
            print(f"{file}: {state}")
        sys.exit(set(states) != {"as cut"})
    unknown = set(options.features).difference(FEATURES)
    if unknown:
        names = ", ".join(map(repr, sorted(unknown)))
        parser.error(f"no feature: {names}; expected some of {', '.join(FEATURES)}")
    if set(options.features) <= {"stdio", "http", "legacy"}:
        parser.error("name tools, server or client, or two of them")
    if options.file and options.file.exists() and not options.force:
        state = state_of(options.file)
        if state != "as cut" and not state.startswith("old"):
            parser.error(f"{options.file} is {state}; --force overwrites it")
    text = cut(SOURCE.read_text("utf-8"), options.features, not options.no_comments)
    if options.file:
        options.file.parent.mkdir(parents=True, exist_ok=True)
    # A reader such as `head` may have had enough.
    with suppress(BrokenPipeError), open(
        options.file or 1, "w", encoding="utf-8", newline="\n"
    ) as file:
        file.write(text)


if __name__ == "__main__":
    main()
