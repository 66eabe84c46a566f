"""A small agent: a loop in which a model calls the tools of several servers.

Teaches: what a host does. It offers the tools to the model, asks the user for consent,
runs the calls that the model makes, and reports their results, until the model has an
answer. Three classes hold what differs between providers: the format of tools, calls and
results, images included. If there are too many tools for one prompt, the model gets just
two: one that searches the tools, and one that calls them.

Texts of servers and models are bounded, and printed safely: a large result is cut before
it goes to the model, and a long conversation loses its oldest rounds.

Run: python3 examples/agent.py ["a question" [mcp.json]]
The config file is that of a desktop program, with "mcpServers"; without one, the agent
starts two small servers. Set OPENAI_API_KEY, ANTHROPIC_API_KEY or GEMINI_API_KEY to
choose a provider. MODEL names another model, and OPENAI_BASE_URL (and so on) another URL,
such as that of an open model on this machine. Without a key, a Script stands in for the
model.
"""

import argparse
import json
import os
import re
import sys
import urllib.error
import urllib.request
from collections import namedtuple

# mcp_lite.py is in this folder, or one up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.dirname(HERE))

from group import ClientGroup, print_out  # noqa: E402

from mcp_lite import McpError, Server, printable  # noqa: E402

MAX_TEXT = 50_000  # characters of a result that a model reads
MAX_IMAGE = 5 << 20  # characters of an image in base64: the narrowest of the three
MAX_IMAGES = 10  # of a result
MAX_DESCRIPTION = 1024  # characters of a tool's description: OpenAI's
MAX_CONVERSATION = 400_000  # characters as JSON: about 100,000 tokens

notes = Server("notes", version="1.0")


@notes.tool  # without readOnlyHint, as it changes something
def write(text: str) -> str:
    """Write a note."""
    return f"written: {text}"


SERVERS = {"files": os.path.join(HERE, "quickstart_server.py"), "notes": notes}

# The tools ###########################################################################

INDIRECT = [
    {
        "name": "search_tools",
        "description": "Find tools by what they do: returns names and input schemas.",
        "inputSchema": {
            "type": "object",
            "properties": {"query": {"type": "string", "description": "a few words"}},
            "required": ["query"],
        },
    },
    {
        "name": "call_tool",
        "description": "Call a tool that search_tools has found.",
        "inputSchema": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}},
            "required": ["name", "arguments"],
        },
    },
]


class Toolbox:
    """The tools of a group, under names that every provider accepts.

    offered: the tools that the model is given: those of the group, or INDIRECT
    allow(name, arguments): asks the user before a tool runs that might change something
    max_tools: if there are more, the model is given INDIRECT
    """

    def __init__(self, group, allow, max_tools=40):
        self.group = group
        self.allow = allow
        # The name that the model sees -> the tool as the group lists it
        self.tools = {}
        for tool in group.list_tools():
            # The narrowest rules of the three: at most 64 of A-Z, a-z, 0-9, _ and -,
            # without a digit or a - at the start.
            name = re.sub(r"[^A-Za-z0-9_-]|^(?=[0-9-])", "_", tool["name"])[:64]
            number = len(self.tools)
            while name in self.tools:
                name = f"{name[:58]}_{number}"
                number += 1
            self.tools[name] = tool
        direct = [{**tool, "name": name} for name, tool in self.tools.items()]
        self.offered = direct if len(direct) <= max_tools else INDIRECT

    def search(self, query):
        """Return the eight tools that match a query best. Rare words weigh more."""
        texts = {
            name: json.dumps([name, tool]).lower() for name, tool in self.tools.items()
        }
        scores = dict.fromkeys(self.tools, 0.0)
        for word in re.findall(r"[^\W_]+", query.lower()):
            # Without its final "s", a plural finds the singular.
            fitting = [name for name in scores if word.rstrip("s") in texts[name]]
            for name in fitting:
                scores[name] += 1 / len(fitting)
        best = sorted(filter(scores.get, scores), key=scores.get, reverse=True)
        return [with_schema({**self.tools[name], "name": name}) for name in best[:8]]

    def run(self, name, arguments):
        """Run a call of the model. Always returns a result that the model can read.

        arguments: an object, or a text that should be one
        """
        try:
            if isinstance(arguments, str):
                arguments = json.loads(arguments or "{}")
            if self.offered is INDIRECT and name == "search_tools":
                return as_result(json.dumps(self.search(arguments["query"])))
            if self.offered is INDIRECT:
                name, arguments = arguments["name"], arguments["arguments"]
            tool = self.tools[name]
            # "clients MUST consider tool annotations to be untrusted unless they come
            # from trusted servers" (server/tools.md): with any other server, ask always.
            is_harmless = tool.get("annotations", {}).get("readOnlyHint") is True
            if not is_harmless and not self.allow(name, arguments):
                return as_result("Not done: the user does not want it.", True)
            return self.group.call_tool(tool["name"], arguments)
        except (KeyError, TypeError, ValueError, McpError, OSError) as error:
            # The call is not valid, or the server has refused it, or cannot be reached.
            return as_result(f"Not done: {type(error).__name__}: {error}", True)


def as_result(text, is_error=False):
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def with_schema(tool, member="inputSchema"):
    """Return a tool as a model reads it, with its schema under the provider's name.

    A provider rejects the whole request if a schema has keywords such as anyOf at the
    top level. They can be left out, as the server checks the arguments.
    """
    schema = {
        key: value
        for key, value in tool["inputSchema"].items()
        if key not in ("anyOf", "oneOf", "allOf", "not", "enum", "$schema")
    }
    return {
        "name": tool["name"],
        "description": tool.get("description", "")[:MAX_DESCRIPTION],
        member: {"properties": {}, **schema, "type": "object"},
    }


# The types of images that all three providers accept.
PICTURES = ("image/png", "image/jpeg", "image/webp")
# A result as a model sees it; images: [(MIME type, base64)]
Answer = namedtuple("Answer", "id name text images is_error")


def answer_of(id, name, result):
    """Return the Answer to a call, from a result of tools/call."""
    blocks = result["content"]
    shown = [
        b
        for b in blocks
        if b["type"] == "image"
        and b["mimeType"] in PICTURES
        and len(b["data"]) <= MAX_IMAGE
    ][:MAX_IMAGES]
    texts = [
        # The model gets a description of a link or a sound.
        b.get("resource", b).get("text") or json.dumps(b)[:1000]
        for b in blocks
        if b not in shown
    ]
    return Answer(
        id,
        name,
        shortened("\n".join(texts)) or "(no text)",
        [(b["mimeType"], b["data"]) for b in shown],
        result.get("isError", False),
    )


def shortened(text):
    """Return a text cut to MAX_TEXT, with a note if something was cut."""
    if len(text) <= MAX_TEXT:
        return text
    return f"{text[:MAX_TEXT]}\n[cut: {len(text):,} characters in all]"


# The formats #########################################################################


BASE = {
    "OPENAI_API_KEY": "https://api.openai.com/v1",
    "ANTHROPIC_API_KEY": "https://api.anthropic.com",
    "GEMINI_API_KEY": "https://generativelanguage.googleapis.com/v1beta",
}


class OpenAI:
    """Chat completions, which most servers of open models offer as well.

    request() returns the URL's path, the headers and the body. read() returns the
    message to keep, its text, and its calls: [(id, name, arguments)]. report() returns
    the messages that report Answers.
    """

    KEY = "OPENAI_API_KEY"

    def ask(self, messages, tools):
        """Send the conversation, and return what the provider replies."""
        base = os.environ.get(self.KEY.replace("API_KEY", "BASE_URL"), BASE[self.KEY])
        path, headers, body = self.request(os.environ[self.KEY], messages, tools)
        request = urllib.request.Request(
            base + path,
            json.dumps(body).encode(),
            {"Content-Type": "application/json", **headers},
        )
        with urllib.request.urlopen(request, timeout=120) as response:
            return json.load(response)

    def question(self, text):
        return {"role": "user", "content": text}

    def request(self, key, messages, tools):
        return (
            "/chat/completions",
            {"Authorization": f"Bearer {key}"},
            {
                "model": os.environ.get("MODEL", "gpt-5-mini"),
                "messages": messages,
                "tools": [
                    {"type": "function", "function": with_schema(tool, "parameters")}
                    for tool in tools
                ],
            },
        )

    def read(self, reply):
        message = reply["choices"][0]["message"]
        calls = [
            (call["id"], call["function"]["name"], call["function"]["arguments"])
            for call in message.get("tool_calls") or []
        ]
        # The message goes back without `annotations`, which only a reply may have.
        return (
            {key: message[key] for key in message if key != "annotations"},
            message.get("content") or message.get("refusal"),
            calls,
        )

    def report(self, answers):
        # A tool's message can hold text only, so the images follow in a user's message.
        messages = [
            {"role": "tool", "tool_call_id": each.id, "content": each.text}
            for each in answers
        ]
        shown = [
            {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}
            for each in answers
            for kind, data in each.images
        ]
        return messages + ([{"role": "user", "content": shown}] if shown else [])


class Anthropic(OpenAI):
    """Messages."""

    KEY = "ANTHROPIC_API_KEY"

    def request(self, key, messages, tools):
        return (
            "/v1/messages",
            {"x-api-key": key, "anthropic-version": "2023-06-01"},
            {
                "model": os.environ.get("MODEL", "claude-haiku-4-5"),
                "max_tokens": 4096,
                "messages": messages,
                "tools": [with_schema(tool, "input_schema") for tool in tools],
            },
        )

    def read(self, reply):
        blocks = reply["content"]
        text = "".join(b["text"] for b in blocks if b["type"] == "text")
        calls = [
            (b["id"], b["name"], b["input"]) for b in blocks if b["type"] == "tool_use"
        ]
        return (
            {"role": "assistant", "content": blocks},
            text or f"no answer: {reply.get('stop_reason')}",
            calls,
        )

    def report(self, answers):
        return [{"role": "user", "content": [self.block(each) for each in answers]}]

    def block(self, answer):
        images = [
            {
                "type": "image",
                "source": {"type": "base64", "media_type": kind, "data": data},
            }
            for kind, data in answer.images
        ]
        return {
            "type": "tool_result",
            "tool_use_id": answer.id,
            "is_error": answer.is_error,
            "content": [{"type": "text", "text": answer.text}, *images],
        }


class Gemini(OpenAI):
    """generateContent."""

    KEY = "GEMINI_API_KEY"

    def question(self, text):
        return {"role": "user", "parts": [{"text": text}]}

    def request(self, key, messages, tools):
        # The other member for a schema, `parameters`, takes less of JSON Schema.
        model = os.environ.get("MODEL", "gemini-flash-latest")
        return (
            f"/models/{model}:generateContent",
            {"x-goog-api-key": key},
            {
                "contents": messages,
                "tools": [
                    {
                        "functionDeclarations": [
                            with_schema(tool, "parametersJsonSchema") for tool in tools
                        ]
                    }
                ],
            },
        )

    def read(self, reply):
        # The parts go back unchanged, as the API wants their signatures again. If a
        # filter has stopped the model, there is no content, or no candidate.
        candidate = reply.get("candidates", [reply])[0]
        message = candidate.get("content", {})
        parts = message.get("parts", [])
        text = "".join(p.get("text", "") for p in parts if not p.get("thought"))
        calls = [p["functionCall"] for p in parts if "functionCall" in p]
        # Older models give a call no id.
        return (
            message,
            text or f"no answer: {json.dumps(candidate)}",
            [(c.get("id"), c["name"], c.get("args", {})) for c in calls],
        )

    def report(self, answers):
        return [{"role": "user", "parts": [self.part(each) for each in answers]}]

    def part(self, answer):
        return {
            "functionResponse": {
                "id": answer.id,
                "name": answer.name,
                "response": {"error" if answer.is_error else "output": answer.text},
                "parts": [
                    {"inlineData": {"mimeType": kind, "data": data}}
                    for kind, data in answer.images
                ],
            }
        }


class Script(OpenAI):
    """Replaces a model: replays a fixed list of calls."""

    def ask(self, messages, tools):
        last = messages[-1]["content"]
        script = [
            ("files_search", {"word": "main"}),
            ("files_search", {"text": " "}),
            ("files_search", {"text": "def main(", "limit": 1}),
            ("notes_write", {"text": f"found {last}"}),
        ]
        said = sum(message["role"] == "assistant" for message in messages)
        calls = [
            {"id": name, "function": {"name": name, "arguments": json.dumps(arguments)}}
            for name, arguments in script[said : said + 1]
        ]
        return {
            "choices": [
                {
                    "message": {
                        "role": "assistant",
                        "content": f"That is all. At last: {last}",
                        "tool_calls": calls,
                    }
                }
            ]
        }


# The loop ############################################################################


def run_agent(model, toolbox, question, max_rounds=8):
    """Return the model's answer, or None if it has none after max_rounds. The limit stops
    a model that repeats itself, which costs money."""
    # The question, then a list for each round: the model's message, and the reports.
    rounds = [[model.question(question)]]
    for _ in range(max_rounds):
        messages = sum(rounds, [])
        message, text, calls = model.read(model.ask(messages, toolbox.offered))
        if not calls:
            return text
        answers = []
        for id, name, arguments in calls:
            answers.append(answer_of(id, name, toolbox.run(name, arguments)))
            print_out(f"  {printable(name)}: {json.dumps(answers[-1].text)[:100]}")
        rounds.append([message, *model.report(answers)])
        # Drop whole rounds, as providers reject a result without its call. Keep the
        # question and the latest round.
        while len(rounds) > 2 and len(json.dumps(rounds)) > MAX_CONVERSATION:
            del rounds[1]
    return None


def ask_user(name, arguments):
    """Return whether the user agrees. Without a terminal, the answer is no."""
    print_out(f"  Run {printable(name)} {json.dumps(arguments)}? [y/N]")
    return sys.stdin.readline().strip().lower() == "y"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.error = lambda why: sys.exit(f"agent: {why}; see --help")
    ask = "Where does a program begin? Note it."
    parser.add_argument("question", nargs="?", default=ask)
    parser.add_argument("config", nargs="?", default=SERVERS)
    options = parser.parse_args()
    try:
        several = ClientGroup(options.config)
    except (OSError, ValueError) as error:
        sys.exit(printable(f"agent: {error}"))
    # The provider whose key is set, or the Script.
    known = (api for api in (OpenAI, Anthropic, Gemini) if os.environ.get(api.KEY))
    model = next(known, Script)()
    if isinstance(model, Script) and options.config is not SERVERS:
        # It calls the tools of the two small servers, which may not be there.
        print_out("There is no model, but a Script: set a key, as --help says.")
    with several as group:
        print_out(printable(f"servers: {', '.join(group.clients)}"))
        for name, error in group.errors.items():
            print_out(printable(f"without {name}: {error}"))
        try:
            answer = run_agent(model, Toolbox(group, ask_user), options.question)
        except urllib.error.HTTPError as error:
            text = error.read(2000).decode("utf-8", "replace")
            code = 3 if error.code in (401, 403) else 4
            parser.exit(code, printable(f"agent: {error.url}: {error}: {text}") + "\n")
        except (OSError, ValueError, LookupError, TypeError) as error:
            # The provider is unreachable, or its reply has another format.
            code = 4 if isinstance(error, OSError) else 5
            text = printable(f"agent: {type(error).__name__}: {error}")
            parser.exit(code, f"{text}\n")
        if answer is None:
            sys.exit("agent: stopped: too many rounds")
        print_out(printable(answer, keep_lines=True))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
