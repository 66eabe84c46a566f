"""Adds a server to the config of a desktop program, or removes it again.

Teaches: how such a program starts a server: without a shell and in another folder, so
every path must be absolute, and a module of this folder needs PYTHONPATH; and how to edit
a file that belongs to somebody else.

Run: python3 examples/install.py server.py --into claude
     python3 examples/install.py server.py --into vscode --name weather --env KEY=VALUE
     python3 examples/install.py --into cursor -- npx -y some-server --its-own options
     python3 examples/install.py --remove --name weather --into cursor

SERVER is a script, FILE:object, a URL, or a command. --print shows the new file without
writing it. Nothing else in the file changes, comments included; an entry that is there
already keeps its other variables and settings. A copy of the old file stays beside it,
with the time in its name. The program reads the file when it starts, so restart it.
If the server then misses a program that your shell finds, add --env PATH="$PATH".
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
from contextlib import suppress
from urllib.parse import urlsplit

HERE = os.path.dirname(os.path.abspath(__file__))
HOME = os.path.expanduser("~")
# Where programs keep a user's settings.
SETTINGS = {
    "win32": os.environ.get("APPDATA", HOME),
    "darwin": os.path.join(HOME, "Library", "Application Support"),
}.get(sys.platform) or os.environ.get("XDG_CONFIG_HOME", os.path.join(HOME, ".config"))

# A program's config file, the member that has the servers, whether an entry names its
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
# A member of an object: its name, and the offsets of its key, its value and its end.
Member = namedtuple("Member", "name start value end")
# Words of a command in front of the server's own name.
RUNNER = re.compile(
    r"(python[\d.]*|pypy3?|uvx?|npx|node|bunx?|deno|docker|podman|run)(\.exe|\.cmd)?"
)


def skip(text, at):
    """Return the offset behind white space and comments."""
    return BLANK.match(text, at).end()


def value_end(text, at):
    """Return the offset behind the value that begins here. Raises ValueError."""
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
    """Return the offset of the next element, or of the closing bracket."""
    at = skip(text, at)
    if text[at : at + 1] == ",":
        return skip(text, at + 1)
    if text[at : at + 1] != closing:
        raise ValueError(f"not JSON, at line {text.count(chr(10), 0, at) + 1}")
    return at


def members_of(text, at):
    """Return the Members of the object that begins here, and the offset behind it."""
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
    """Return the text with a member set in the object that begins here. If the member
    has this value, the text stays as it is."""
    members, _ = members_of(text, at)
    # Indent as the file does.
    indented = re.search(r'\n([ \t]+)"', text)
    unit = indented[1] if indented else "  "
    shown = json.dumps(value, indent=unit).replace("\n", "\n" + unit * depth)
    for each in members:
        if each.name == name:
            # A value with comments cannot be compared.
            with suppress(ValueError):
                if json.loads(text[each.value : each.end]) == value:
                    return text
            return text[: each.value] + shown + text[each.end :]
    added = f"\n{unit * depth}{json.dumps(name)}: {shown}"
    if not members:
        return f"{text[: at + 1]}{added}\n{unit * (depth - 1)}{text[at + 1 :].lstrip()}"
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


def with_entry(text, at, entry, depth):
    """Return the text with the entry that begins here brought up to date. It keeps what
    it has beside: variables of its environment, and settings of the program."""
    for name in {"command", "args", "url"} - entry.keys():
        if name in (each.name for each in members_of(text, at)[0]):
            text = without_member(text, at, name)
    for name, value in entry.items():
        old = {each.name: each.value for each in members_of(text, at)[0]}
        is_merged = name == "env" and name in old and text[old[name]] == "{"
        if is_merged:
            for key in value:
                text = with_member(text, old[name], key, value[key], depth + 1)
        else:
            text = with_member(text, at, name, value, depth)
    return text


def changed(text, program, name, entry):
    """Return the text of a config with an entry set; None removes the entry."""
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
            for old in members_of(text, each.value)[0]:
                if old.name == name and text[old.value] == "{":
                    return with_entry(text, old.value, entry, 3)
            return with_member(text, each.value, name, entry, 2)
    if entry is None:
        raise ValueError(f"no server {name}")
    return with_member(text, start, program.member, {name: entry}, 1)


def name_of(words):
    """Return a name for a server: its host's, its script's or its package's."""
    for word in words:
        base = re.split(r"[\\/]", word.rstrip("/"))[-1]
        if is_url(word):
            return urlsplit(word).hostname
        if not word.startswith("-") and not RUNNER.fullmatch(base):
            # Without a version, such as @1.2 or :latest, and without .py
            return os.path.splitext(re.split("[@:]", base)[0])[0]
    return words[0]


def is_url(word):
    return word.startswith(("http://", "https://"))


def file_of(word):
    """Return the path in a word, which may be that of FILE:object."""
    return re.sub(r"(?<=\.py):\w+$", "", word)


def library_path():
    """Return the path of mcp_lite.py: in this folder, or one up."""
    beside = os.path.join(HERE, "mcp_lite.py")
    above = os.path.join(os.path.dirname(HERE), "mcp_lite.py")
    return beside if os.path.exists(beside) else above


def is_module_here(before, word):
    """Return whether a word is a module in the current folder: of `-m package.module`,
    or of `run package.module:object`."""
    if before != "-m" and not (before == "run" and re.fullmatch(r"[\w.]+:\w+", word)):
        return False
    name = re.split("[.:]", word)[0]
    return os.path.isdir(name) or os.path.isfile(f"{name}.py")


def entry_of(words, env, program):
    """Return the entry of a server, with absolute paths. Raises ValueError.

    words: of its command, or its URL alone
    """
    entry = {}
    if is_url(words[0]):
        if not program.takes_url:
            raise ValueError(
                "the config of this program takes no URL; install bridge.py: "
                f'"python3 examples/bridge.py {words[0]}"'
            )
        if program.has_type:
            entry["type"] = "http"
        return {**entry, "url": words[0]}
    if re.search(r"\.py:\w+$", words[0]):
        words = [sys.executable, library_path(), "run", *words]
    for word in words[:2]:
        # The program would fail to start it, and tell nobody.
        if word.endswith(".py") and not os.path.exists(word):
            raise ValueError(f"{word}: no such script")
    if words[0].endswith(".py"):
        words = [sys.executable, *words]
    command = shutil.which(words[0])
    if command is None:
        raise ValueError(f"{words[0]}: no such script or command")
    args = []
    for before, word in zip(words, words[1:]):
        # A module, unlike a file, keeps its name.
        is_path = os.path.exists(file_of(word)) and before != "-m"
        args.append(os.path.abspath(word) if is_path else word)
        if is_module_here(before, word):
            # The program starts the server in another folder.
            env = {"PYTHONPATH": os.getcwd(), **env}
    if program.has_type:
        entry["type"] = "stdio"
    entry.update(command=os.path.abspath(command), args=args)
    return {**entry, "env": env} if env else entry


def write(path, text):
    """Replace a file in one step, and keep a copy of the old one. Returns the path of
    that copy, or None if there was no file."""
    path = os.path.realpath(path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    backup = None
    if os.path.exists(path):
        # Two changes may fall into one second.
        stamp = f"{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 10**9:09}"
        backup = f"{path}.{stamp}.bak"
        shutil.copy2(path, backup)
    with open(f"{path}.new", "w", encoding="utf-8", newline="") as file:
        # The file may have secrets, so it stays as private as it was.
        if backup is not None:
            shutil.copymode(path, file.name)
        file.write(text)
    os.replace(file.name, path)
    return backup


def print_out(text, end="\n"):
    """Print a text. It is no error if a reader such as `head` has had enough."""
    try:
        print(text, end=end, flush=True)
    except BrokenPipeError:
        # Nobody reads the rest. Python will flush stdout again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.error = lambda why: sys.exit(f"install: {why}; see --help")
    parser.add_argument("server", nargs="*", help="a script, a URL, or a command")
    parser.add_argument(
        "--into", choices=PROGRAMS, default="claude", help="by default, claude"
    )
    parser.add_argument(
        "--name", help="by default, that of the script, package or host"
    )
    parser.add_argument(
        "--env", action="append", default=[], metavar="K=V", help="may be repeated"
    )
    parser.add_argument("--file", help="a config file in another place")
    parser.add_argument("--remove", action="store_true", help="remove the server")
    parser.add_argument("--print", action="store_true", help="show, and do not write")
    options = parser.parse_args()
    program = PROGRAMS[options.into]
    path = options.file or program.path
    if not all("=" in each for each in options.env):
        parser.error("--env: expected K=V")
    env = dict(each.split("=", 1) for each in options.env)
    words = options.server
    entry = None
    try:
        if len(words) == 1 and not os.path.exists(file_of(words[0])):
            # A backslash of Windows is no escape.
            parts = shlex.split(words[0], posix=os.name != "nt")
            words = [each.strip('"') for each in parts]
        if not words and not (options.remove and options.name):
            raise ValueError("give a server; or --remove and --name")
        name = options.name or name_of(words)
        if not options.remove:
            entry = entry_of(words, env, program)
    except ValueError as error:
        parser.error(str(error))
    try:
        old = ""
        if os.path.exists(path):
            with open(path, encoding="utf-8-sig", newline="") as file:
                old = file.read()
        text = changed(old, program, name, entry)
        # Nothing is written that could not be read again.
        members_of(text, skip(text, 0))
        if options.print:
            print_out(text, end="")
            return
        if text == old:
            print(f"{name}: {path} has it already")
            return
        backup = write(path, text)
    except (OSError, ValueError, RecursionError) as error:
        sys.exit(f"install: {path}: {error}")
    done = "removed from" if options.remove else "written to"
    print(f"{name}: {done} {path}" + (f"; the old file: {backup}" if backup else ""))
    print(f"Restart {options.into}: it reads the file when it starts.")


if __name__ == "__main__":
    main()
