"""Skills: folders of instructions for models, served and used. Both roles.

Teaches: an extension of three methods on the server; and on the host, what it takes to
use instructions of a stranger: fetch on need, verify, ask the user, say whose they are.
The rules: ext-skills, specification/stable/skills.mdx, and https://agentskills.io.

Run: python3 examples/skills.py FOLDER          a host: shows the skills, loads each one
     python3 examples/skills.py FOLDER --serve  their server, on stdio
Every folder with a SKILL.md is a skill. Everything in FOLDER is served, but for what is
hidden (.git, say) and for links.

Of YAML, the head of a SKILL.md may use keys, keys below keys, texts (with | or >, of
several lines), numbers, true, false and null. The rest is refused by name, and so is what
YAML 1.1 and 1.2 read differently: a host compares this head with what the server says of
it, so neither may guess.
"""

import hashlib
import json
import mimetypes
import pathlib
import posixpath
import re
import sys
from base64 import b64decode
from urllib.parse import quote, unquote

# mcp_lite.py is one folder up.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from mcp_lite import Client, EmbeddedResource, InvalidParams, Server  # noqa: E402

SKILLS = "io.modelcontextprotocol/skills"

# The head of a SKILL.md ##############################################################

# JSON and YAML read these alike.
AS_JSON = re.compile(r'null|true|false|-?(0|[1-9][0-9]*)(\.[0-9]+)?|"([^"\\]|\\.)*"')
# What other values may not be, and how the reader is told.
REFUSED = {
    r"[|>]": "a text of several lines that begins with more than | or > and + or -",
    r"[\[{]": "a list or an object in brackets",
    r"[&*!]": "an anchor, an alias or a tag",
    r"[\"'%@`,}\]#]|[?:-]( |$)|.*:( |$)|.* #": "a text that needs quotes, or a comment",
    r"(?i)(y|n|yes|no|on|off|true|false|null)$": "a word that readers take differently",
    # Versions (1.0.3) are texts everywhere.
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
        for line in BLOCK.sub(quote_block, head[1]).splitlines()
        if line.lstrip(" ")[:1] not in ("", "#")
    ]
    members = parse_lines(lines, 0)
    if lines:
        raise ValueError(f"{lines[0][1]}: its indentation fits nothing above")
    return members


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
            raise ValueError(
                f"{line}: expected a key and a value, each key once; not a list, nor a "
                "text of several lines without | or >"
            )
        if entry[2] is None and lines and lines[0][0] > indent:
            members[entry[1]] = parse_lines(lines, lines[0][0])
        else:
            members[entry[1]] = parse_value((entry[2] or "").strip())
    return members


def parse_value(text):
    text = {"": "null", "~": "null"}.get(text, text)
    if AS_JSON.fullmatch(text):
        return json.loads(text)
    if re.fullmatch("'([^']|'')*'", text):
        return text[1:-1].replace("''", "'")
    for pattern, what in REFUSED.items():
        if re.match(pattern, text):
            raise ValueError(f"{text}: not supported: {what}")
    return text


def sums(data):
    """Return what an entry says of a file's bytes."""
    return {"digest": f"sha256:{hashlib.sha256(data).hexdigest()}", "size": len(data)}


# The server's role ###################################################################


def is_served(path, folder):
    return (
        folder in path.parents
        and not any(step[0] == "." for step in path.relative_to(folder).parts)
        # A link leads elsewhere.
        and path.resolve() == path
    )


def serve_skills(server, folder):
    """Serve the skills in a folder, as they are at each request.

    server: made with extensions={SKILLS: {"directoryRead": True}}. A client need not
        declare the extension: the methods are for whoever has seen this declaration
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
        """Return a path as resources/list would have it."""
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
        """Return what is said of the skill with this SKILL.md. Raises ValueError."""
        skill = {
            "uri": about(path)["uri"],
            "frontmatter": parse_head(path.read_bytes().decode()),
            "resources": [
                {"uri": about(file)["uri"], **sums(file.read_bytes())}
                for file in sorted(path.parent.rglob("*"))
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
        for path in sorted(folder.rglob("SKILL.md")):
            try:
                skills += [entry(path)] if is_served(path, folder) else []
            except ValueError as error:
                print(f"without {path}: {error}", file=sys.stderr)
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
                    locate(params.get("uri"), pathlib.Path.is_dir).iterdir()
                )
                if is_served(path, folder)
            ],
            # The extension does not ask for these two here; the TypeScript SDK does.
            "ttlMs": 0,
            "cacheScope": "private",
        }


# The host's role #####################################################################


class SkillHost:
    """Uses the skills of one server: fetched on need, verified, if the user agrees.

    label: what this host calls the server; its own name is not to be believed
    approve(label, entry): asks the user; once for a skill as it is, again if it changes
    """

    def __init__(self, client, label, approve):
        self.client = client
        self.label = label
        self.approve = approve
        # By a skill's URI: the files that the user agreed to, and those that the model
        # may read now, as check_entry() returns them.
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
        """Return a skill's instructions for the model, and act on it from now on.

        Raises ValueError for what is not as it should be, PermissionError if the user
        does not agree, McpError, OSError.
        """
        self.held.pop(uri, None)
        entry = self.client.request("skills/get", {"uri": uri})["skill"]
        files = check_entry(uri, entry)
        # "bound to the entry's resources set observed at the moment of approval"
        if self.approved.get(uri) != files and not self.approve(self.label, entry):
            raise PermissionError(f"{uri} of {self.label}: the user does not agree")
        self.approved[uri] = files
        text = self.fetch(files[uri]).decode()
        # "compare it field-by-field". To Python, true is 1; in JSON they differ.
        if json.dumps(parse_head(text), sort_keys=True) != json.dumps(
            entry["frontmatter"], sort_keys=True
        ):
            raise ValueError(f"{uri}: its head is not what the server said of it")
        self.held[uri] = files
        return f"<skill server={self.label!r} uri={uri!r}>\n{text}\n</skill>"

    def read(self, uri, path):
        """Return the bytes of a file of a skill that the model acts on.

        path: as the skill names it, such as "references/FORMS.md"; its links, and the
            server, may write other characters as %20
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
                raise ValueError(f"{listed['uri']}: not what the server said of it")
            self.cache[listed["digest"]] = data
        return self.cache[listed["digest"]]


def check_entry(uri, entry):
    """Return the files of an entry: {URI: what it says of them}. Raises ValueError."""
    listed = entry["resources"] if isinstance(entry["resources"], list) else []
    files = {file["uri"]: file for file in listed}
    folder, _, end = uri.rpartition("/")
    head = {"compatibility": "any", "metadata": {}, **entry["frontmatter"]}
    problems = {
        "nothing can be verified": not listed,
        "it is no skill's URI": end != "SKILL.md" or uri not in files,
        "its name must be its folder's: a-z, 0-9, -": head.get("name")
        != folder.rpartition("/")[2]
        or not re.search("(?!.{66})/[a-z0-9]+(-[a-z0-9]+)*$", "/" + folder),
        "its description must be a text of 1 to 1,024 characters": not isinstance(
            head.get("description"), str
        )
        or not 0 < len(head["description"]) <= 1024,
        "its compatibility must be a text of 1 to 500 characters": not isinstance(
            head["compatibility"], str
        )
        or not 0 < len(head["compatibility"]) <= 500,
        "its metadata must be texts, in quotes": not isinstance(head["metadata"], dict)
        or not all(isinstance(each, str) for each in head["metadata"].values()),
        "a file is listed twice": len(files) < len(listed),
        "a file is elsewhere": any(
            not file.startswith(folder + "/") or "/../" in unquote(file)
            for file in files
        ),
        # "Hosts MUST support skills up to and including these limits"
        "it has more than 512 files, or 16 MiB": len(files) > 512
        or sum(file["size"] for file in listed) > 16 << 20,
    }
    for problem in filter(problems.get, problems):
        raise ValueError(f"{uri}: {problem}")
    return files


def main():
    server = Server("skills", extensions={SKILLS: {"directoryRead": True}})
    serve_skills(server, sys.argv[1])
    if sys.argv[2:] == ["--serve"]:
        sys.exit(server.run())
    with Client(server, extensions={SKILLS: {}}) as client:
        host = SkillHost(
            client,
            "this folder",
            lambda label, entry: (
                input(f"Load {entry['uri']} of {label}? [y/N] ") == "y"
            ),
        )
        for entry in host.list():
            print(entry["uri"], entry["frontmatter"]["description"])
            print(host.load(entry["uri"]))


if __name__ == "__main__":
    main()
