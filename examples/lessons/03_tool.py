"""Lesson 3: a tool, from the hint to the schema to the call.

Teaches: what a library does for you. A function's hints become a JSON schema, and its
docstring is what the model reads; the arguments of a call must fit the schema; the value
becomes content for the model, and structured content for programs. This lesson does it by
hand in forty lines, without mcp_lite and with less care.

Run: python3 examples/lessons/03_tool.py
"""

import inspect
import json
import typing

TYPES = {int: "integer", float: "number", str: "string", bool: "boolean", list: "array"}


def forecast(city: str, days: int = 3) -> list:
    """The forecast for a city."""
    return [f"day {n}: sun over {city}" for n in range(1, days + 1)]


def schema_of(function):
    """Make a schema from hints. A parameter with a default is optional."""
    hints = typing.get_type_hints(function)
    members = {}
    required = []
    for name, parameter in inspect.signature(function).parameters.items():
        members[name] = {"type": TYPES[hints[name]]}
        if parameter.default is parameter.empty:
            required.append(name)
        else:
            members[name]["default"] = parameter.default
    return {"type": "object", "properties": members, "required": required}


def errors_in(arguments, schema):
    """Yield a text for each way in which the arguments of a call violate the schema."""
    python_types = {name: kind for kind, name in TYPES.items()}
    for name in schema["required"]:
        if name not in arguments:
            yield f"{name}: required"
    for name, value in arguments.items():
        member = schema["properties"].get(name)
        if member is None:
            yield f"{name}: unknown"
        elif not isinstance(value, python_types[member["type"]]):
            yield f"{name}: expected {member['type']}, got {json.dumps(value)}"


def call(function, arguments):
    """Return a result as on the wire. The model reads the errors, and may try again.

    (Revisions before 2025-11-25 send an error instead: see lesson 4.)
    """
    errors = list(errors_in(arguments, schema_of(function)))
    if errors:
        return {
            "content": [{"type": "text", "text": "; ".join(errors)}],
            "isError": True,
        }
    value = function(**arguments)
    text = json.dumps(value)
    return {
        "content": [{"type": "text", "text": text}],  # for the model
        "structuredContent": {"result": value},  # for programs; legacy: an object
    }


def show(why, number, request, result):
    """Print a request and its answer in full. On the wire, each would be one line."""
    print(why)
    for arrow, members in (("-->", request), ("<--", {"result": result})):
        message = {"jsonrpc": "2.0", "id": number, **members}
        print(arrow, json.dumps(message, indent=1))
    print()


GOOD = {"city": "Oslo", "days": 2}
tool = {
    "name": forecast.__name__,
    "description": forecast.__doc__,
    "inputSchema": schema_of(forecast),
}
print(f"A Python function: {tool['name']}{inspect.signature(forecast)}\n")
why = "What the model reads: the name, the docstring, and the hints as a schema."
show(why, 1, {"method": "tools/list"}, {"tools": [tool]})
for number, why, arguments in (
    (2, "A call that fits: the value, as text for the model, and for programs.", GOOD),
    (3, "A call that does not fit: the function does not run.", {"days": "two"}),
):
    params = {"name": "forecast", "arguments": arguments}
    request = {"method": "tools/call", "params": params}
    show(why, number, request, call(forecast, arguments))

# Exercises
# 1. Call it with {"city": "Oslo", "days": True}. Why does that pass here? (In Python, a
#    bool is an int. In JSON, true is not a number.) Mend errors_in(). What does it say
#    about 1 where a float is wanted? Mend that, too.
# 2. Give `forecast` a parameter with the hint typing.Literal["C", "F"], and have
#    schema_of() turn it into an "enum".
