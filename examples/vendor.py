"""A copy of mcp_lite.py with only what its user needs.

Teaches: what a program reaches from the names that it uses. The cut is made with `ast`:
it keeps the definitions that can be reached, in their order, with their comments.

Run: python3 examples/vendor.py server -o vendor/mcp_lite.py
     python3 examples/vendor.py client http oauth --no-comments -o vendor/mcp_lite.py

The folder is made if need be. Without -o, the copy goes to stdout.

server      Server
client      Client; in memory, too, where Server is kept
stdio       both on standard streams and any other pair of streams; kept unless the
            copy is for http
http        both over HTTP, of 2026-07-28 alone
legacy      the sessions of older revisions over HTTP, and HTTP+SSE: http
oauth       the client logs in: client, http
cli         the command line: client, stdio

Whatever was left out raises NotImplementedError when it is called, with the command
that makes a copy which has it; the command line ends with that text and exit code 1.
The first line of a copy has its version and features.
"""

import argparse
import ast
import re
import tokenize
from collections import namedtuple
from pathlib import Path

# mcp_lite.py is one folder up.
SOURCE = Path(__file__).resolve().parent.parent / "mcp_lite.py"

FEATURES = ("server", "client", "stdio", "http", "legacy", "oauth", "cli")
IMPLIED = {"oauth": ("client", "http"), "cli": ("client", "stdio"), "legacy": ("http",)}
# What is left out of a copy that has not all of these features: names, and the classes
# and functions of whole sections. Everything else is kept if it can be reached.
NAMES = {
    **dict.fromkeys(
        "Server ServerEndpoint MainThread Context Param".split(), {"server"}
    ),
    **dict.fromkeys("Audio Image EmbeddedResource ResourceLink".split(), {"server"}),
    "Message": {"server"},
    **dict.fromkeys(
        "StreamTransport Deputy read_plainly serve_stream wait_for".split(), {"stdio"}
    ),
    **dict.fromkeys("private_wire Child inherited_environment".split(), {"stdio"}),
    **dict.fromkeys(
        "Client ClientEndpoint HttpFailure AuthorizationError".split(), {"client"}
    ),
    "MemoryTransport": {"server", "client", "stdio"},
    "LegacyEndpoint": {"legacy"},
    "LegacyHttp": {"legacy"},
}
SECTIONS = {
    "HTTP endpoint": {"server", "http"},
    "HTTP server": {"server", "http"},
    "HTTP client": {"client", "http"},
    "Authorization": {"oauth"},
    "Command line": {"cli"},
}
# Beside the public names, these are where reaching begins.
ALSO_PUBLIC = ("__version__", "METHODS", "annotations")
# What the modern half of HTTP names of the legacy half, in copies without it.
STAND_INS = {
    "LegacyEndpoint": '''
class LegacyEndpoint:
    """Stands for the sessions that this copy was made without."""

    def __init__(self, *given: object) -> None:
        self.sessions: Json = {}

    def post(self, exchange: object) -> None:
        """Refuse a legacy message. Raises UnsupportedVersion."""
        check_modern_version(LAST_LEGACY)
''',
    "LegacyHttp": '''
class LegacyHttp(HttpTransport):
    """Stands for the sessions that this copy was made without."""

    def __init__(self, caller: HttpCaller, *given: object) -> None:
        super().__init__(caller)

    def _post(self, post: _Post) -> None:
        if post.opens_session:
            raise NotImplementedError(_left_out("the sessions of older servers", "legacy"))
        super()._post(post)
''',
    "main": '''
def main() -> int:
    """Stands for the command line, which this copy was made without."""
    sys.exit(_left_out("the command line", "cli"))
''',
}
LEFT_OUT = '''

def _left_out(what: str, needs: str) -> str:
    """Say how to make a copy with more features than this one has."""
    return (
        f"this copy of mcp_lite was made without {what}; to make one that has it:"
        f' python3 examples/vendor.py %s {needs} -o "{__file__}"'
    )


class _LeftOut:
    """Stands for what this copy was made without."""

    needs = ""

    def __init__(self, *given: object, **options: object) -> None:
        raise NotImplementedError(_left_out(type(self).__name__, self.needs))
'''
# Type checkers take a class for what it says. A name that cannot be imported may be
# anything.
STAND_IN = """

if not TYPE_CHECKING:

    class %s(_LeftOut):
        needs = "%s"
"""
FOR_CHECKERS = """

# mypy: warn_return_any=False, warn_unused_ignores=False
if TYPE_CHECKING:
    from left_out import (  # type: ignore
%s    )
"""
BANNER = re.compile(r"^#{79}\n# (?:\d+\. )?(.+?) #+\n#{79}\n", re.MULTILINE)
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
Piece = namedtuple("Piece", "node names needs banner text")


def names_in(node):
    """Return the names in a piece of code. Annotations are only texts at run time."""
    names = {node.id} if isinstance(node, ast.Name) else set()
    for field, value in ast.iter_fields(node):
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.AST) and field not in ("annotation", "returns"):
                names |= names_in(part)
    return names


def names_left_out(pieces, kept):
    """Return the names of the top level that a copy names, if only in annotations, and
    does without."""
    named = set()
    for piece in pieces:
        if not piece.names or piece.names & kept:
            for node in ast.walk(piece.node):
                # An annotation may be in quotes.
                named.add(getattr(node, "id", None) or getattr(node, "value", None))
    known = set().union(*[piece.names for piece in pieces])
    return (named & known) - kept


def names_made_by(node):
    """Return the names that a statement of the top level defines, or changes."""
    if isinstance(node, DEFINITIONS):
        return {node.name}
    targets = getattr(node, "targets", None) or [getattr(node, "target", ast.Pass())]
    imports = [each.asname or each.name for each in getattr(node, "names", ())]
    return {name.partition(".")[0] for name in imports}.union(*map(names_in, targets))


def split(source):
    """Return the top level as Pieces: a statement, with the text that leads to it."""
    lines = source.splitlines(keepends=True)
    pieces = []
    title = ""
    end = 0
    for node in ast.parse(source).body:
        first = min(
            [node, *getattr(node, "decorator_list", ())], key=lambda n: n.lineno
        )
        text = "".join(lines[end : first.lineno - 1])
        banner = ""
        needs = set()
        for head in BANNER.finditer(text):
            title = head[1]
            # The comment right above a statement is its own, the rest its section's.
            own = re.search(r"(#.*\n)*\Z", text[head.end() :])[0]
            banner = text[: len(text) - len(own)]
        if isinstance(node, DEFINITIONS):
            needs = SECTIONS.get(title, set()) | NAMES.get(node.name, set())
        text = text[len(banner) :] + "".join(lines[first.lineno - 1 : node.end_lineno])
        pieces.append(Piece(node, names_made_by(node), needs, banner, text))
        end = node.end_lineno
    return pieces


def reach(pieces, features, public, stand_ins):
    """Return the names that can be reached from the public ones: those that the copy
    has, and {name: the features it needs} of those that it does without."""
    kept = set()
    absent = {}
    # What makes no names, such as an `if`, runs whenever the file is run.
    nameless = [names_in(piece.node) for piece in pieces if not piece.names]
    todo = [*public, *ALSO_PUBLIC, *set().union(*nameless)]
    while todo:
        name = todo.pop()
        for piece in [
            each for each in pieces if name in each.names and name not in kept
        ]:
            if piece.needs <= features:
                todo += names_in(piece.node)
            else:
                absent[name] = piece.needs
                todo += names_in(ast.parse(stand_ins.get(name, "")))
        kept.add(name)
    return kept.difference(absent), absent


def cut(source, features, with_comments=True):
    """Return the text of a copy with these features."""
    features = set(features).union(*[IMPLIED.get(each, ()) for each in features])
    features |= set() if "http" in features else {"stdio"}
    words = " ".join(each for each in FEATURES if each in features)
    pieces = split(source)
    values = {name: each.node for each in pieces for name in each.names}
    public = ast.literal_eval(values["__all__"].value)
    stand_ins = STAND_INS if "http" in features else {"main": STAND_INS["main"]}
    kept, absent = reach(pieces, features, public, stand_ins)
    text = ""
    banner = ""
    for piece in pieces:
        # A banner comes with the first piece of its section that is kept.
        banner = piece.banner or banner
        if "__all__" in piece.names:
            names = [f'    "{name}",\n' for name in public if name in kept]
            text += f"__all__ = [\n{''.join(names)}]\n{LEFT_OUT % words}"
            missing = names_left_out(pieces, kept) - stand_ins.keys()
            lines = [f"        {name},\n" for name in sorted(missing)]
            text += FOR_CHECKERS % "".join(lines) if lines else ""
        elif piece.names & absent.keys():
            name = piece.node.name
            needs = " ".join(sorted(absent[name] - features))
            text += banner + stand_ins.get(name, STAND_IN % (name, needs))
            banner = ""
        elif not piece.names or piece.names & kept:
            text += banner + piece.text
            banner = ""
    version = values["__version__"].value.value
    text = text if with_comments else without_comments(text)
    return f"# mcp_lite {version}, cut to: {words}\n{text}"


def without_comments(text):
    """Return code without comments and docstrings, but with the licence at its head."""
    lines = text.splitlines(keepends=True)
    tree = ast.parse(text)
    for kind, said, (row, column), _, _ in tokenize.generate_tokens(
        iter(lines).__next__
    ):
        is_for_checkers = re.match("# (type|mypy|pyright): ", said)
        if (
            kind == tokenize.COMMENT
            and row > tree.body[0].lineno
            and not is_for_checkers
        ):
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
    parser.add_argument("features", nargs="+", choices=FEATURES, metavar="FEATURE")
    parser.add_argument("-o", dest="file", type=Path, help="else: stdout")
    parser.add_argument("--no-comments", action="store_true")
    options = parser.parse_args()
    if set(options.features) <= {"stdio", "http", "legacy"}:
        parser.error("name server or client, or both")
    text = cut(SOURCE.read_text("utf-8"), options.features, not options.no_comments)
    if options.file:
        options.file.parent.mkdir(parents=True, exist_ok=True)
    with open(options.file or 1, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)


if __name__ == "__main__":
    main()
