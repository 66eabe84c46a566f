"""What the official conformance suite calls, offered by small_server.py.

Teaches: your own server can be tested like any other. The names are those of the suite,
and each function says what it is for.

Run: python3 examples/small_conformance.py --http 8000
     npx @modelcontextprotocol/conformance server --url http://127.0.0.1:8000/mcp

Of the scenarios that the suite requires of a server, it passes 25 of 30 for 2025-11-25,
and 36 of 37 for 2026-07-28: all but logging (2) and subscriptions (2) in sessions, and
completion (1).
"""

import os
import sys

# small_server.py is in this folder.
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from small_server import (  # noqa: E402
    PROMPTS,
    RESOURCES,
    TOOLS,
    Context,
    Handler,  # noqa: F401, which serves all this inside another program
    changed,
    main,
    offer,
)

# One pixel, and a moment of silence.
PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJ"
    "RU5ErkJggg=="
)
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA="
IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}
NAME = {"name": {"type": "string"}}
ROOTS = {"method": "roots/list", "params": {}}


def embedded(uri):
    """Return a block with a resource inside."""
    content = {"uri": uri, "mimeType": "text/plain", "text": "A text in a resource."}
    return {"type": "resource", "resource": content}


def form(message, **properties):
    """Return a question to the user."""
    schema = {"type": "object", "properties": properties}
    params = {"message": message, "requestedSchema": schema}
    return {"method": "elicitation/create", "params": params}


def sampling(text):
    """Return a question to the model."""
    message = {"role": "user", "content": {"type": "text", "text": text}}
    params = {"messages": [message], "maxTokens": 100}
    return {"method": "sampling/createMessage", "params": params}


# Content.


@offer(TOOLS)
def test_simple_text():
    """A text."""
    return "This is a simple text response for testing."


@offer(TOOLS)
def test_image_content():
    """A picture."""
    return IMAGE


@offer(TOOLS)
def test_audio_content():
    """A sound."""
    return {"type": "audio", "data": WAV, "mimeType": "audio/wav"}


@offer(TOOLS)
def test_embedded_resource():
    """A resource."""
    return embedded("test://embedded-resource")


@offer(TOOLS)
def test_multiple_content_types():
    """Several blocks."""
    return ["Several kinds of content:", IMAGE, embedded("test://mixed")]


@offer(TOOLS)
def test_error_handling():
    """A failure that the model may read."""
    raise RuntimeError("This tool intentionally returns an error for testing")


# Before the answer: progress, changes.


@offer(TOOLS)
def test_tool_with_progress(ctx: Context):
    """Progress."""
    for done in (0, 50, 100):
        ctx.progress(done, 100)
    return "done"


@offer(TOOLS)
def test_logging_tool():
    """Logging, which this server leaves out, and the request does not ask for."""
    return "nothing was logged"


@offer(TOOLS)
def test_trigger_tool_change():
    """A change of the list of tools."""
    changed("tools")
    return "changed"


@offer(TOOLS)
def test_trigger_prompt_change():
    """A change of the list of prompts."""
    changed("prompts")
    return "changed"


# Questions, in sessions and in the modern era.


@offer(TOOLS)
def test_sampling(prompt: str, ctx: Context):
    """A question to the model."""
    return ctx.ask(answer=sampling(prompt))["answer"]["content"]


@offer(TOOLS)
def test_elicitation(message: str, ctx: Context):
    """A question to the user."""
    question = form(message, username={"type": "string"}, email={"type": "string"})
    return str(ctx.ask(answer=question))


@offer(TOOLS)
def test_elicitation_sep1034_defaults(ctx: Context):
    """A form with defaults."""
    question = form(
        "Please check",
        name={"type": "string", "default": "John Doe"},
        age={"type": "integer", "default": 30},
        score={"type": "number", "default": 95.5},
        verified={"type": "boolean", "default": True},
        status={
            "type": "string",
            "enum": ["active", "inactive", "pending"],
            "default": "active",
        },
    )
    return str(ctx.ask(answer=question))


@offer(TOOLS)
def test_elicitation_sep1330_enums(ctx: Context):
    """Each kind of choice."""
    plain = ["option1", "option2", "option3"]
    titled = [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)]
    legacy = {"enum": ["opt1", "opt2"], "enumNames": ["One", "Two"]}
    question = form(
        "Please choose",
        untitledSingle={"type": "string", "enum": plain},
        titledSingle={"type": "string", "oneOf": titled},
        legacyEnum={"type": "string", **legacy},
        untitledMulti={"type": "array", "items": {"type": "string", "enum": plain}},
        titledMulti={"type": "array", "items": {"anyOf": titled}},
    )
    return str(ctx.ask(answer=question))


@offer(TOOLS)
def test_missing_capability(ctx: Context):
    """An error, for a client that did not declare sampling."""
    return str(ctx.ask(answer=sampling("Is anybody there?")))


@offer(TOOLS)
def test_streaming_elicitation(ctx: Context):
    """A question, with a name of its own."""
    return str(ctx.ask(confirm=form("Go on?")))


@offer(TOOLS)
def test_input_required_result_elicitation(ctx: Context):
    """A question in place of a result."""
    answer = ctx.ask(user_name=form("What is your name?", **NAME))["user_name"]
    return f"Hello, {answer['content']['name']}!"


@offer(TOOLS)
def test_input_required_result_sampling(ctx: Context):
    """The same, to the model."""
    return str(ctx.ask(capital=sampling("What is the capital of France?")))


@offer(TOOLS)
def test_input_required_result_list_roots(ctx: Context):
    """The same, about folders."""
    return str(ctx.ask(client_roots=ROOTS))


@offer(TOOLS)
def test_input_required_result_request_state(ctx: Context):
    """A state that comes along with the answer."""
    return f"state-ok: {ctx.ask(confirm=form('Please confirm'))}"


@offer(TOOLS)
def test_input_required_result_tampered_state(ctx: Context):
    """The same. A client that changes the state is refused."""
    return str(ctx.ask(confirm=form("Please confirm")))


@offer(TOOLS)
def test_input_required_result_multiple_inputs(ctx: Context):
    """Three questions at once."""
    name = form("What is your name?", **NAME)
    greeting = sampling("Write a greeting")
    answers = ctx.ask(user_name=name, greeting=greeting, client_roots=ROOTS)
    return f"answered: {sorted(answers)}"


@offer(TOOLS)
def test_input_required_result_multi_round(ctx: Context):
    """Two questions, one after the other."""
    ctx.ask(step1=form("Your name?", **NAME))
    return str(ctx.ask(step2=form("Your favourite colour?", color={"type": "string"})))


@offer(TOOLS)
def test_input_required_result_capabilities(ctx: Context):
    """Only questions that the client can answer."""
    return str(ctx.ask(name=sampling("What is a good name?")))


# Resources and prompts.


@offer(RESOURCES, "test://static-text")
def static_text():
    """A text."""
    return "This is the content of the static text resource."


@offer(RESOURCES, "test://static-binary")
def static_binary():
    """Bytes."""
    return b"\x89PNG\r\n\x1a\n"


@offer(RESOURCES, "test://template/{id}/data")
def template_data(id: str):
    """One function for many URIs."""
    return f"Data for ID: {id}"


@offer(PROMPTS)
def test_simple_prompt():
    """A prompt."""
    return "This is a simple prompt for testing."


@offer(PROMPTS)
def test_prompt_with_arguments(arg1: str, arg2: str):
    """A prompt with arguments."""
    return f"Prompt with arguments: arg1={arg1!r}, arg2={arg2!r}"


@offer(PROMPTS)
def test_prompt_with_embedded_resource(resourceUri: str):
    """A prompt with a resource inside."""
    return [embedded(resourceUri), "Please process the resource above."]


@offer(PROMPTS)
def test_prompt_with_image():
    """A prompt with a picture inside."""
    return [IMAGE, "Please analyze the image above."]


@offer(PROMPTS)
def test_input_required_result_prompt(ctx: Context):
    """A prompt that asks first."""
    return f"Use this: {ctx.ask(user_context=form('What is the context?'))}"


if __name__ == "__main__":
    # The suite calls the first tool without arguments.
    for name in ("add", "alias", "book"):
        TOOLS[name] = TOOLS.pop(name)
    main(__doc__)
