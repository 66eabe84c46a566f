"""Turns an HTTP API into tools: builds a server from an OpenAPI 3 document.

Teaches: how to register tools from a description, each with a schema of its own
(input_schema=); and what a model must not control: the destination of requests, and the
credentials in them.

Run: python3 examples/openapi.py DOCUMENT [--base URL] [--header K:V] [--only GLOB]
serves on stdio; with --http [HOST:]PORT at a URL.
DOCUMENT is a file or a URL: JSON, or YAML if PyYAML is installed. Each operation is a
tool; --only "get_*" selects tools by name. Names are cut to 64 characters, and numbered
if that makes them equal. For an API with hundreds of tools, see how agent.py searches.

A tool sends exactly what the document describes. An operation that needs anything
unsupported is left out, and stderr says why: uploads (multipart/form-data), required
cookies, references that lead nowhere or out of the document's folder, and styles for
which the specification does not define how a value is sent. If a style cannot express a
value, the call fails and nothing is sent. Requests go to http and https URLs only; --base
replaces the document's servers. Headers given by --header are sent to that origin alone,
and no argument of a model can replace them.
"""

import argparse
import datetime
import fnmatch
import importlib
import json
import os
import re
import sys
import urllib.error
import urllib.request
from contextlib import suppress
from http.client import HTTPException
from urllib.parse import quote, unquote, urljoin, urlsplit

# mcp_lite.py is in this folder, or one up.
sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from mcp_lite import (  # noqa: E402
    Audio,
    EmbeddedResource,
    Image,
    Server,
    ToolError,
    printable,
    validate,
)

# The supported methods, with the annotations of their tools.
HINTS = {
    "get": {"readOnlyHint": True},
    "put": {"idempotentHint": True},
    "delete": {"destructiveHint": True, "idempotentHint": True},
    "post": {},
    "patch": {},
}
OTHER_METHODS = ("head", "options", "trace", "query", "additionalOperations")
MAX_DOCUMENT = 64 << 20  # bytes
MAX_REPLY = 10 << 20  # bytes
MAX_DEPTH = 200  # of a document's values
MAX_NODES = 100_000  # values in the schemas of one operation

# "If `in` is "header" and the `name` field is "Accept", "Content-Type" or
# "Authorization", the parameter definition SHALL be ignored."
IGNORED_HEADERS = ("accept", "content-type", "authorization")
# Headers that control where a request goes, how it is framed, and who sends it.
OUR_HEADERS = re.compile(
    "host|content-length|transfer-encoding|connection|cookie|te|trailer|upgrade|expect"
    "|keep-alive|proxy-.*",
    re.IGNORECASE,
)
JSON_KIND = re.compile(r"[^;]*[/+]json *(;.*)?|\*/\*|application/\*", re.IGNORECASE)
FORM_KIND = re.compile(r"application/x-www-form-urlencoded *(;.*)?", re.IGNORECASE)
TEXT_KIND = re.compile(r"text/plain *(;.*)?", re.IGNORECASE)
# The media types of replies that are text.
TEXTS = re.compile(
    r"text/.*|.*[/+-](xml|yaml|javascript|json.*|ndjson|jsonl|.*urlencoded)"
)


# The document ########################################################################


def load(source):
    """Return (document, its location) of a file or a URL. Raises OSError, ValueError."""
    if re.match("https?://", source):
        with urllib.request.urlopen(source, timeout=60) as file:
            return parse(file.read(MAX_DOCUMENT), source), file.url
    path = os.path.realpath(source)
    with open(path, "rb") as file:
        return parse(file.read(MAX_DOCUMENT), source), path


def parse(data, source):
    """Return the document in a file's bytes. Raises ValueError."""
    text = data.decode("utf-8-sig")
    try:
        if text.lstrip().startswith(("{", "[")):
            document = json.loads(text)
        else:
            document = read_yaml(importlib.import_module("yaml"), text)
    except ImportError:
        raise ValueError(f"{source}: to read YAML, install PyYAML") from None
    except RecursionError:
        raise ValueError(f"{source}: it is nested too deeply") from None
    except Exception as error:
        # PyYAML's errors are not ValueErrors.
        raise ValueError(f"{source}: neither JSON nor YAML: {error}") from None
    if not isinstance(document, dict):
        raise ValueError(f"{source}: expected an object")
    return document


def read_yaml(yaml, text):
    """Return the value of a text in YAML, as YAML 1.2 and JSON understand it.

    PyYAML reads YAML 1.1, in which `no` is false and 2024-05-01 is a date.
    """

    base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):
        yaml_implicit_resolvers = {
            first: [
                (tag, pattern)
                for tag, pattern in resolvers
                if not tag.endswith((":bool", ":timestamp", ":int"))
            ]
            for first, resolvers in base.yaml_implicit_resolvers.items()
        }

    words = re.compile("(true|True|TRUE|false|False|FALSE)$")
    Loader.add_implicit_resolver("tag:yaml.org,2002:bool", words, list("tTfF"))
    digits = re.compile("[-+]?[0-9]+$")
    Loader.add_implicit_resolver("tag:yaml.org,2002:int", digits, list("-+0123456789"))
    # In YAML 1.1, a leading zero makes a number octal.
    Loader.add_constructor(
        "tag:yaml.org,2002:int", lambda loader, node: int(node.value)
    )
    return yaml.load(text, Loader)


def as_json(value, known=None, depth=0):
    """Return the value of a YAML reader as JSON has it: keys and dates are texts.

    known: what has been converted already. What YAML has in several places at once, the
        result has, too
    """
    known = {} if known is None else known
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if not isinstance(value, (dict, list)):
        return value
    if depth > MAX_DEPTH:
        raise ValueError("it is nested too deeply")
    if id(value) not in known:
        made = [] if isinstance(value, list) else {}
        # A value that contains itself is found here, unfinished.
        known[id(value)] = None
        if isinstance(value, list):
            made += [as_json(each, known, depth + 1) for each in value]
        else:
            for key, each in value.items():
                name = key if isinstance(key, str) else json.dumps(key, default=str)
                made[name] = as_json(each, known, depth + 1)
        known[id(value)] = made
    if known[id(value)] is None:
        raise ValueError("a part of it contains itself")
    return known[id(value)]


class Document:
    """A document, with the files beside it that it refers to.

    location: its URL or real path; None for a document made by a program
    """

    def __init__(self, content, location=None, files=None):
        self.content = as_json(content)
        self.location = location
        # Path -> Document, shared by all of these; None if no file may be read.
        self.files = files
        is_file = location is not None and "://" not in location
        if files is None and is_file:
            self.files = {location: self}

    def find(self, item):
        """Return (document, item) of what an item refers to, or of the item itself.

        A summary or a description beside a reference replaces the other one. Raises
        ValueError.
        """
        document = self
        seen = []
        words = {}
        while isinstance(item, dict) and isinstance(item.get("$ref"), str):
            for name in ("summary", "description"):
                if name in item:
                    words.setdefault(name, item[name])
            place = document.locate(item["$ref"])
            if place in seen:
                raise ValueError(f"the reference {item['$ref']} leads to itself")
            seen.append(place)
            document, pointer = place
            item = document.look_up(pointer)
        if words and isinstance(item, dict):
            item = {**item, **words}
        return document, item

    def locate(self, reference):
        """Return (document, pointer) of a reference, such as "pets.yaml#/Pet"."""
        name, _, pointer = reference.partition("#")
        if not name:
            return self, pointer
        if self.files is None or "://" in name or name.startswith(("/", "\\")):
            raise ValueError(f"it refers to another document, {reference}")
        folder = os.path.dirname(next(iter(self.files)))
        path = os.path.realpath(
            os.path.join(os.path.dirname(self.location), unquote(name))
        )
        if not path.startswith(os.path.join(folder, "")):
            raise ValueError(f"it refers to {reference}, which is outside of {folder}")
        if path not in self.files:
            try:
                content, _ = load(path)
            except OSError as error:
                raise ValueError(f"it refers to {reference}: {error}") from None
            self.files[path] = Document(content, path, self.files)
        return self.files[path], pointer

    def look_up(self, pointer):
        item = self.content
        for step in pointer.split("/")[1:]:
            key = unquote(step).replace("~1", "/").replace("~0", "~")
            try:
                item = item[int(key) if isinstance(item, list) else key]
            except (KeyError, IndexError, TypeError, ValueError):
                raise ValueError(
                    f"it refers to #{pointer}, which is not there"
                ) from None
        return item


# Schemas #############################################################################

# Keywords whose value is a schema, an object of schemas, or a list of schemas.
ONE = (
    *("items", "additionalProperties", "contains", "propertyNames", "not", "if"),
    *("then", "else", "unevaluatedItems", "unevaluatedProperties"),
)
NAMED = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
LISTED = ("allOf", "anyOf", "oneOf", "prefixItems")
# Keywords that do not constrain a value.
NOT_SENT = ("discriminator", "xml", "externalDocs", "example", "$schema", "$id")


class Schemas:
    """Converts the schemas of one operation, and collects the schemas they refer to."""

    def __init__(self):
        self.definitions = {}
        # (document, pointer) -> the name of its definition
        self.names = {}
        # The number of values so far.
        self.size = 0

    def convert(self, document, node):
        """Return a schema as JSON Schema has it. Raises ValueError."""
        if not isinstance(node, dict):
            return node if isinstance(node, bool) else {}
        self.size += 1 + len(node)
        if self.size > MAX_NODES:
            raise ValueError("its schemas are too large")
        if isinstance(node.get("$ref"), str):
            # OpenAPI 3.1 allows more members beside a reference, and 3.0 none.
            beside = {key: node[key] for key in node if key not in ("$ref", "nullable")}
            name = self.define(document, node)
            return {"$ref": f"#/$defs/{name}", **self.convert(document, beside)}
        schema = {}
        for key, value in node.items():
            if key in NAMED and isinstance(value, dict):
                schema[key] = {
                    name: self.convert(document, each) for name, each in value.items()
                }
            elif key in LISTED and isinstance(value, list):
                schema[key] = [self.convert(document, each) for each in value]
            elif key in ONE:
                schema[key] = self.convert(document, value)
            elif key not in NOT_SENT and not key.startswith("x-"):
                schema[key] = value
        self.drop_read_only(document, node, schema)
        return mend(schema)

    def define(self, document, node):
        """Return the name of the definition that a reference leads to."""
        place = document.locate(node["$ref"])
        if place not in self.names:
            # Two files, or two places in one, may have schemas of the same name.
            last = unquote(place[1].rpartition("/")[2]) or os.path.basename(
                place[0].location or "document"
            )
            name = re.sub("[^A-Za-z0-9_.-]", "_", last)
            while name in self.definitions:
                name += "_"
            # The schema may refer to itself, so its name is noted first.
            self.names[place] = name
            self.definitions[name] = {}
            self.definitions[name] = self.convert(*document.find(node))
        return self.names[place]

    def drop_read_only(self, document, node, schema):
        """Leave out read-only members, which "SHOULD NOT be sent as part of the request".
        `required` then counts for the response only."""
        properties = node.get("properties")
        if not isinstance(properties, dict):
            return
        for name, each in properties.items():
            _, found = document.find(each)
            if not isinstance(found, dict) or found.get("readOnly") is not True:
                continue
            del schema["properties"][name]
            if isinstance(schema.get("required"), list):
                schema["required"] = [r for r in schema["required"] if r != name]


def mend(schema):
    """Return a schema of OpenAPI 3.0 as JSON Schema. Those of 3.1 are JSON Schema."""
    for limit in ("minimum", "maximum"):
        exclusive = f"exclusive{limit.title()}"
        # "exclusiveMinimum": true stands beside a minimum.
        is_flag = isinstance(schema.get(exclusive), bool)
        if is_flag and schema.pop(exclusive) and limit in schema:
            schema[exclusive] = schema.pop(limit)
    if "required" in schema and not isinstance(schema["required"], list):
        # In Swagger 1, it was true or false.
        del schema["required"]
    try:
        validate("", {"pattern": schema.get("pattern", "")})
    except ValueError:
        # It is not a valid pattern. The API checks the value itself.
        del schema["pattern"]
    if schema.get("nullable") is True:
        return {"anyOf": [schema, {"type": "null"}]}
    return schema


def kind_of(document, schema):
    """Return the type of a schema: "array", "object", another, or None."""
    _, found = document.find(schema)
    kind = found.get("type") if isinstance(found, dict) else None
    if isinstance(kind, list):
        kind = next((each for each in kind if each != "null"), None)
    return kind


# The operations ######################################################################


class Operation:
    """One operation of a document: the schema of its arguments, and its requests.

    Raises ValueError for one that is not supported.
    headers: the operator's, which are not for the model to give
    base: the URL that replaces the document's servers, or None
    """

    def __init__(self, document, path, item, method, headers=(), base=None):
        item_document, self.item = document.find(item)
        about_document, self.about = item_document.find(self.item[method])
        if not isinstance(self.about, dict):
            raise ValueError("it is not an object")
        # Some documents distinguish paths by a fragment, which is not sent.
        self.path = path = path.partition("#")[0]
        self.method = method
        self.notes = []
        if not path.startswith("/"):
            raise ValueError("its path does not begin with /")
        self.base = choose_base(document, self.item, self.about, base)
        own_headers = {name.lower() for name in dict(headers)}
        # Of two parameters with the same name and place, the operation's own counts.
        known = {}
        for owner, given in (
            (item_document, self.item.get("parameters")),
            (about_document, self.about.get("parameters")),
        ):
            for reference in given or ():
                where, parameter = owner.find(reference)
                known[str(parameter["name"]), parameter["in"]] = (where, parameter)
        known = {
            key: Parameter(where, parameter)
            for key, (where, parameter) in known.items()
            if self.is_for_the_model(parameter, own_headers)
        }
        body = self.find_body(about_document)
        if body is not None:
            known["body", "body"] = body
        wanted = set(re.findall(r"\{([^{}]*)\}", path))
        given = {name for name, place in known if place == "path"}
        if wanted != given:
            odd = ", ".join(sorted(wanted ^ given))
            raise ValueError(f"its path and its parameters do not match: {odd}")
        # Where each argument goes. An `id` in the path and one in the query, say, are
        # the arguments `id_path` and `id_query`.
        names = [name for name, _ in known]
        self.places = {
            name if names.count(name) == 1 else f"{name}_{place}": each
            for (name, place), each in known.items()
        }
        if len(self.places) < len(known):
            raise ValueError(f"its arguments cannot be told apart: {', '.join(names)}")
        schemas = Schemas()
        properties = {
            name: place.convert(schemas) for name, place in self.places.items()
        }
        self.schema = {
            "type": "object",
            "properties": properties,
            "required": [n for n, each in self.places.items() if each.is_required],
            **({"$defs": schemas.definitions} if schemas.definitions else {}),
        }

    def is_for_the_model(self, parameter, own_headers):
        """Return whether a parameter becomes an argument. Raises ValueError if it does
        not, but is required."""
        name, place = str(parameter["name"]), parameter["in"]
        if place == "header" and name.lower() in (*IGNORED_HEADERS, *own_headers):
            return False
        is_refused = place == "cookie" or (
            place == "header" and OUR_HEADERS.fullmatch(name)
        )
        if is_refused and parameter.get("required"):
            raise ValueError(f"it requires the {place} {name}")
        if is_refused:
            self.notes.append(f"the {place} {name} is not sent")
        return not is_refused

    def find_body(self, document):
        """Return the operation's Body, or None if it has no body."""
        document, body = document.find(self.about.get("requestBody") or {})
        content = body.get("content") or {}
        for kind, media in content.items():
            for pattern, body_class in BODIES.items():
                if pattern.fullmatch(kind):
                    return body_class(document, kind, media or {}, body)
        if content:
            raise ValueError(f"its body is {', '.join(content)}")
        return None

    def describe(self):
        """Return the description for the model, which is never empty."""
        for owner in (self.about, self.item):
            for name in ("description", "summary"):
                if isinstance(owner.get(name), str) and owner[name].strip():
                    return owner[name]
        return f"{self.method.upper()} {self.path}"

    def request(self, base, headers, arguments):
        """Return the request for these arguments. Raises ToolError.

        base, headers: the operator's. Another origin gets none of these headers.
        """
        path = self.path
        query = []
        own = dict(headers) if origin_of(self.base) == origin_of(base) else {}
        data = None
        for name, value in arguments.items():
            place = self.places[name]
            try:
                if value is None and place.where != "body":
                    # null has no text; it means that there is no value.
                    if place.is_required:
                        raise ToolError("null cannot be sent")
                    continue
                if place.where == "body":
                    data = place.encode(value)
                    own["Content-Type"] = place.kind
                elif place.where == "query":
                    query += place.spread(value)
                elif place.where == "header":
                    own[place.name] = place.join(value)
                else:
                    path = path.replace(f"{{{place.name}}}", place.join(value))
            except ToolError as error:
                raise ToolError(f"{name}: {error}") from None
        if set(path.split("?")[0].split("/")) & {".", ".."} or "{" in path:
            raise ToolError(f"{path!r} cannot be a path")
        url = self.base.rstrip("/") + path
        if query:
            url += ("&" if "?" in path else "?") + "&".join(query)
        return urllib.request.Request(url, data, own, method=self.method.upper())


def text_of(value):
    """Return a text, a number or a boolean as it is written in a request."""
    if isinstance(value, (list, dict)):
        raise ToolError("a list or an object inside it cannot be sent")
    if isinstance(value, float) and value.is_integer():
        # In JSON Schema, 5.0 is an integer, but in a URL, an API expects 5.
        value = int(value)
    return value if isinstance(value, str) else json.dumps(value)


def encode_query(text, is_reserved_allowed=False):
    """Return a text encoded for a query. Characters with a meaning there are always
    encoded, so that a value cannot add a parameter."""
    return quote(text, safe="-._~" + (":/?@!$'()*,;" if is_reserved_allowed else ""))


SEPARATORS = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}


class Parameter:
    """A parameter in a path, a query or a header. Raises ValueError.

    The styles are those of the specification's table, "Style Examples".
    """

    STYLES = {
        "path": ("simple", "label", "matrix"),
        "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
        "header": ("simple",),
    }

    def __init__(self, document, about):
        self.document = document
        self.about = about
        self.name = str(about["name"])
        self.where = about["in"]
        self.is_required = about.get("required") is True or self.where == "path"
        if self.where not in self.STYLES:
            raise ValueError(f"its parameter {self.name} is in the {self.where}")
        self.style = about.get("style") or self.STYLES[self.where][0]
        self.is_exploded = about.get("explode", self.style in ("form", "deepObject"))
        self.schema = about.get("schema", {})
        # "A parameter MUST contain either a `schema` property, or a `content` property"
        self.is_json = False
        if about.get("content"):
            ((kind, media),) = about["content"].items()
            if not JSON_KIND.fullmatch(kind):
                raise ValueError(f"its parameter {self.name} is {kind}")
            self.schema = (media or {}).get("schema", {})
            self.is_json = True
        elif self.style not in self.STYLES[self.where]:
            raise ValueError(
                f"its parameter {self.name} in the {self.where} is in style {self.style}"
            )
        elif self.is_required:
            self.check(kind_of(document, self.schema))

    def check(self, kind):
        """Raise ValueError for a type of value that the style cannot express."""
        is_unclear = kind in ("array", "object") and (
            # One edition of the specification has "." between the parts, another ",".
            (self.style == "label" and not self.is_exploded)
            or (self.style in ("spaceDelimited", "pipeDelimited") and self.is_exploded)
            or (self.style == "deepObject" and kind == "array")
        )
        if is_unclear:
            raise ValueError(
                f"{self.name}: the specification does not say how an {kind} is sent in "
                f"style {self.style}"
            )

    def convert(self, schemas):
        """Return its schema, for the model."""
        schema = schemas.convert(self.document, self.schema)
        if self.about.get("description"):
            schema = {**schema, "description": self.about["description"]}
        return schema

    def parts(self, value, encode, separator):
        """Return the parts of a list or an object, encoded. Raises ToolError.

        separator: will stand between the parts, so none of them may contain it
        """
        if not isinstance(value, dict):
            parts = [encode(text_of(each)) for each in value]
        else:
            pairs = [
                (encode(key), encode(text_of(each))) for key, each in value.items()
            ]
            parts = ["=".join(pair) for pair in pairs]
            if not self.is_exploded:
                parts = [part for pair in pairs for part in pair]
        if any(separator in part for part in parts):
            raise ToolError(f"a part of it has {unquote(separator)!r}")
        return parts

    def join(self, value):
        """Return a value as one text, for a path or a header. Raises ToolError."""
        encode = str if self.where == "header" else lambda text: quote(text, safe="")
        if self.is_json:
            return encode(json.dumps(value))
        self.check_value(value)
        first = {"simple": "", "label": ".", "matrix": ";"}[self.style]
        if not isinstance(value, (list, dict)):
            text = encode(text_of(value))
            if self.style == "matrix":
                return f";{self.name}={text}" if text else f";{self.name}"
            if self.where == "path" and text in ("", ".", ".."):
                raise ToolError(f"{value!r} cannot be a part of a path")
            return first + text
        between = first if self.is_exploded and first else ","
        parts = self.parts(value, encode, between)
        if not parts:
            raise ToolError("expected a value that is not empty")
        if self.style == "matrix" and not self.is_exploded:
            return f";{self.name}={','.join(parts)}"
        if self.style == "matrix" and isinstance(value, list):
            parts = [f"{self.name}={part}" for part in parts]
        text = first + between.join(parts)
        if text in (".", ".."):
            raise ToolError(f"{value!r} cannot be a part of a path")
        return text

    def spread(self, value):
        """Return a value as [NAME=TEXT], for a query or a form. Raises ToolError."""
        is_reserved_allowed = self.about.get("allowReserved") is True

        def encode(text):
            return encode_query(text, is_reserved_allowed)

        name = encode_query(self.name)
        if self.is_json:
            return [f"{name}={encode_query(json.dumps(value))}"]
        self.check_value(value)
        if not isinstance(value, (list, dict)):
            return [f"{name}={encode(text_of(value))}"]
        if self.style == "deepObject":
            return [
                f"{name}{encode_query(keys)}={encode(text)}"
                for keys, text in deep_pairs(value)
            ]
        if not value:
            # By RFC 6570, an empty list counts as no value.
            return []
        if not self.is_exploded:
            separator = SEPARATORS.get(self.style, ",")
            return [f"{name}={separator.join(self.parts(value, encode, separator))}"]
        if isinstance(value, dict):
            return self.parts(value, encode, "&")
        return [f"{name}={part}" for part in self.parts(value, encode, "&")]

    def check_value(self, value):
        kind = {list: "array", dict: "object"}.get(type(value))
        try:
            self.check(kind)
        except ValueError as error:
            raise ToolError(str(error)) from None


def deep_pairs(value, keys=""):
    """Yield ("[a][b]", text) for each text in an object, and in the objects inside."""
    for key, each in value.items():
        place = f"{keys}[{key}]"
        if isinstance(each, dict):
            yield from deep_pairs(each, place)
        else:
            yield place, text_of(each)


class Body:
    """A body that is JSON. Raises ValueError for one that cannot be sent."""

    where = "body"

    def __init__(self, document, kind, media, about):
        self.document = document
        # For a wildcard, send JSON.
        self.kind = kind if "*" not in kind else "application/json"
        self.media = media
        self.about = about
        self.schema = media.get("schema", {})
        self.is_required = about.get("required") is True

    convert = Parameter.convert

    def encode(self, value):
        """Return the bytes of a value. Raises ToolError."""
        return json.dumps(value).encode()


class TextBody(Body):
    def encode(self, value):
        return text_of(value).encode()


class FormBody(Body):
    """A body that is a form. `encoding` says how a member is sent; without it, a list is
    sent as several members, and an object as JSON."""

    def __init__(self, document, kind, media, about):
        super().__init__(document, kind, media, about)
        encoding = media.get("encoding") or {}
        self.fields = {}
        for name, each in encoding.items():
            self.fields[name] = self.field(name, each or {})

    def field(self, name, encoding):
        styled = {
            key: encoding[key]
            for key in ("style", "explode", "allowReserved")
            if key in encoding
        }
        # "If `style` or the like is given, `contentType` is ignored."
        if not styled and "contentType" in encoding:
            kind = encoding["contentType"]
            if JSON_KIND.fullmatch(kind):
                styled = {"content": {kind: {}}}
            elif not TEXT_KIND.fullmatch(kind):
                raise ValueError(f"its body's member {name} is {kind}")
        return Parameter(self.document, {"name": name, "in": "query", **styled})

    def encode(self, value):
        if not isinstance(value, dict):
            raise ToolError("expected an object")
        pairs = []
        for name, each in value.items():
            if each is None:
                continue
            if name in self.fields:
                pairs += self.fields[name].spread(each)
                continue
            plain = Parameter(self.document, {"name": name, "in": "query"})
            several = each if isinstance(each, list) else [each]
            for one in several:
                if isinstance(one, (list, dict)):
                    one = json.dumps(one)
                pairs += plain.spread(one)
        # A form has "+" for a space.
        return "&".join(pairs).replace("%20", "+").encode()


# The supported types of bodies. The first one that an operation accepts is used.
BODIES = {JSON_KIND: Body, FORM_KIND: FormBody, TEXT_KIND: TextBody}


# Where requests go ###################################################################


def origin_of(url):
    parts = urlsplit(url)
    return parts.scheme.lower(), parts.netloc.lower()


def choose_base(document, item, about, base):
    """Return the URL of an operation's server: its own, its path's, or the document's,
    which `base` replaces. Raises ValueError."""
    shared = document.content.get("servers")
    own = about.get("servers") or item.get("servers") or shared
    # Some documents repeat their servers beside each path.
    if own != shared:
        return check_base(server_url(own, document_url(document) or base or ""))
    return check_base(base or find_base(document))


def document_url(document):
    """Return the URL that a document came from; "" for one of a file."""
    is_url = re.match("https?://", document.location or "")
    return document.location if is_url else ""


def find_base(document):
    """Return the URL of the document's server. Raises ValueError."""
    # "default value would be a Server Object with a url value of /"
    servers = document.content.get("servers") or [{"url": "/"}]
    return check_base(server_url(servers, document_url(document)))


def server_url(servers, around):
    """Return the URL of the first server. Its variables get their defaults."""
    server = servers[0]
    variables = server.get("variables") or {}

    def fill(match):
        if "default" not in variables.get(match[1], {}):
            raise ValueError(f"its server {server['url']}: {match[1]} has no default")
        return str(variables[match[1]]["default"])

    return urljoin(around, re.sub(r"\{([^{}]*)\}", fill, server["url"]))


def check_version(document):
    version = document.get("swagger", document.get("openapi", "3"))
    if not str(version).startswith("3") or "swagger" in document:
        raise ValueError(f"expected OpenAPI 3, got version {version}")


def check_base(url):
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"its server is {url!r}: give a http or https URL by --base")
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError(f"its server is {url!r}: expected no login, query or fragment")
    return url


# The server ##########################################################################


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirects, as another server must not get the credentials."""

    def redirect_request(self, *_):
        return None


def send(request):
    """Return the reply. Raises ToolError for an error status, OSError without a reply."""
    try:
        with urllib.request.build_opener(NoRedirects).open(
            request, timeout=60
        ) as reply:
            data = reply.read(MAX_REPLY + 1)
            headers = reply.headers
    except urllib.error.HTTPError as error:
        # The model can read the reason, and try again.
        text = error.read(2000).decode("utf-8", "replace")
        raise ToolError(f"HTTP {error.code} {error.reason}: {text}") from None
    if len(data) > MAX_REPLY:
        raise ToolError(f"done, but the reply has more than {MAX_REPLY >> 20} MiB")
    return read_reply(data, headers, request.full_url)


def read_reply(data, headers, url):
    """Return a reply as a tool returns it: a JSON value, a text, an image, or bytes."""
    kind = headers.get_content_type()
    if headers.get("Content-Encoding", "identity") != "identity":
        return EmbeddedResource(url, data)
    if kind == "application/json" or kind.endswith("+json"):
        try:
            # int("NaN") is a ValueError: JSON has no such number.
            return json.loads(data or "null", parse_constant=int)
        except (ValueError, RecursionError):
            # It is not JSON, but the model may understand the text.
            kind = "text/plain"
    if kind.startswith("image/") and not TEXTS.fullmatch(kind):
        return Image(data, mime_type=kind)
    if kind.startswith("audio/"):
        return Audio(data, mime_type=kind)
    if TEXTS.fullmatch(kind) or not data:
        try:
            return data.decode(headers.get_content_charset() or "utf-8", "replace")
        except LookupError:
            return data.decode("utf-8", "replace")
    return EmbeddedResource(url, data, mime_type=kind)


def build_server(document, base=None, headers=(), only="*", location=None):
    """Return a server with a tool for each operation of a document. Raises ValueError.

    base: the URL that replaces the document's own servers
    location: where the document came from: see load()
    """
    check_version(document)
    document = Document(document, location)
    content = document.content
    info = content.get("info") or {}
    server = Server(
        str(info.get("title", "api")),
        str(info.get("version", "0")),
        description=info.get("description"),
    )
    home = base
    if base is None:
        # If this fails, each operation reports that it has no server.
        with suppress(ValueError, LookupError, TypeError):
            home = find_base(document)
    names = set()
    for path, reference in (content.get("paths") or {}).items():
        if path.startswith("x-"):
            continue
        try:
            place, item = document.find(reference)
            methods = [each for each in (*HINTS, *OTHER_METHODS) if each in item]
        except (TypeError, ValueError) as error:
            leave_out(path, error)
            continue
        for method in sorted(methods):
            about = item[method]
            with suppress(ValueError):
                _, about = place.find(about)
            name = name_of(about, method, path, names)
            if not fnmatch.fnmatch(name, only):
                continue
            try:
                if method not in HINTS:
                    raise ValueError(f"the method {method} is not supported")
                operation = Operation(document, path, reference, method, headers, base)
                add_tool(server, name, operation, home or operation.base, headers)
            except (
                *(LookupError, TypeError, ValueError, AttributeError),
                RecursionError,
            ) as error:
                leave_out(name, error)
    return server


def name_of(about, method, path, names):
    """Return a unique name for an operation."""
    own = about.get("operationId") if isinstance(about, dict) else None
    name = str(own or f"{method}{path}")
    name = re.sub("[^A-Za-z0-9_-]+", "_", name).strip("_")[:64] or method
    number = len(names)
    while name in names:
        name = f"{name[:58]}_{number}"
        number += 1
    names.add(name)
    return name


def leave_out(name, why):
    reason = str(why) if type(why) is ValueError else f"{type(why).__name__}: {why}"
    print(printable(f"without {name}: {reason}"), file=sys.stderr)


def add_tool(server, name, operation, base, headers):
    for note in operation.notes:
        print(printable(f"{name}: {note}"), file=sys.stderr)
    if origin_of(operation.base) != origin_of(base):
        place = "://".join(origin_of(operation.base))
        print(
            printable(f"{name}: goes to {place}, without your headers"), file=sys.stderr
        )
    summary = operation.about.get("summary")
    server.add_tool(
        lambda **arguments: send(operation.request(base, headers, arguments)),
        name=name,
        title=summary if isinstance(summary, str) else None,
        description=operation.describe(),
        annotations=HINTS[operation.method],
        input_schema=operation.schema,
    )


def header(text):
    """Return (name, value) of "NAME:VALUE"."""
    name, colon, value = text.partition(":")
    if not colon:
        # The value may be a secret, so it is not shown.
        raise argparse.ArgumentTypeError("expected NAME:VALUE")
    return name.strip(), value.strip()


def address(text):
    """Return (host, port) of [HOST:]PORT. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if int(port) not in range(65536):
        raise ValueError(port)
    return host.strip("[]") or "127.0.0.1", int(port)


def exit_code(error):
    """Return the exit code for a document that cannot be used: 3 if its server demands a
    login, 4 if it cannot be read, 1 for anything else."""
    if getattr(error, "code", None) in (401, 403):
        return 3
    return 4 if isinstance(error, (OSError, HTTPException)) else 1


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.error = lambda why: sys.exit(f"openapi: {why}; see --help")
    parser.add_argument("document", help="an OpenAPI document: a file, or a URL")
    parser.add_argument(
        "--base", help="URL of the API; by default, that in the document"
    )
    parser.add_argument(
        "--header", action="append", type=header, default=[], metavar="NAME:VALUE"
    )
    parser.add_argument(
        "--only", default="*", metavar="GLOB", help="select tools by name"
    )
    parser.add_argument("--http", type=address, metavar="[HOST:]PORT")
    asked = parser.parse_args()
    try:
        document, location = load(asked.document)
        check_version(document)
        base = asked.base or find_base(Document(document, location))
        server = build_server(
            document, check_base(base), asked.header, asked.only, location
        )
    except (OSError, HTTPException, ValueError, TypeError, LookupError) as error:
        code = exit_code(error)
        parser.exit(code, printable(f"openapi: {error}") + "\n")
    if asked.http is None:
        server.run()
    else:
        server.run("http", host=asked.http[0], port=asked.http[1])


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
