"""Any server as a typed Python module: a function for each of its tools.

Teaches: what a tool's schemas say; what Client.call takes and gives.

Run: python3 examples/stubs.py TARGET > weather.py    a URL, a script, or a command

The module stands beside mcp_lite.py. Its functions have the names, hints and docstrings
of the tools, and take a connected Client first. Objects in arguments and results are
dataclasses. What no hint can say is Any: a result without an output schema, an object
that may have any members, a choice between several kinds of objects.

    import weather
    with Client("server.py") as client:
        print(weather.forecast(client, city="Oslo").days[0].wind)

The module does not check what it sends or receives: the server and the client do that,
by the schemas. Make it again when the server has changed. It passes `mypy --strict`.
"""

import argparse
import builtins
import json
import keyword
import os
import re
import sys
import textwrap
from collections import namedtuple

# mcp_lite.py is one folder up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from mcp_lite import (  # noqa: E402
    AuthorizationError,
    Client,
    McpError,
    Timeout,
    UnsupportedVersion,
    printable,
)

PLAIN = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
}
# Names that a generated module uses itself.
TAKEN = {*dir(builtins), *"Any Client Dict List Literal Optional Union".split()}
TAKEN |= {"annotations", "client", "cls", "dataclass", "given", "self", "wire"}
MAX_DEPTH = 20  # of objects inside objects; below that everything is Any
# The exit code for an exception is that of the first row that matches.
EXIT_CODES = (
    (AuthorizationError, 3),
    ((ConnectionError, Timeout, UnsupportedVersion), 4),
    (McpError, 5),
    (Exception, 1),
)

HEAD = '''\
"""The tools of the server {name} {version}, as functions. Made by stubs.py of mcp_lite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Literal, Optional, Union

from mcp_lite import Client

__all__ = [{public}]


def given(**members: Any) -> Dict[str, Any]:
    """Return the members that are not None: None stands for what is left out."""
    return {{name: each for name, each in members.items() if each is not None}}
'''

# A kind of value: its hint; and the code that makes it of what is on the wire, and that
# makes the wire's of it, with {} in the place of the value.
Kind = namedtuple("Kind", "hint read write", defaults=("{}", "{}"))
ANY = Kind("Any")


def identifier(text, taken):
    """Return a name for a text that Python takes, and that is not taken; take it."""
    name = re.sub(r"\W", "_", text, flags=re.ASCII) or "_"
    # Two underscores at the start of a member's name would be mangled.
    name = re.sub(r"^__+", "_", "_" + name if name[0].isdigit() else name)
    while name in taken or keyword.iskeyword(name):
        name += "_"
    taken.add(name)
    return name


def quoted(text):
    """Return a text as a literal, in one line."""
    return repr(str(text)).replace("{", "{{").replace("}", "}}")


def docstring(text, indent):
    """Return the lines of a docstring; a server's text cannot end it."""
    text = "".join(c if c.isprintable() or c == "\n" else " " for c in str(text))
    text = text.replace("\\", "\\\\").replace('"', '\\"').strip()
    text = textwrap.indent(textwrap.dedent(text), indent).strip()
    return f'{indent}"""{text}"""\n'


class Module:
    """Builds the text of a module."""

    def __init__(self):
        self.taken = set(TAKEN)
        self.classes = []
        # The Kinds of objects by what they were made of, so that the same object has
        # one class, and a schema may refer to itself.
        self.known = {}

    def kind(self, schema, name, root, depth=0):
        """Return the Kind of a schema.

        name: for its class, if it has one
        root: the whole schema, to which references point
        """
        if not isinstance(schema, dict) or depth > MAX_DEPTH:
            return ANY
        if "$ref" in schema:
            return self.referred(schema["$ref"], root, depth)
        for choice in ("anyOf", "oneOf"):
            if schema.get(choice):
                return self.union(schema[choice], name, root, depth)
        if len(schema.get("allOf") or ()) == 1 and "properties" not in schema:
            return self.kind(schema["allOf"][0], name, root, depth + 1)
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if values:
            fit = all(each is None or type(each) in (str, int, bool) for each in values)
            hint = ", ".join(map(repr, values))
            return Kind(f"Literal[{hint}]") if fit else ANY
        kinds = schema.get("type", "object" if "properties" in schema else None)
        if isinstance(kinds, list):
            each = [{**schema, "type": kind} for kind in kinds]
            return self.union(each, name, root, depth)
        if kinds == "array":
            return self.array(schema, name, root, depth)
        if kinds == "object":
            return self.object(schema, name, root, depth)
        return Kind(PLAIN[kinds]) if kinds in PLAIN else ANY

    def referred(self, pointer, root, depth):
        """Return the Kind that a reference into the same schema points to."""
        key = (id(root), pointer)
        if key in self.known:
            return self.known[key]
        place = root
        for part in str(pointer).lstrip("#").split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            place = place.get(part) if isinstance(place, dict) else None
        if not isinstance(place, dict) or not str(pointer).startswith("#/"):
            return ANY
        name = pointer.rpartition("/")[2]
        if "properties" in place:
            return self.object(place, name, root, depth)
        # What refers to itself without an object in between is Any.
        self.known[key] = ANY
        self.known[key] = self.kind(place, name, root, depth + 1)
        return self.known[key]

    def union(self, schemas, name, root, depth):
        """Return the Kind of a choice."""
        kinds = [self.kind(each, name, root, depth + 1) for each in schemas]
        kinds = list(dict.fromkeys(kinds))
        if ANY in kinds:
            return ANY
        others = [each for each in kinds if each.hint != "None"]
        converted = [each for each in others if each.read != "{}"]
        is_optional = len(others) < len(kinds)
        if len(others) == 1 and is_optional:
            (only,) = others
            if not converted:
                return Kind(f"Optional[{only.hint}]")
            return Kind(
                f"Optional[{only.hint}]",
                f"(None if {{0}} is None else {fill(only.read, '{0}')})",
                f"(None if {{0}} is None else {fill(only.write, '{0}')})",
            )
        if converted:
            return ANY
        return Kind(f"Union[{', '.join(each.hint for each in kinds)}]")

    def array(self, schema, name, root, depth):
        """Return the Kind of a list."""
        one = self.kind(schema.get("items"), f"{name}_item", root, depth + 1)
        if one.read == "{}":
            return Kind(f"List[{one.hint}]")
        # Lists in lists need names of their own.
        each = f"each{depth}"
        return Kind(
            f"List[{one.hint}]",
            f"[{fill(one.read, each)} for {each} in {{0}}]",
            f"[{fill(one.write, each)} for {each} in {{0}}]",
        )

    def object(self, schema, name, root, depth):
        """Return the Kind of an object: a dataclass, or a dict."""
        members = schema.get("properties")
        if not members:
            values = self.kind(
                schema.get("additionalProperties"), f"{name}_value", root, depth + 1
            )
            hint = values.hint if values.read == "{}" else "Any"
            return Kind(f"Dict[str, {hint}]")
        # A reference means something else elsewhere, and may lead back here.
        text = json.dumps([id(root), schema], sort_keys=True)
        if text in self.known:
            return self.known[text]
        title = "".join(word[:1].upper() + word[1:] for word in re.split(r"\W|_", name))
        taken = set(self.taken)
        cls = identifier(title or "Thing", taken)
        kind = Kind(cls, f"{cls}.from_wire({{0}})", "{0}.to_wire()")
        has_reference = '"$ref"' in text
        if has_reference:
            self.known[text] = kind
            self.taken.add(cls)
        used = set(TAKEN) | {"from_wire", "to_wire"}
        required = schema.get("required") or ()
        fields = []
        for wire in sorted(members, key=lambda each: each not in required):
            part = self.kind(members[wire], f"{name}_{wire}", root, depth + 1)
            fields.append((identifier(wire, used), wire, part, wire in required))
        # The same fields make the same class, be it of an argument or of a result.
        same = tuple(
            (wire, parameter(field, part, must), part.read)
            for field, wire, part, must in fields
        )
        if not has_reference and same in self.known:
            return self.known[same]
        self.taken.add(cls)
        self.known[same] = kind
        self.classes.append(class_text(cls, schema.get("description"), fields))
        return kind

    def function(self, tool):
        """Return the text of the function that calls a tool."""
        called = identifier(tool["name"], self.taken)
        schema = tool["inputSchema"]
        required = schema.get("required") or ()
        members = schema.get("properties") or {}
        taken = set(TAKEN)
        parameters = ["client: Client"]
        arguments = []
        for wire in sorted(members, key=lambda each: each not in required):
            part = self.kind(members[wire], f"{called}_{wire}", schema)
            name = identifier(wire, taken)
            parameters.append(parameter(name, part, wire in required))
            arguments.append((name, wire, part, wire in required))
        output = tool.get("outputSchema") or {}
        # The client unwraps {"result": value}.
        if list(output.get("properties") or ()) == ["result"]:
            inner = output["properties"]["result"]
            result = self.kind(inner, f"{called}_result", output)
        else:
            result = self.kind(output, f"{called}_result", output)
        text = f"\n\ndef {called}(\n    {', '.join(parameters)}\n) -> {result.hint}:\n"
        about = tool.get("description") or tool.get("title")
        text += docstring(about, "    ") if about else ""
        call = f"client.call({tool['name']!r}, {sent(arguments)})"
        if result == ANY:
            return text + f"    return {call}\n"
        text += f"    value: Any = {call}\n    result: {result.hint} = "
        return text + f"{fill(result.read, 'value')}\n    return result\n"


def fill(code, value):
    """Return the code that makes one value of another."""
    return code.replace("{0}", value).replace("{}", value)


def parameter(name, kind, is_required):
    """Return a parameter, or a field; one that may stay away has None by default."""
    if is_required:
        return f"{name}: {kind.hint}"
    is_wide = kind.hint == "Any" or kind.hint.startswith("Optional[")
    return f"{name}: {kind.hint if is_wide else f'Optional[{kind.hint}]'} = None"


def sent(members, owner=""):
    """Return the code that makes an object of the wire.

    members: (name, name on the wire, kind, is it required) each
    owner: what stands in front of the names
    """
    always = []
    others = []
    for name, wire, kind, is_required in members:
        value = fill(kind.write, owner + name)
        if is_required:
            always.append(f"{wire!r}: {value}")
            continue
        if kind.write != "{}" and not kind.hint.startswith("Optional["):
            value = f"(None if {owner}{name} is None else {value})"
        others.append(f"{wire!r}: {value}")
    if others:
        always.append(f"**given(**{{{', '.join(others)}}})")
    return "{" + ", ".join(always) + "}"


def class_text(name, about, fields):
    """Return the text of a dataclass."""
    lines = [f"\n\n@dataclass\nclass {name}:\n"]
    if about:
        lines.append(docstring(about, "    ") + "\n")
    made = []
    for field, wire, kind, is_required in fields:
        lines.append(f"    {parameter(field, kind, is_required)}\n")
        value = f"wire[{wire!r}]" if is_required else f"wire.get({wire!r})"
        read = fill(kind.read, value)
        if not is_required and kind.read != "{}" and "None if" not in kind.read:
            read = f"(None if {value} is None else {read})"
        made.append(f"{field}={read}")
    lines.append(
        f"\n    @classmethod\n    def from_wire(cls, wire: Any) -> {name}:\n"
        f"        return cls({', '.join(made)})\n"
        f"\n    def to_wire(self) -> Dict[str, Any]:\n"
        f"        return {sent(fields, 'self.')}\n"
    )
    return "".join(lines)


def module_text(info, tools):
    """Return the text of a module.

    info: what the server says of itself
    tools: its tools, as in tools/list
    """
    module = Module()
    functions = [module.function(tool) for tool in tools]
    code = "".join([*module.classes, *functions])
    public = re.findall(r"^(?:def|class) (\w+)", code, re.MULTILINE)
    shown = [docstring(info.get(each) or "", "")[3:-4] for each in ("name", "version")]
    head = HEAD.format(
        name=shown[0].replace("\n", " "),
        version=shown[1].replace("\n", " "),
        public=", ".join(map(repr, public)),
    )
    return head + code


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.error = lambda why: sys.exit(f"stubs: {why}; see --help")
    parser.add_argument("target", nargs="+", help="a URL, a script, or a command")
    options = parser.parse_args()
    target = options.target if options.target[1:] else options.target[0]
    try:
        # The server may need variables that a host has set, such as a key.
        with Client(target, env=dict(os.environ)) as client:
            text = module_text(client.server_info, client.list_tools())
    except (McpError, OSError, ValueError) as error:
        code = next(code for kind, code in EXIT_CODES if isinstance(error, kind))
        parser.exit(code, printable(f"stubs: {error}") + "\n")
    # Python reads a module as UTF-8, whatever the encoding of this terminal.
    with open(1, "w", encoding="utf-8", closefd=False) as file:
        file.write(text)


if __name__ == "__main__":
    main()
