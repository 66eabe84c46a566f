"""Lesson 11: connect it to a real desktop program.

Teaches: what a desktop program (Claude Desktop, Cursor, VS Code) does with its config
file. It starts each server as a child process, with the command, the arguments and the
variables in the file; but without a shell, in a folder of its own choice, and with few of
your variables. It speaks to the child's stdin and stdout, and keeps the stderr in a log
file. Here, examples/install.py writes such a file, and this lesson stands in for the
desktop program. To use a real one: python3 examples/install.py server.py --into claude

Run: python3 examples/lessons/11_desktop.py
"""

import json
import os
import subprocess
import sys
import tempfile
import textwrap

EXAMPLES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SERVER = os.path.join(EXAMPLES, "quickstart_server.py")
INSTALL = [sys.executable, os.path.join(EXAMPLES, "install.py"), SERVER]
# The environment of a program that was started by a click.
FEW = {name: os.environ[name] for name in ("HOME", "SYSTEMROOT") if name in os.environ}
FEW["PATH"] = os.defpath


def show(arrow, text):
    """Print a text, in lines that fit on a screen."""
    print(textwrap.fill(f"{arrow} {text}", 96, subsequent_indent="    "))


def start(entry, folder, log):
    """Start a server as its entry says; its stderr goes to the log."""
    return subprocess.Popen(
        [entry["command"], *entry["args"]],
        env={**FEW, **entry.get("env", {})},
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        encoding="utf-8",
    )


def send(child, method, **members):
    message = {"jsonrpc": "2.0", "method": method, **members}
    show("-->", json.dumps(message))
    try:
        child.stdin.write(json.dumps(message) + "\n")
        child.stdin.flush()
    except OSError:
        pass  # The child has ended. Its output has ended, too: ask() will notice.


def ask(child, number, method, **params):
    """Send a request. Returns its result, or None if the child has ended."""
    send(child, method, id=number, params=params)
    answer = json.loads(child.stdout.readline() or "{}")
    return answer.get("result")


def use(child):
    """Do what a desktop program does: list the tools for its user, and call one for its
    model."""
    who = {"name": "desktop", "version": "1"}
    opening = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": who}
    if ask(child, 1, "initialize", **opening) is None:
        print('*** the user sees: "Server disconnected"')
        return
    send(child, "notifications/initialized")
    tools = ask(child, 2, "tools/list")["tools"]
    print("*** the user sees the tools:", ", ".join(each["name"] for each in tools))
    result = ask(child, 3, "tools/call", name="count_lines", arguments={})
    show("*** the model reads:", result["content"][0]["text"])


with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "claude_desktop_config.json")
    subprocess.check_output([*INSTALL, "--name", "installed", "--file", path])
    with open(path, encoding="utf-8") as file:
        servers = json.load(file)["mcpServers"]
    # People write this by hand: it works in a terminal, in the right folder.
    servers["by hand"] = {"command": "python3", "args": ["quickstart_server.py"]}
    servers["by hand"]["command"] = sys.executable  # as this PATH may have no python3
    for name, entry in servers.items():
        print(f"\nThe entry {name}:")
        show("   ", json.dumps(entry))
        with tempfile.TemporaryFile("w+", dir=folder) as log:
            with start(entry, folder, log) as child:
                use(child)
                child.communicate()  # closes its input: that is its end
            print("*** the server ended with", child.returncode)
            log.seek(0)
            for line in log:
                show("*** in the log file:", line)

# Exercises
# 1. The entry "by hand" fails, and only its log file says why. Mend it.
# 2. `count_lines` finds nothing: the server looks into the folder that it was started in.
#    Let a copy of quickstart_server.py take its FOLDER from os.environ.get("NOTES", "."),
#    and have install.py put that variable into the entry (--env). Why would
#    `export NOTES=...` in your terminal not be enough?
