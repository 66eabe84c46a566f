"""Writes a server into the config of a desktop program, and takes it out again.

Teaches: what such a program starts a server with: absolute paths, as it has no shell
and another folder; and how to change somebody else's file.

Run: python3 examples/install.py server.py --into claude
     python3 examples/install.py server.py --into vscode --name weather --env KEY=VALUE
     python3 examples/install.py --remove --name weather --into cursor

SERVER is a script, a URL, or a command in quotes. --print shows what would be written.
Everything else in the file stays as it is, comments too. The old file is kept beside it,
with the time in its name. Restart the program to have it read the file.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import sys
import time
from collections import namedtuple

HOME = os.path.expanduser("~")
# Where programs keep what belongs to a user.
SETTINGS = {
    "win32": os.environ.get("APPDATA", HOME),
    "darwin": os.path.join(HOME, "Library", "Application Support"),
}.get(sys.platform) or os.environ.get("XDG_CONFIG_HOME", os.path.join(HOME, ".config"))

# The file of a program, the member that has its servers, whether an entry names its
# type, and whether it may be a URL.
Program = namedtuple("Program", "path member has_type takes_url")
PROGRAMS = {
    "claude": Program(
        os.path.join(SETTINGS, "Claude", "claude_desktop_config.json"),
        "mcpServers",
        False,
        False,
    ),
    "claude-code": Program(
        os.path.join(HOME, ".claude.json"), "mcpServers", True, True
    ),
    "cursor": Program(
        os.path.join(HOME, ".cursor", "mcp.json"), "mcpServers", False, True
    ),
    "vscode": Program(
        os.path.join(SETTINGS, "Code", "User", "mcp.json"), "servers", True, True
    ),
}
# JSON with comments and trailing commas.
BLANK = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
WORD = re.compile(r"[-+.\w]+")
# A member of an object: where its key and its value stand in the text.
Member = namedtuple("Member", "name start value end")


def skip(text, at):
    """Return the place behind blanks and comments."""
    return BLANK.match(text, at).end()


def value_end(text, at):
    """Return the place behind the value that begins here. Raises ValueError."""
    if text[at : at + 1] == "{":
        return members_of(text, at)[1]
    if text[at : at + 1] == "[":
        at = skip(text, at + 1)
        while text[at : at + 1] != "]":
            at = after_comma(text, value_end(text, at), "]")
        return at + 1
    match = TEXT.match(text, at) or WORD.match(text, at)
    if not match:
        raise ValueError(f"not JSON, at line {text.count(chr(10), 0, at) + 1}")
    return match.end()


def after_comma(text, at, closing):
    """Return the place of the next element, or of the bracket that closes."""
    at = skip(text, at)
    if text[at : at + 1] == ",":
        return skip(text, at + 1)
    if text[at : at + 1] != closing:
        raise ValueError(f"not JSON, at line {text.count(chr(10), 0, at) + 1}")
    return at


def members_of(text, at):
    """Return the Members of the object that begins here, and the place behind it."""
    members = []
    at = skip(text, at + 1)
    while text[at : at + 1] != "}":
        key = TEXT.match(text, at)
        colon = skip(text, key.end()) if key else at
        if not key or text[colon : colon + 1] != ":":
            raise ValueError(f"not JSON, at line {text.count(chr(10), 0, at) + 1}")
        value = skip(text, colon + 1)
        end = value_end(text, value)
        members.append(Member(json.loads(key[0]), at, value, end))
        at = after_comma(text, end, "}")
    return members, at + 1


def with_member(text, at, name, value, depth):
    """Return the text with a member set in the object that begins here."""
    members, end = members_of(text, at)
    shown = json.dumps(value, indent=2).replace("\n", "\n" + "  " * depth)
    for each in members:
        if each.name == name:
            return text[: each.value] + shown + text[each.end :]
    added = f"\n{'  ' * depth}{json.dumps(name)}: {shown}"
    if not members:
        return f"{text[: at + 1]}{added}\n{'  ' * (depth - 1)}{text[at + 1 :].lstrip()}"
    last = members[-1].end
    return f"{text[:last]},{added}{text[last:]}"


def without_member(text, at, name):
    """Return the text without a member of the object that begins here."""
    for each in members_of(text, at)[0]:
        if each.name == name:
            rest = skip(text, each.end)
            if text[rest : rest + 1] == ",":
                return text[: each.start] + text[skip(text, rest + 1) :]
            before = text[: each.start].rstrip()
            return before[: -1 if before.endswith(",") else None] + text[each.end :]
    raise ValueError(f"no server {name}")


def changed(text, program, name, entry):
    """Return the text of a config with an entry set, or removed if it is None."""
    text = text if text.strip() else "{}\n"
    start = skip(text, 0)
    if text[start : start + 1] != "{":
        raise ValueError("expected a JSON object")
    for each in members_of(text, start)[0]:
        if each.name == program.member:
            if text[each.value] != "{":
                raise ValueError(f"{program.member}: expected an object")
            if entry is None:
                return without_member(text, each.value, name)
            return with_member(text, each.value, name, entry, 2)
    if entry is None:
        raise ValueError(f"no server {name}")
    return with_member(text, start, program.member, {name: entry}, 1)


def entry_of(server, env, program):
    """Return the entry of a server, with absolute paths. Raises ValueError."""
    if re.match(r"https?://", server):
        if not program.takes_url:
            raise ValueError(
                "this program takes no URL in its file; install bridge.py: "
                f'"python3 examples/bridge.py {server}"'
            )
        return {**({"type": "http"} if program.has_type else {}), "url": server}
    words = [server] if os.path.exists(server) else shlex.split(server)
    if words[0].endswith(".py"):
        words.insert(0, sys.executable)
    command = shutil.which(words[0])
    if command is None:
        raise ValueError(f"{words[0]}: no such script or command")
    args = [os.path.abspath(each) if os.path.exists(each) else each for each in words]
    entry = {"type": "stdio"} if program.has_type else {}
    entry.update(command=os.path.abspath(command), args=args[1:])
    return {**entry, "env": env} if env else entry


def write(path, text):
    """Write a file at once, and keep the old one beside it. Returns the latter's path."""
    path = os.path.realpath(path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    backup = None
    if os.path.exists(path):
        # Two changes may fall into one second.
        stamp = f"{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 10**9:09}"
        backup = f"{path}.{stamp}.bak"
        shutil.copy2(path, backup)
    with open(f"{path}.new", "w", encoding="utf-8", newline="") as file:
        # What may have secrets stays as private as it was.
        if backup is not None:
            shutil.copymode(path, file.name)
        file.write(text)
    os.replace(file.name, path)
    return backup


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("server", nargs="?", help="a script, a URL, or a command")
    parser.add_argument("--into", choices=PROGRAMS, default="claude")
    parser.add_argument("--name", help="else that of the script")
    parser.add_argument("--env", action="append", default=[], metavar="K=V")
    parser.add_argument("--file", help="another config file of such a program")
    parser.add_argument("--remove", action="store_true", help="take it out again")
    parser.add_argument("--print", action="store_true", help="write nothing")
    options = parser.parse_args()
    program = PROGRAMS[options.into]
    path = options.file or program.path
    if not options.server and not (options.remove and options.name):
        parser.error("name a server; or --remove and --name")
    if not all("=" in each for each in options.env):
        parser.error("--env: expected K=V")
    name = options.name
    if not name:
        words = options.server.split()
        name = os.path.splitext(os.path.basename(words[-1].rstrip("/")))[0]
    try:
        env = dict(each.split("=", 1) for each in options.env)
        entry = None if options.remove else entry_of(options.server, env, program)
        text = ""
        if os.path.exists(path):
            with open(path, encoding="utf-8-sig", newline="") as file:
                text = file.read()
        text = changed(text, program, name, entry)
        # Nothing is written that could not be read again.
        members_of(text, skip(text, 0))
        if options.print:
            print(text, end="")
            return
        backup = write(path, text)
    except (OSError, ValueError, RecursionError) as error:
        sys.exit(f"install: {path}: {error}")
    done = "removed from" if options.remove else "written to"
    print(f"{name}: {done} {path}" + (f"; before: {backup}" if backup else ""))
    print(f"Restart {options.into}: it reads the file when it starts.")


if __name__ == "__main__":
    main()
