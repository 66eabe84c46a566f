"""A server over HTTP with one example of each kind of content, question and notification.

Teaches: what a handler can return, report and ask, in every revision. Each function shows
one thing, which its docstring names. The official conformance suite calls these names.

Run: python3 examples/everything_server.py [--http [HOST:]PORT]
then point a client at http://127.0.0.1:PORT/mcp (the port is 8000 if none is given).
"""

import argparse
import os
import struct
import sys
import zlib

# mcp_lite.py is in this folder, or one up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.dirname(HERE))

from mcp_lite import Audio, Context, EmbeddedResource, Image  # noqa: E402
from mcp_lite import Message, Server, ToolError  # noqa: E402

server = Server(
    "everything",
    version="1.0",
    instructions="One tool for each thing that a server can do.",
)


def png_chunk(kind, data):
    """A chunk of a PNG file: its length, kind, data, and check sum."""
    size = struct.pack(">I", len(data))
    check = struct.pack(">I", zlib.crc32(kind + data))
    return size + kind + data + check


def png(red=255, green=0, blue=0):
    """A picture of one pixel, as a PNG file."""
    # One by one pixel, 8 bits a channel, true colour.
    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    # A row starts with the number of its filter: none.
    pixels = zlib.compress(bytes([0, red, green, blue]))
    return (
        b"\x89PNG\r\n\x1a\n"
        + png_chunk(b"IHDR", header)
        + png_chunk(b"IDAT", pixels)
        + png_chunk(b"IEND", b"")
    )


def wav():
    """A moment of silence, as a WAVE file."""
    samples = b"\x80" * 8
    # PCM, one channel, 8000 samples a second, 8 bits each.
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 8000, 8000, 1, 8)
    data = struct.pack("<4sI", b"data", len(samples)) + samples
    body = b"WAVE" + form + data
    return struct.pack("<4sI", b"RIFF", len(body)) + body


# Content: text, pictures, sound, resources, and errors that a model can read.


@server.tool
def test_simple_text() -> str:
    """Returns text: the simplest kind of tool."""
    return "This is a simple text response for testing."


@server.tool
def test_image_content() -> Image:
    """Returns a picture, whose type is recognised by its bytes."""
    return Image(png())


@server.tool
def test_audio_content() -> Audio:
    """Returns a sound."""
    return Audio(wav())


@server.tool
def test_embedded_resource() -> EmbeddedResource:
    """Returns a resource inside the result."""
    uri = "test://embedded-resource"
    return EmbeddedResource(uri, "An embedded resource.", mime_type="text/plain")


@server.tool
def test_multiple_content_types() -> list:
    """Returns several kinds of content: a list of them."""
    uri = "test://mixed-content-resource"
    resource = EmbeddedResource(uri, "{}", mime_type="application/json")
    return ["Several kinds of content:", Image(png(0, 255, 0)), resource]


@server.tool
def test_error_handling() -> str:
    """Fails in a way that a model can read and act on."""
    raise ToolError("This tool intentionally returns an error for testing")


# Reporting: logs and progress, while the tool runs.


@server.tool
def test_tool_with_logging(ctx: Context) -> str:
    """Logs three lines, for clients that want them."""
    ctx.info("Tool execution started")
    ctx.sleep(0.05)
    ctx.info("Tool processing data")
    ctx.sleep(0.05)
    ctx.info("Tool execution completed")
    ctx.sleep(0.05)
    return "logged"


@server.tool
def test_logging_tool(ctx: Context) -> str:
    """Logs a line. In 2026-07-28, only a request that names a level receives it."""
    ctx.warning("nobody hears this without a level in the request")
    return "logged"


@server.tool
def test_tool_with_progress(ctx: Context) -> str:
    """Reports its progress."""
    for done in (0, 50, 100):
        ctx.progress(done, 100, f"{done} of 100")
        ctx.sleep(0.05)
    return "done"


@server.tool
def test_reconnection(ctx: Context) -> str:
    """Ends the stream, so that the client has to come back for the result."""
    ctx.close_stream(retry_ms=300)
    ctx.sleep(0.1)
    return "Reconnection test completed"


# Asking the user, the model, or for the roots. The same code serves a session, in which
# the function waits, and 2026-07-28, in which the question ends the request and the
# function runs again with the answer.

NAME_FORM = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string", "description": "Your name"}},
}


@server.tool
def test_sampling(prompt: str, ctx: Context) -> str:
    """Has the client's model answer."""
    answer = ctx.sample(prompt, max_tokens=100)
    return f"LLM response: {answer['content']}"


@server.tool
def test_missing_capability(ctx: Context) -> str:
    """Needs sampling: a client that did not declare it gets error -32021."""
    answer = ctx.sample("Is anybody there?")
    return str(answer["content"])


@server.tool
def test_elicitation(message: str, ctx: Context) -> str:
    """Asks the user to fill in a form."""
    form = {
        "type": "object",
        "properties": {
            "username": {"type": "string", "description": "User's name"},
            "email": {"type": "string", "description": "User's address"},
        },
        "required": ["username", "email"],
    }
    answer = ctx.elicit(message, form)
    return f"User response: {answer}"


DEFAULTS = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "verified": {"type": "boolean", "default": True},
    "status": {
        "type": "string",
        "enum": ["active", "inactive", "pending"],
        "default": "active",
    },
}


@server.tool
def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """A form with defaults in its fields."""
    form = {"type": "object", "properties": DEFAULTS}
    answer = ctx.elicit("Please check", form)
    return f"Elicitation completed: {answer}"


PLAIN = ["option1", "option2", "option3"]
TITLED = [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)]
CHOICES = {
    "untitledSingle": {"type": "string", "enum": PLAIN},
    "titledSingle": {"type": "string", "oneOf": TITLED},
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["One", "Two", "Three"],
    },
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": PLAIN}},
    "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
}


@server.tool
def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Every kind of choice in a form: one or several, with and without titles."""
    form = {"type": "object", "properties": CHOICES}
    answer = ctx.elicit("Please choose", form)
    return f"Elicitation completed: {answer}"


@server.tool
def test_streaming_elicitation(ctx: Context) -> str:
    """Asks, and chooses the key of the question itself."""
    form = {"type": "object", "properties": {}}
    answer = ctx.elicit("Go on?", form, key="confirm")
    return answer["action"]


@server.tool
def test_input_required_result_elicitation(ctx: Context) -> str:
    """Asks for a name."""
    answer = ctx.elicit("What is your name?", NAME_FORM, key="user_name")
    return f"Hello, {answer['content']['name']}!"


@server.tool
def test_input_required_result_sampling(ctx: Context) -> str:
    """Has the model say what the capital of France is."""
    answer = ctx.sample("What is the capital of France?", key="capital_question")
    return str(answer["content"])


@server.tool
def test_input_required_result_list_roots(ctx: Context) -> str:
    """Asks which folders the client works in."""
    uris = [root["uri"] for root in ctx.roots(key="client_roots")]
    return f"Roots: {uris}"


CONFIRM_FORM = {"type": "object", "properties": {"ok": {"type": "boolean"}}}


@server.tool
def test_input_required_result_request_state(ctx: Context) -> str:
    """Keeps a value from the question to the answer. The client carries it, signed."""
    ticket = ctx.once("ticket", lambda: os.urandom(4).hex())
    ctx.elicit("Please confirm", CONFIRM_FORM, key="confirm")
    return f"state-ok: ticket {ticket}"


@server.tool
def test_input_required_result_tampered_state(ctx: Context) -> str:
    """Asks for a confirmation. If the client changes the state, the call is refused."""
    ctx.elicit("Please confirm", CONFIRM_FORM, key="confirm")
    return "confirmed"


@server.tool
def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Asks three questions at once."""
    name = {"message": "What is your name?", "requestedSchema": NAME_FORM}
    greeting = {"messages": [Message("Write a greeting")], "maxTokens": 50}
    answers = ctx.ask(
        {
            "user_name": ("elicitation/create", name),
            "greeting": ("sampling/createMessage", greeting),
            "client_roots": ("roots/list", {}),
        }
    )
    return f"answered: {sorted(answers)}"


@server.tool
def test_input_required_result_multi_round(ctx: Context) -> str:
    """Asks two questions, one after the other."""
    first = ctx.elicit("Step 1: your name?", NAME_FORM, key="step1")
    colours = {
        "type": "object",
        "properties": {"color": {"type": "string"}},
        "required": ["color"],
    }
    second = ctx.elicit("Step 2: your favourite colour?", colours, key="step2")
    return f"{first['content']['name']} likes {second['content']['color']}"


@server.tool
def test_input_required_result_capabilities(ctx: Context) -> str:
    """Asks only questions that the client can answer."""
    if "elicitation" in ctx.client_capabilities:
        answer = ctx.elicit("What is your name?", NAME_FORM)
        return str(answer["action"])
    answer = ctx.sample("What is a good name?")
    return str(answer["content"])


# Schemas, headers, changes.


CONTACT_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {
                "street": {"type": "string"},
                "city": {"type": "string"},
            },
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {
        "properties": {"contactMethod": {"const": "phone"}},
        "required": ["contactMethod"],
    },
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


@server.tool(input_schema=CONTACT_SCHEMA)
def json_schema_2020_12_tool(
    name="", address=None, contactMethod="", phone="", email=""
) -> str:
    """Has a schema of its own, which says more than the hints of a function can."""
    return f"{name} by {contactMethod or 'any means'}: {phone or email}"


REGION_SCHEMA = {
    "type": "object",
    "properties": {
        "region": {
            "type": "string",
            "description": "Where to run",
            "x-mcp-header": "Region",
        }
    },
}


@server.tool(input_schema=REGION_SCHEMA)
def test_x_mcp_header(region: str = "") -> str:
    """Has a parameter that is repeated in a header, for gateways that route by it. From
    Python 3.9 on, the hint Annotated[str, Param("Where to run", header="Region")] makes
    this schema."""
    return f"in {region}"


@server.tool
def test_trigger_tool_change() -> str:
    """Adds and removes a tool, which notifies listening clients."""
    name = "test_dynamic_tool"
    server.add_tool(lambda: "new", name=name, description="Comes and goes.")
    server.remove_tool(name)
    return "changed"


@server.tool
def test_trigger_prompt_change() -> str:
    """Adds and removes a prompt, which notifies listening clients."""
    name = "test_dynamic_prompt"
    server.add_prompt(lambda: "new", name=name, description="Comes and goes.")
    server.remove_prompt(name)
    return "changed"


# Resources: a text, bytes, a template, and one to subscribe to.


@server.resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """A text."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """Bytes."""
    return png(0, 0, 255)


@server.resource("test://template/{id}/data", mime_type="application/json")
def template_data(id: str) -> dict:
    """A template: one function for many URIs."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


@server.resource("test://watched-resource", mime_type="text/plain")
def watched() -> str:
    """A resource to subscribe to."""
    return "Watch me: server.resource_updated(uri) tells who subscribed."


# Prompts: with and without arguments, with things inside, and with a question.


@server.prompt
def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@server.prompt
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with arguments, one of which has completions."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.completion("test_prompt_with_arguments", "arg1")
def complete_arg1(value: str) -> list:
    """Returns the values that begin with the text typed so far."""
    words = ("test", "testing", "tested")
    return [word for word in words if word.startswith(value)]


@server.prompt
def test_prompt_with_embedded_resource(resourceUri: str) -> list:
    """A prompt with a resource inside."""
    text = "Embedded resource content for testing."
    resource = EmbeddedResource(resourceUri, text, mime_type="text/plain")
    return [resource, "Please process the embedded resource above."]


@server.prompt
def test_prompt_with_image() -> list:
    """A prompt with a picture inside."""
    return [Image(png()), "Please analyze the image above."]


@server.prompt
def test_input_required_result_prompt(ctx: Context) -> str:
    """A prompt that asks the user a question first."""
    form = {"type": "object", "properties": {"context": {"type": "string"}}}
    answer = ctx.elicit("What is the context?", form, key="user_context")
    return f"Use this context: {answer['content']}"


def address(text):
    """Return (host, port) of [HOST:]PORT. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if int(port) not in range(65536):
        raise ValueError(port)
    return host.strip("[]") or "127.0.0.1", int(port)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.error = lambda why: sys.exit(f"everything_server: {why}; see --help")
    parser.add_argument("--http", type=address, metavar="[HOST:]PORT")
    # The suite's runner gives the port alone.
    parser.add_argument(
        "port", nargs="?", type=address, help="the same, without --http"
    )
    options = parser.parse_args()
    host, port = options.http or options.port or ("127.0.0.1", 8000)
    server.run("http", host=host, port=port)


if __name__ == "__main__":
    main()
