"""A server in one page: two tools over the files of a folder, one resource, one prompt.

Teaches: functions become tools; hints become schemas; the docstring is what a model
reads.

Run it with a client: python3 examples/quickstart.py
or add it to a desktop program: python3 examples/install.py examples/quickstart_server.py
"""

import os
import platform
import sys

# mcp_lite.py is in this folder, or one up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.dirname(HERE))

from mcp_lite import Context, Server, ToolError  # noqa: E402

server = Server(
    "quickstart",
    version="1.0",
    instructions="Counts and searches the files of one folder.",
)
FOLDER = os.getcwd()
ENDINGS = (".py", ".md", ".cfg", ".txt")


def text_files():
    """Return the name and path of each text file in the folder, by name."""
    for name in sorted(os.listdir(FOLDER)):
        path = os.path.join(FOLDER, name)
        if os.path.isfile(path) and name.endswith(ENDINGS):
            yield name, path


@server.tool(annotations={"readOnlyHint": True})
def count_lines(ctx: Context) -> dict:
    """Count the lines of each text file in the folder."""
    counts = {}
    files = list(text_files())
    for done, (name, path) in enumerate(files, 1):
        with open(path, encoding="utf-8", errors="replace") as file:
            counts[name] = sum(1 for _ in file)
        # The client receives this while the tool runs on.
        ctx.progress(done, len(files), name)
    print("print() is safe here: it goes to stderr, never onto the wire")
    return counts


@server.tool(annotations={"readOnlyHint": True})
def search(text: str, limit: int = 5) -> list:
    """Search the folder's text files for a text. Returns "file:line: text" for each line
    that contains it."""
    # This is not a regular expression: a model may write one that never ends.
    if not text.strip():
        # A model reads this, and may try again.
        raise ToolError("text: expected more than spaces")
    matches = []
    for name, path in text_files():
        with open(path, encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, 1):
                if text in line and len(matches) < limit:
                    matches.append(f"{name}:{number}: {line.strip()[:200]}")
    return matches


@server.resource("quickstart://machine", mime_type="application/json")
def machine() -> dict:
    """The machine that this server runs on."""
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "folder": FOLDER,
    }


@server.prompt
def explain(file: str) -> str:
    """Ask a model to explain one of the files."""
    return f"Explain what {file} does, for somebody who has never seen it."


if __name__ == "__main__":
    server.run()
