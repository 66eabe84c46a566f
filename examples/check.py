"""Records a server's contract, and tells CI whether a change breaks its callers.

Teaches: what breaks a caller. An input schema may accept more than before, and an output
schema may promise more, but not the reverse. To remove anything breaks callers, too.

Run: python3 examples/check.py record server.py > contract.json
     python3 examples/check.py diff contract.json server.py
The server is a URL, a script, a command behind `--`, or a second contract. The exit code
is 0 if nothing breaks, and 1 if something does. All other codes are those of `python3 -m
mcp_lite`: 1 wrong usage, or a file that is not a contract; 3 authorization; 4
unreachable; 5 refused by the server.

Warnings name the parts of a tool that model providers reject. There are none for optional
members and for a missing `additionalProperties: false`: OpenAI's strict mode rejects
these, but every adapter repairs them. Texts of a server are printed on one line each,
without control characters, so they are safe for a terminal and a CI log.
"""

import argparse
import json
import os
import re
import sys
from contextlib import suppress

# mcp_lite.py is in this folder, or one up.
sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from mcp_lite import (  # noqa: E402
    AuthorizationError,
    Client,
    McpError,
    Timeout,
    UnsupportedVersion,
    printable,
)

# The members of a tool, a prompt or a resource that callers rely on. The keywords in
# WORDS are for people.
MEMBERS = ("annotations", "description", "inputSchema", "outputSchema", "mimeType")
WORDS = ("title", "description", "default", "examples", "deprecated", "$comment")
# Keywords whose value is a schema, an object of schemas, or a list of schemas.
ONE = ("items", "additionalProperties", "contains", "propertyNames")
NAMED = ("properties", "patternProperties", "dependentSchemas", "$defs")
LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
NAME = re.compile("[A-Za-z_][A-Za-z0-9_-]{0,63}")
# Anthropic's rule, which is the narrowest.
KEY = re.compile("[a-zA-Z0-9_.-]{1,64}")
MAX_DESCRIPTION = 1024  # characters: OpenAI's
# Keywords that are refused anywhere in a schema.
REFUSED = {
    "OpenAI's strict mode": re.compile(
        "allOf|oneOf|not|if|then|else|dependent.*|patternProperties"
    ),
    "Gemini's `parameters`": re.compile(
        "allOf|oneOf|not|if|then|else|dependent.*|patternProperties|propertyNames|const"
        "|exclusive.*|multipleOf|prefixItems|contains|uniqueItems|additionalProperties"
        "|[$].*"
    ),
}
# The formats that are taken. A format of numbers, such as int32, does no harm.
FORMATS = {
    "OpenAI's strict mode": re.compile(
        "date-time|date|time|duration|email|hostname|ipv4|ipv6|uuid|int32|int64|float"
        "|double"
    ),
    "Gemini's `parameters`": re.compile("date-time|enum|int32|int64|float|double"),
}
# Keywords that providers reject at the top of a schema.
REFUSED_AT_THE_TOP = ("allOf", "anyOf", "oneOf", "not", "enum")
# The exit code for an exception is that of the first row that matches.
EXIT_CODES = (
    (AuthorizationError, 3),
    ((ConnectionError, Timeout, UnsupportedVersion), 4),
    (KeyboardInterrupt, 130),
    (McpError, 5),
    (Exception, 1),
)


def record(target):
    """Return a server's contract: {"tool NAME": the MEMBERS that it has}."""
    # The server may need variables that a host has set, such as a key.
    with Client(target, env=dict(os.environ)) as client:
        tools = client.list_tools()
        prompts = client.list_prompts()
        resources = client.list_resources()
        templates = client.list_resource_templates()
    for prompt in prompts:
        # Written as a schema, a prompt's arguments are compared like those of a tool.
        arguments = prompt.get("arguments", [])
        prompt["inputSchema"] = {
            "properties": {each["name"]: {} for each in arguments},
            "required": [each["name"] for each in arguments if each.get("required")],
        }
    kinds = (
        ("tool", "name", tools),
        ("prompt", "name", prompts),
        ("resource", "uri", resources),
        ("template", "uriTemplate", templates),
    )
    return {
        f"{kind} {item[name]}": {key: item[key] for key in MEMBERS if key in item}
        for kind, name, items in kinds
        for item in items
    }


def pairs(old, new):
    """Yield (key, old value, new value); None stands for a missing key."""
    for key in sorted({*old, *new}):
        yield key, old.get(key), new.get(key)


def compare(old, new):
    """Yield (is_breaking, text) for each change from one contract to another."""
    for name, before, after in pairs(old, new):
        if before is None or after is None:
            yield after is None, f"{name}: {'gone' if after is None else 'new'}"
            continue
        for key, one, other in pairs(before, after):
            if key.endswith("Schema") and one and other:
                bad = ("narrower" if key == "inputSchema" else "wider", "both")
                for how, text in compare_schemas(one, other, f"{name}: {key}"):
                    yield how in bad, text
            elif one != other:
                yield (
                    key in ("outputSchema", "mimeType") and one is not None,
                    f"{name}: {key}: {json.dumps(one)} -> {json.dumps(other)}",
                )


def compare_schemas(old, new, where):
    """Yield (how, text) for each difference: "narrower", "wider", "both" or "neither"."""
    before, after = flatten(old, where), flatten(new, where)
    places = {place for place, _ in before} & {place for place, _ in after}
    for (place, key), one, other in pairs(before, after):
        if one != other and place in places:
            yield (
                compare_values(key, one, other),
                f"{place}: {key}: {json.dumps(one)} -> {json.dumps(other)}",
            )


def flatten(schema, place):
    """Return {(place, keyword): value} of a schema and of all schemas inside it.

    Where a value has schemas in it, their names stand for them.
    """
    flat = {(place, ""): True}
    for key, value in schema.items() if isinstance(schema, dict) else ():
        inner = {}
        if key in NAMED and isinstance(value, dict):
            inner = value
        elif key in LISTED and isinstance(value, list):
            inner = {f"{key}.{n}": part for n, part in enumerate(value)}
        elif key in ONE and isinstance(value, dict):
            inner = {key: value}
        flat[place, key] = sorted(inner) or value
        for name, part in inner.items():
            flat.update(flatten(part, f"{place}.{name}"))
    return flat


def compare_values(key, old, new):
    """Return how a keyword's new value changes what the schema accepts."""
    if key in (*NAMED, *WORDS):
        # A new member that callers must give changes `required`, too; changed $defs
        # change a $ref.
        return (
            "both"
            if key in NAMED[:3] and set(old or ()) - set(new or ())
            else "neither"
        )
    if old is None or new is None:
        return "narrower" if old is None else "wider"
    if key == "type" or isinstance(old, list):
        old, new = as_set(old), as_set(new)
    elif not re.match("(exclusiveM|m)(in|ax)", key):
        return "both"
    # More members of these, or a higher number, make a schema accept less.
    if re.match("min|exclusiveMin|required|allOf|prefixItems", key):
        old, new = new, old
    if new == old:
        return "neither"
    if new > old:
        return "wider"
    return "narrower" if new < old else "both"


def as_set(value):
    """Return the members of a list, or a single type, as JSON texts."""
    several = value if isinstance(value, list) else [value]
    texts = {json.dumps(each, sort_keys=True) for each in several}
    # Every integer is a number.
    return texts | {'"integer"'} if "number" in several else texts


def warn(contract):
    """Yield what the providers of models refuse in a contract's tools."""
    for name, item in contract.items():
        if not name.startswith("tool "):
            continue
        if not NAME.fullmatch(name[5:]):
            yield f"{name}: providers want a name of the form {NAME.pattern}"
        if len(item.get("description", "")) > MAX_DESCRIPTION:
            yield f"{name}: OpenAI refuses a description of over {MAX_DESCRIPTION:,}"
        for (place, key), value in flatten(item.get("inputSchema"), name).items():
            if place == name and key in REFUSED_AT_THE_TOP:
                yield f"{place}: Anthropic and OpenAI refuse {key} at the top"
            for provider, refused in REFUSED.items():
                if refused.fullmatch(key):
                    yield f"{place}: {provider} refuses {key}"
            yield from warn_of_values(place, key, value)


def warn_of_values(place, key, value):
    """Yield what providers refuse in a keyword's value, as flatten() returns it."""
    if key == "additionalProperties" and not isinstance(value, bool):
        yield f"{place}: OpenAI's strict mode refuses a schema in additionalProperties"
    if key == "type" and isinstance(value, list):
        yield f"{place}: Gemini's `parameters` refuses a list of types"
    if key == "format" and isinstance(value, str):
        for provider, taken in FORMATS.items():
            if not taken.fullmatch(value):
                yield f"{place}: {provider} refuses the format {value}"
    if key == "properties" and isinstance(value, list):
        for each in value:
            if not KEY.fullmatch(each):
                yield f"{place}: providers want keys of the form {KEY.pattern}: {each}"


def load(target):
    """Return the contract in a file, or of a server."""
    if target[0].endswith(".json"):
        contract = None
        with open(target[0], encoding="utf-8") as file, suppress(ValueError):
            contract = json.load(file)
        if isinstance(contract, dict) and all(
            isinstance(each, dict) for each in contract.values()
        ):
            return contract
        raise ValueError(f"{target[0]}: not a contract")
    return record(target if target[1:] else target[0])


def print_out(text):
    """Print a text. It is no error if a reader such as `head` has had enough."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # Nobody reads the rest. Python will flush stdout again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.error = lambda why: sys.exit(f"check: {why}; see --help")
    parser.add_argument("command", choices=["record", "diff"])
    parser.add_argument("target", nargs="+", help="diff: an old contract, then another")
    asked = parser.parse_args()
    is_diff = asked.command == "diff"
    if is_diff and not asked.target[1:]:
        parser.error("diff: expected an old contract, then another")
    try:
        new = load(asked.target[is_diff:])
        old = load(asked.target[:1]) if is_diff else new
        warnings = list(warn(new))
        changes = list(compare(old, new))
    except (McpError, OSError, ValueError, RecursionError, KeyboardInterrupt) as error:
        # printable() keeps a server's text on one line.
        text = printable(f"{type(error).__name__}: {error}")
        code = next(code for kind, code in EXIT_CODES if isinstance(error, kind))
        parser.exit(code, f"check: {text}\n")
    for warning in warnings:
        print("warning ", printable(warning), file=sys.stderr)
    if not is_diff:
        print_out(json.dumps(new, indent=2, sort_keys=True))
    for is_breaking, text in changes:
        print_out(f"{'BREAKING' if is_breaking else 'harmless'} {printable(text)}")
    sys.exit(any(is_breaking for is_breaking, _ in changes))


if __name__ == "__main__":
    main()
