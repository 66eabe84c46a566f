"""An HTTP API as tools: a server made of an OpenAPI 3 document.

Teaches: tools that a program makes, with schemas of their own (input_schema=), from a
description of something else; and what is kept from a model's hands: where requests go,
and the credentials that they carry.

Run: python3 examples/openapi.py DOCUMENT [--base URL] [--header K:V] [--only GLOB]
serves on stdio; with bridge.py in front, at a URL.
DOCUMENT is a file or a URL: JSON, or YAML where PyYAML is installed. Each operation is
a tool; with --only "get_*", those of such names; names that are the same once they are
cut to 64 characters get a number. Of hundreds of tools a model need not read all: see
agent.py. An operation that wants an upload (multipart/form-data), or that
refers to another document, is left out, which is said; cookies are not sent.
"""

import argparse
import fnmatch
import importlib
import json
import os
import re
import sys
import urllib.error
import urllib.request
from urllib.parse import quote, urlencode, urljoin

# mcp_lite.py is one folder up.
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from mcp_lite import EmbeddedResource, Image, Server, ToolError  # noqa: E402

# The methods, and what a client may take for granted of them.
HINTS = {
    "get": {"readOnlyHint": True},
    "put": {"idempotentHint": True},
    "delete": {"destructiveHint": True, "idempotentHint": True},
    "post": {},
    "patch": {},
}
SEPARATORS = {"spaceDelimited": " ", "pipeDelimited": "|"}
FORM = "application/x-www-form-urlencoded"
# Kinds of bodies that an argument can become; the first that an operation takes is used.
BODIES = re.compile(r".*\bjson\b.*|" + FORM + "|text/plain")


# The document ########################################################################


def load(source):
    """Return the document in a file or at a URL. Raises OSError and ValueError."""
    if not re.match("https?://", source):
        source = "file://" + quote(os.path.abspath(source))
    with urllib.request.urlopen(source, timeout=60) as file:
        text = file.read().decode("utf-8-sig")
    return (
        json.loads(text)
        if text.lstrip()[:1] == "{"
        else importlib.import_module("yaml").safe_load(text)
    )


def find(document, item):
    """Return what an item refers to, as "#/components/x" does. Raises KeyError."""
    while "$ref" in item:
        steps = item["$ref"].split("/")
        item = {"#": document}
        for step in steps:
            item = item[step.replace("~1", "/").replace("~0", "~")]
    return item


def convert(document, node, definitions):
    """Return a schema as JSON Schema has it; `definitions` gets what it refers to."""
    if isinstance(node, list):
        return [convert(document, each, definitions) for each in node]
    if not isinstance(node, dict):
        return node
    if isinstance(node.get("$ref"), str):
        name = node["$ref"].rpartition("/")[2]
        if name not in definitions:
            # First its place: it may refer to itself.
            definitions[name] = {}
            definitions[name] = convert(document, find(document, node), definitions)
        return {"$ref": f"#/$defs/{name}"}
    # OpenAPI 3.0 has two ways of its own: "exclusiveMinimum": true beside a minimum, and
    # "nullable". 3.1 has what JSON Schema has.
    converted = {
        key: convert(document, value, definitions)
        for key, value in node.items()
        if not (key.startswith("exclusive") and isinstance(value, bool))
    }
    return (
        {"anyOf": [converted, {"type": "null"}]}
        if node.get("nullable") is True
        else converted
    )


class Operation:
    """One operation of a document: the schema of its arguments, and their request.

    Raises ValueError or KeyError for one that is not supported.
    """

    def __init__(self, document, path, method):
        self.path = path
        self.method = method
        self.about = document["paths"][path][method]
        # Of two with one name and one place, the operation's own comes last, and counts.
        known = {
            (each["name"], each["in"]): each
            for owner in (document["paths"][path], self.about)
            for each in [find(document, each) for each in owner.get("parameters", ())]
            if each["in"] != "cookie" and each["name"].lower() != "authorization"
        }
        body = find(document, self.about.get("requestBody", {}))
        content = body.get("content", {})
        self.kind = next(filter(BODIES.match, content), None)
        if self.kind is not None:
            known["body", "body"] = {**body, **content[self.kind], "in": "body"}
        elif content:
            raise ValueError(f"its body is {', '.join(content)}")
        # Where each argument goes. An `id` in the path and one in the query, say, are
        # the arguments `id_path` and `id_query`.
        names = [name for name, _ in known]
        self.places = {
            name if names.count(name) == 1 else f"{name}_{place}": each
            for (name, place), each in known.items()
        }
        if len(self.places) < len(known):
            raise ValueError(f"its arguments cannot be told apart: {', '.join(names)}")
        definitions = {}
        properties = {
            name: {
                **convert(document, place.get("schema", {}), definitions),
                **{key: place[key] for key in ("description",) if key in place},
            }
            for name, place in self.places.items()
        }
        self.schema = {
            "type": "object",
            "properties": properties,
            "required": [n for n, each in self.places.items() if each.get("required")],
            **({"$defs": definitions} if definitions else {}),
        }

    def request(self, base, headers, arguments):
        """Return the request that these arguments make. Raises ToolError."""
        path = self.path
        query = []
        headers = dict(headers)
        data = None
        for name, value in arguments.items():
            place = self.places[name]
            if place["in"] == "body":
                data = encode_body(self.kind, value)
                headers["Content-Type"] = self.kind
                continue
            pairs = spread(place, value)
            if place["in"] == "query":
                query += pairs
            elif place["in"] == "header":
                headers.update(pairs)
            elif pairs[0][1] in ("", ".", ".."):
                raise ToolError(f"{name}: {value!r} cannot be a part of a path")
            else:
                path = path.replace(f"{{{place['name']}}}", quote(pairs[0][1], safe=""))
        url = f"{base.rstrip('/')}{path}{'?' if query else ''}{urlencode(query)}"
        return urllib.request.Request(url, data, headers, method=self.method.upper())


def spread(place, value):
    """Return a parameter's value as [(name, text)]: one pair, or several in a query."""
    name = place["name"]
    style = place.get("style", "form" if place["in"] == "query" else "simple")
    is_exploded = place["in"] == "query" and place.get("explode", style == "form")
    if isinstance(value, dict) and (is_exploded or style == "deepObject"):
        pattern = "{0}[{1}]" if style == "deepObject" else "{1}"
        return [(pattern.format(name, key), text_of(value[key])) for key in value]
    if isinstance(value, dict):
        value = [part for pair in value.items() for part in pair]
    if isinstance(value, list) and is_exploded:
        return [(name, text_of(each)) for each in value]
    if isinstance(value, list):
        value = SEPARATORS.get(style, ",").join(map(text_of, value))
    return [(name, text_of(value))]


def text_of(value):
    return value if isinstance(value, str) else json.dumps(value)


def encode_body(kind, value):
    if kind == FORM:
        return urlencode({key: text_of(value[key]) for key in value}).encode()
    return (json.dumps(value) if "json" in kind else text_of(value)).encode()


# The server ##########################################################################


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Another place must not get the credentials."""

    def redirect_request(self, *_):
        return None


def send(request):
    """Return what comes back. Raises ToolError for a refusal, OSError without one."""
    try:
        with urllib.request.build_opener(NoRedirects).open(
            request, timeout=60
        ) as reply:
            data = reply.read()
            kind = reply.headers.get_content_type()
    except urllib.error.HTTPError as error:
        # The model reads why, and may try again.
        text = error.read(2000).decode("utf-8", "replace")
        raise ToolError(f"HTTP {error.code} {error.reason}: {text}") from None
    if kind.endswith("json"):
        return json.loads(data or "null")
    if kind.startswith("image/"):
        return Image(data, mime_type=kind)
    if kind.startswith("text/") or not data:
        return data.decode("utf-8", "replace")
    return EmbeddedResource(request.full_url, data, mime_type=kind)


def build_server(document, base, headers=(), only="*"):
    """Return a server with a tool for each operation of a document."""
    info = document["info"]
    server = Server(info["title"], info["version"], description=info.get("description"))
    names = set()
    for path, item in document["paths"].items():
        for method in sorted(item.keys() & HINTS.keys()):
            name = item[method].get("operationId", f"{method}{path}")
            name = re.sub("[^A-Za-z0-9_-]+", "_", name).strip("_")[:64]
            if name in names:
                name = f"{name[:58]}_{len(names)}"
            names.add(name)
            try:
                if fnmatch.fnmatch(name, only):
                    add_tool(
                        server, name, Operation(document, path, method), base, headers
                    )
            except (KeyError, ValueError) as error:
                print(f"without {name}: {error!r}", file=sys.stderr)
    return server


def add_tool(server, name, operation, base, headers):
    server.add_tool(
        lambda **arguments: send(operation.request(base, headers, arguments)),
        name=name,
        title=operation.about.get("summary"),
        description=operation.about.get("description"),
        annotations=HINTS[operation.method],
        input_schema=operation.schema,
    )


def main():
    parser = argparse.ArgumentParser(description="An HTTP API as tools.")
    parser.add_argument("document", help="an OpenAPI document: a file, or a URL")
    parser.add_argument("--base", help="where the API is; else the document says so")
    parser.add_argument(
        "--header",
        action="append",
        type=lambda text: re.split(r":\s*", text, maxsplit=1),
        default=[],
        metavar="NAME:VALUE",
    )
    parser.add_argument("--only", default="*", metavar="GLOB", help="names of tools")
    asked = parser.parse_args()
    document = load(asked.document)
    base = asked.base or urljoin(asked.document, document["servers"][0]["url"])
    build_server(document, base, asked.header, asked.only).run()


if __name__ == "__main__":
    main()
