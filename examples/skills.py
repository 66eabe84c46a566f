"""Skills: folders of instructions for models, served and used. Both roles.

Teaches: on the server, an extension of three methods; on the host, what it takes to use a
stranger's instructions: fetch when needed, verify, ask the user, say where they are from.
The rules: ext-skills, specification/stable/skills.mdx, and https://agentskills.io.

Run: python3 examples/skills.py FOLDER          a host: shows the skills, loads each one
     python3 examples/skills.py FOLDER --serve  their server, on stdio
     python3 examples/skills.py FOLDER --http 8000    their server, at a URL
Every folder with a SKILL.md is a skill. Everything in FOLDER is served, except for hidden
entries (such as .git) and links; stderr says which skills are left out, and why. To serve
a hidden folder, name it as FOLDER.

The head of a SKILL.md is YAML, of which this example reads keys, nested keys, texts (of
several lines as well), lists of values, numbers, true, false, null, and JSON. Anything
else is refused by name, and so is what YAML 1.1 and 1.2 read differently: a host compares
this head with what the server says about it, so neither side may guess.
"""

import argparse
import hashlib
import json
import mimetypes
import os
import pathlib
import posixpath
import re
import sys
from base64 import b64decode
from urllib.parse import quote, unquote

# mcp_lite.py is in this folder, or one up.
sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1]))

from mcp_lite import (  # noqa: E402
    Client,
    EmbeddedResource,
    InvalidParams,
    McpError,
    Server,
    printable,
)

SKILLS = "io.modelcontextprotocol/skills"

# The head of a SKILL.md ##############################################################

# JSON and YAML agree on these.
AS_JSON = re.compile(r'null|true|false|-?(0|[1-9][0-9]*)(\.[0-9]+)?|"([^"\\]|\\.)*"')
# Other values must not look like these; an error says what is not supported.
REFUSED = {
    r"[|>]": "a text of several lines that begins with more than | or > and + or -",
    r"[\[{]": "brackets around more than simple values and JSON",
    r"[&*!]": "an anchor, an alias or a tag",
    r"[\"'%@`,}\]#]|[?:-]( |$)|.*:( |$)|.* #": "a text that needs quotes, or a comment",
    r"(?i)(y|n|yes|no|on|off|true|false|null)$": "a word that readers take differently",
    # A version (1.0.3) is a text everywhere.
    r"(?!\d+\.\d+\.\d+$)[-+.]?[0-9][0-9a-fA-F_:.xo+-]*$|[-+]?\.(inf|nan)": (
        "a number or date without quotes"
    ),
}
# "key: |" or "key: >", and the lines below: those that have the indentation of the first
# text, which is more than the key's, and empty ones.
BLOCK = re.compile(
    r"""^([ ]*)([A-Za-z0-9_.-]+):[ ]([|>])([+-]?)[ ]*\n
    ( (?=(?:[ ]*\n)*(\1[ ]+)[^ \n])  # the indentation of the first text
      (?:(?!\6[ ])[ ]*\n)*\6[^ \n].*\n(?:\6.*\n|[ ]*\n)*
    | (?:[ ]*\n)*  # no text
    )""",
    re.MULTILINE | re.VERBOSE,
)


# "key:", with or without the beginning of a text, and the lines below that have more
# indentation, and empty ones between them.
PLAIN = re.compile(
    r"""^([ ]*)([A-Za-z0-9_.-]+):([ ][^\n]*)?\n
    ((?:[ ]*\n)*(?:\1[ ]+[^ \n][^\n]*\n)(?:(?:[ ]*\n)*\1[ ]+[^ \n][^\n]*\n)*)
    """,
    re.MULTILINE | re.VERBOSE,
)
# What a line below a key may begin with that is no text: a key, an item, a comment.
NO_TEXT = re.compile(r"[A-Za-z0-9_.-]+:( |$)|-( |$)|#")
# An item in a list in brackets.
ITEM = r"""\s*("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s,"'\[\]{}][^,\[\]{}]*?)\s*"""


def parse_head(text):
    """Return the head of a SKILL.md, as JSON has it. Raises ValueError."""
    head = re.match(r"---\n(.*?\n)---(\n|$)", text.replace("\r\n", "\n"), re.DOTALL)
    # YAML 1.1 has more line ends than 1.2.
    if head is None or len(head[1].splitlines()) > head[1].count("\n"):
        raise ValueError(
            "SKILL.md: expected a head, of lines, between two lines of ---"
        )
    # (indentation, text) of each
    lines = [
        (len(line) - len(line.lstrip(" ")), line.lstrip(" ").rstrip())
        for line in quote_texts(head[1]).splitlines()
        if line.lstrip(" ")[:1] not in ("", "#")
    ]
    members = parse_lines(lines, 0)
    if lines:
        raise ValueError(f"{lines[0][1]}: its indentation fits nothing above")
    return members


def quote_texts(text):
    """Return a head with each text of several lines on one line, in quotes."""
    return PLAIN.sub(quote_plain, BLOCK.sub(quote_block, text))


def quote_plain(member):
    """Return a member whose text goes on in the lines below with that text in quotes."""
    indent, key, begin, below = member.groups()
    begin = (begin or "").strip()
    lines = [line.strip() for line in below.rstrip().split("\n")]
    first = next(filter(None, lines))
    if not begin and NO_TEXT.match(first):
        # What is below may have texts of several lines itself.
        return f"{indent}{key}:\n" + PLAIN.sub(quote_plain, below)
    if not begin and len(list(filter(None, lines))) == 1:
        return f"{indent}{key}: {first}\n"
    is_text = not re.match("[|>\"']", begin) and not any(
        NO_TEXT.match(line) or re.search(": | #|:$", line) for line in lines
    )
    if not is_text:
        # parse_lines() will say what is wrong.
        return member[0]
    text = begin
    for line in lines:
        # A line end becomes a space, and empty lines as many line ends.
        is_first = not text or text.endswith("\n")
        text += "\n" if not line else line if is_first else f" {line}"
    if parse_value(text.split("\n")[0]) != text.split("\n")[0]:
        raise ValueError(f"{key}: not supported: a text that needs quotes")
    return f"{indent}{key}: {json.dumps(text.strip())}\n"


def quote_block(block):
    """Return a member whose text has lines of its own with that text in quotes."""
    indent, key, style, ending, lines, inner = block.groups()
    text = re.sub(f"(?m)^ {{0,{len(inner or lines)}}}", "", lines)
    content = text.rstrip("\n")
    # Of the line ends behind the text, | keeps one, |+ all, and |- none.
    tail = text[len(content) :][: {"": bool(content), "+": len(text), "-": 0}[ending]]
    if style == ">":
        # A line end becomes a space, and empty lines as many line ends; unless a line
        # beside them begins with white space.
        content = re.sub(
            r"(?m)^([^ \t\n].*)\n(\n*)(?=[^ \t\n])",
            lambda line: line[1] + (line[2] or " "),
            content,
        )
    return f"{indent}{key}: {json.dumps(content + tail)}\n"


def parse_lines(lines, indent):
    """Take the lines with this indentation, and return their object."""
    members = {}
    while lines and lines[0][0] == indent:
        line = lines.pop(0)[1]
        entry = re.fullmatch(r"([A-Za-z0-9_.-]+):( .*)?", line)
        if entry is None or entry[1] in members:
            raise ValueError(f"{line}: expected a key and a value, each key once")
        if entry[2] is None and lines and is_item(lines[0], indent):
            members[entry[1]] = parse_items(lines, lines[0][0])
        elif entry[2] is None and lines and lines[0][0] > indent:
            members[entry[1]] = parse_lines(lines, lines[0][0])
        else:
            members[entry[1]] = parse_value((entry[2] or "").strip())
    return members


def is_item(line, indent):
    """Return whether a line is an item of a list below a key with this indentation."""
    return line[0] >= indent and re.match("-( |$)", line[1]) is not None


def parse_items(lines, indent):
    """Take the lines with this indentation, and return their list."""
    items = []
    while lines and lines[0][0] == indent and is_item(lines[0], indent):
        text = lines.pop(0)[1][1:].strip()
        if re.match(r"[A-Za-z0-9_.-]+:( |$)|-( |$)", text):
            raise ValueError(f"- {text}: not supported: a list of more than values")
        items.append(parse_value(text))
    return items


def parse_json(text):
    """Return the value of a text that JSON and YAML read alike, or None."""

    def pairs(members):
        if len(dict(members)) < len(members):
            raise ValueError("a key comes twice")
        return dict(members)

    def number(digits):
        if not AS_JSON.fullmatch(digits):
            # To YAML 1.1, 1e5 is a text.
            raise ValueError(digits)
        return float(digits)

    try:
        return json.loads(
            text, object_pairs_hook=pairs, parse_float=number, parse_constant=number
        )
    except (ValueError, RecursionError):
        return None


def parse_value(text):
    text = {"": "null", "~": "null"}.get(text, text)
    if text[0] in "[{":
        found = parse_json(text)
        if found is not None:
            return found
        if re.fullmatch(rf"\[({ITEM}(,{ITEM})*)?\s*\]", text):
            items = re.findall(ITEM + "(?:,|$)", text[1:-1])
            try:
                return [parse_value(each) for each in items]
            except ValueError as error:
                raise ValueError(f"{text}: {error}") from None
    if AS_JSON.fullmatch(text):
        return json.loads(text)
    if re.fullmatch("'([^']|'')*'", text):
        return text[1:-1].replace("''", "'")
    for pattern, what in REFUSED.items():
        if re.match(pattern, text):
            raise ValueError(f"{text}: not supported: {what}")
    return text


def sums(data):
    """Return what an entry says about a file's bytes."""
    return {"digest": f"sha256:{hashlib.sha256(data).hexdigest()}", "size": len(data)}


# The server's role ###################################################################


def is_served(path, folder):
    return (
        folder in path.parents
        and not any(step[0] == "." for step in path.relative_to(folder).parts)
        # A link leads elsewhere.
        and path.resolve() == path
    )


def check_served(path, folder):
    if not is_served(path, folder):
        raise ValueError("it is hidden, or a link leads there")


def serve_skills(server, folder):
    """Serve the skills in a folder, in their state at each request.

    server: made with extensions={SKILLS: {"directoryRead": True}}. A client need not
        declare the extension, too
    """
    folder = pathlib.Path(folder).resolve()

    def locate(uri, is_wanted):
        path = folder.joinpath(unquote(str(uri)[len("skill://") :]))
        if not (
            str(uri).startswith("skill://")
            and is_served(path, folder)
            and is_wanted(path)
        ):
            raise InvalidParams(f"{uri}: no such thing is served")
        return path

    def about(path):
        """Return a path as an item of resources/list."""
        return {
            "uri": "skill://" + quote(path.relative_to(folder).as_posix()),
            "name": path.name,
            "mimeType": (
                "inode/directory"
                if path.is_dir()
                else mimetypes.guess_type(path.name)[0] or "text/plain"
            ),
        }

    def entry(path):
        """Return the entry of the skill with this SKILL.md. Raises ValueError."""
        skill = {
            "uri": about(path)["uri"],
            "frontmatter": parse_head(path.read_bytes().decode()),
            "resources": [
                {"uri": about(file)["uri"], **sums(file.read_bytes())}
                # By text, as Windows' paths compare without case.
                for file in sorted(path.parent.rglob("*"), key=str)
                if file.is_file() and is_served(file, folder)
            ],
        }
        return check_entry(skill["uri"], skill) and skill

    @server.resource("skill://{+path}")
    def skill_file(path: str) -> EmbeddedResource:
        """A file of a skill."""
        place = locate("skill://" + quote(path), pathlib.Path.is_file)
        data = place.read_bytes()
        text = data.decode("utf-8", "replace")
        return EmbeddedResource(
            about(place)["uri"],
            text if text.encode() == data else data,
            mime_type=about(place)["mimeType"],
        )

    @server.method("skills/list")
    def list_skills(ctx, params):
        skills = []
        for path in sorted(folder.rglob("SKILL.md"), key=str):
            try:
                check_served(path, folder)
                skills.append(entry(path))
            except (OSError, ValueError) as error:
                print(printable(f"without {path}: {error}"), file=sys.stderr)
        return {"skills": skills, "ttlMs": 0, "cacheScope": "private"}

    @server.method("skills/get")
    def get_skill(ctx, params):
        try:
            skill = entry(locate(params.get("uri"), pathlib.Path.is_file))
        except ValueError as error:
            raise InvalidParams(f"no skill: {error}") from None
        return {"skill": skill, "ttlMs": 0, "cacheScope": "private"}

    @server.method("resources/directory/read")
    def read_directory(ctx, params):
        return {
            "resources": [
                about(path)
                for path in sorted(
                    locate(params.get("uri"), pathlib.Path.is_dir).iterdir(), key=str
                )
                if is_served(path, folder)
            ],
            # The extension does not require these two here, but the TypeScript SDK does.
            "ttlMs": 0,
            "cacheScope": "private",
        }


# The host's role #####################################################################


class SkillHost:
    """Uses the skills of one server. Each is fetched when it is needed, and verified, if
    the user agrees.

    label: what this host calls the server, whose own name cannot be trusted
    approve(label, entry): asks the user, once for each skill, and again when it changes
    """

    def __init__(self, client, label, approve):
        self.client = client
        self.label = label
        self.approve = approve
        # By a skill's URI, as check_entry() returns them: the files that the user has
        # agreed to, and those that the model may read now.
        self.approved = {}
        self.held = {}
        # digest -> bytes
        self.cache = {}

    def list(self):
        """Return the entries of all skills. Nothing else is fetched."""
        page = self.client.request("skills/list")
        entries = page["skills"]
        while "nextCursor" in page:
            cursor = {"cursor": page["nextCursor"]}
            page = self.client.request("skills/list", cursor)
            entries += page["skills"]
        return entries

    def load(self, uri):
        """Return a skill's instructions for the model, which may then read its files.

        Raises ValueError if something is wrong with the skill, PermissionError if the
        user does not agree, McpError, OSError.
        """
        self.held.pop(uri, None)
        entry = self.client.request("skills/get", {"uri": uri})["skill"]
        files = check_entry(uri, entry)
        # "bound to the entry's resources set observed at the moment of approval"
        if self.approved.get(uri) != files and not self.approve(self.label, entry):
            raise PermissionError(f"{uri} of {self.label}: the user does not agree")
        self.approved[uri] = files
        text = self.fetch(files[uri]).decode()
        # "compare it field-by-field". In Python True equals 1, in JSON they differ.
        if json.dumps(parse_head(text), sort_keys=True) != json.dumps(
            entry["frontmatter"], sort_keys=True
        ):
            raise ValueError(f"{uri}: its head is not what the server said about it")
        self.held[uri] = files
        return f"<skill server={self.label!r} uri={uri!r}>\n{text}\n</skill>"

    def read(self, uri, path):
        """Return the bytes of a file of a skill that the model acts on.

        path: as the skill names it, such as "references/FORMS.md"; links in the skill,
            and the server, may write some characters as %20
        """
        listed = {unquote(file): about for file, about in self.held[uri].items()}.get(
            unquote(f"{posixpath.dirname(uri)}/{posixpath.normpath(path)}")
        )
        if listed is None:
            raise ValueError(
                f"{path}: no file of this skill, unless it is loaded again"
            )
        return self.fetch(listed)

    def fetch(self, listed):
        """Return the bytes that an entry lists, from the cache or the server."""
        if listed["digest"] not in self.cache:
            content = self.client.read_resource(listed["uri"])["contents"][0]
            data = content.get("text", "").encode() or b64decode(
                content.get("blob", "")
            )
            if not listed.items() >= sums(data).items():
                raise ValueError(f"{listed['uri']}: not what the server said about it")
            self.cache[listed["digest"]] = data
        return self.cache[listed["digest"]]


def check_entry(uri, entry):
    """Return the files of an entry, {URI: what it says about it}. Raises ValueError."""
    listed = entry["resources"] if isinstance(entry["resources"], list) else []
    files = {file["uri"]: file for file in listed}
    folder, _, end = uri.rpartition("/")
    head = {"compatibility": "any", "metadata": {}, **entry["frontmatter"]}
    if not listed:
        raise ValueError(f"{uri}: nothing can be verified")
    if end != "SKILL.md" or uri not in files:
        raise ValueError(f"{uri}: it is not the URI of a skill")
    name = folder.rpartition("/")[2]
    is_name = re.search("(?!.{66})/[a-z0-9]+(-[a-z0-9]+)*$", "/" + folder)
    if head.get("name") != name or not is_name:
        raise ValueError(f"{uri}: its name must be its folder's: a-z, 0-9, -")
    for member, most in (("description", 1024), ("compatibility", 500)):
        text = head.get(member)
        if not isinstance(text, str) or not 0 < len(text) <= most:
            raise ValueError(
                f"{uri}: its {member} must be a text of 1 to {most:,} characters"
            )
    metadata = head["metadata"]
    if not isinstance(metadata, dict) or not all(
        isinstance(each, str) for each in metadata.values()
    ):
        raise ValueError(f"{uri}: its metadata must be texts, in quotes")
    if len(files) < len(listed):
        raise ValueError(f"{uri}: a file is listed twice")
    for file in files:
        if not file.startswith(folder + "/") or "/../" in unquote(file):
            raise ValueError(f"{uri}: a file is elsewhere")
    # "Hosts MUST support skills up to and including these limits"
    if len(files) > 512 or sum(file["size"] for file in listed) > 16 << 20:
        raise ValueError(f"{uri}: it has more than 512 files, or 16 MiB")
    return files


def address(text):
    """Return (host, port) of [HOST:]PORT. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if int(port) not in range(65536):
        raise ValueError(port)
    return host.strip("[]") or "127.0.0.1", int(port)


def ask_user(label, entry):
    """Return whether the user agrees. Without a terminal, the answer is no."""
    print_out(printable(f"Load {entry['uri']} of {label}? [y/N]"))
    return sys.stdin.readline().strip().lower() == "y"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.error = lambda why: sys.exit(f"skills: {why}; see --help")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--serve", action="store_true", help="serve on stdio")
    parser.add_argument("--http", type=address, metavar="[HOST:]PORT")
    options = parser.parse_args()
    if not options.folder.is_dir():
        sys.exit(printable(f"skills: {options.folder}: no such folder"))
    server = Server("skills", extensions={SKILLS: {"directoryRead": True}})
    serve_skills(server, options.folder)
    if options.http is not None:
        host, port = options.http
        server.run("http", host=host, port=port)
    elif options.serve:
        server.run()
    else:
        show_skills(server, options.folder)


def print_out(text):
    """Print a text. It is no error if a reader such as `head` has had enough."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # Nobody reads the rest. Python will flush stdout again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def show_skills(server, folder):
    """Act as a host: show the skills, and load those that the user agrees to."""
    with Client(server, extensions={SKILLS: {}}) as client:
        host = SkillHost(client, "this folder", ask_user)
        skills = host.list()
        if not skills:
            sys.exit(printable(f"skills: {folder}: no skill is served"))
        for entry in skills:
            # Somebody else's text must not steer the terminal.
            about = f"{entry['uri']} {entry['frontmatter']['description']}"
            print_out(printable(about))
            try:
                print_out(printable(host.load(entry["uri"]), keep_lines=True))
            except (PermissionError, ValueError, McpError) as error:
                print(printable(str(error)), file=sys.stderr)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
