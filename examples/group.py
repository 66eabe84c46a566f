"""Several servers as one client, from the config file of a desktop program.

Teaches: how to build one client from several, which survives the failure of any of them.

Run: python3 examples/group.py mcp.json    lists the tools of all its servers
It also says which servers are missing; if all are, the exit code is 4.

The file is what Claude Desktop, Cursor, Windsurf and Gemini CLI (`mcpServers`), VS Code
(`servers`), Zed (`context_servers`) or opencode (`mcp`) have, alone or among a program's
other settings: JSON with comments and trailing commas. ~, ${VAR}, ${env:VAR},
${VAR:-default} and $VAR are replaced; `envFile` is read, but not from the folder that an
editor has open, `${workspaceFolder}`. An entry that says `disabled`, or
`"enabled": false`, is left out. A member that cannot be understood is an error of its
entry; the error names the member, but never shows its value. The file must be named: as
it says which programs are run, this example does not search for one.
"""

import argparse
import json
import os
import re
import sys
import threading
import time
from concurrent.futures import Future
from functools import partial

# mcp_lite.py is in this folder, or one up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.dirname(HERE))

from mcp_lite import Client, NotFound, Timeout, printable  # noqa: E402

# Strings are matched first, so that nothing inside one is taken for a comment or a comma.
TEXT = r'("(?:[^"\\]|\\.)*"?)'
COMMENT = TEXT + r"|//[^\n]*|/\*(?:.*?\*/|.*)"
TRAILING_COMMA = TEXT + r"|,(?=\s*[}\]])"
VARIABLE = r"\$\{([^}]*)\}|\$([A-Za-z_][A-Za-z0-9_]*)"
# The members that may have the servers; the first one present counts. In the last one,
# the servers may be one level deeper.
SERVERS = ("mcpServers", "servers", "context_servers", "mcp")
# What clients call a member -> its name here, and its type.
MEMBERS = {
    "command": ("command", str),
    "args": ("args", list),
    "env": ("env", dict),
    "environment": ("env", dict),
    "envFile": ("envFile", str),
    "cwd": ("cwd", str),
    "url": ("url", str),
    "serverUrl": ("url", str),
    "httpUrl": ("url", str),
    "headers": ("headers", dict),
}
KINDS = {str: "text", list: "a list", dict: "an object", bool: "true or false"}
# NAME=value in a file of variables; the value may be in quotes
ENV_LINE = re.compile(
    r"""\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*("[^"]*"|'[^']*'|[^#\n]*)"""
)
PATIENCE = 20.0  # seconds for which a group waits for one server


class Config(dict):
    """Targets by name, in the file's order. errors: a ValueError for each bad entry."""


def load_config(source):
    """Return the Config in a file, by its path, or in a dict like its content.

    Raises OSError, or ValueError if it is not a config. A bad entry is in `errors`.
    """
    is_file = not isinstance(source, dict)
    # A dict is not shown: its values may be secrets.
    place = source if is_file else "config"
    content = parse_loose_json(source) if is_file else source
    config = Config()
    config.errors = {}
    for name, entry in find_servers(content, place).items():
        try:
            if is_wanted(entry):
                config[name] = read_entry(entry)
        except (OSError, ValueError) as error:
            config.errors[name] = ValueError(f"{name}: {error}")
    return config


def find_servers(content, place):
    """Return the object in a config that has the servers. Raises ValueError."""
    wanted = f'{place}: expected "mcpServers" or "servers"'
    if not isinstance(content, dict):
        raise ValueError(f"{wanted}, got {type(content).__name__}")
    for name in SERVERS:
        if name not in content:
            continue
        servers = content[name]
        if not isinstance(servers, dict):
            raise ValueError(f"{place}: {name}: expected an object")
        is_deeper = name == "mcp" and {"servers", "mcpServers"}.intersection(servers)
        return find_servers(servers, f"{place}: mcp") if is_deeper else servers
    if not content:
        raise ValueError(f"{wanted}, got nothing")
    # The file may consist of the servers alone.
    for name, entry in content.items():
        if not isinstance(entry, dict) or not {*MEMBERS}.intersection(entry):
            raise ValueError(f"{wanted}; {show(name)} is not a server")
    return content


def show(name):
    """Return a member's name as an error shows it."""
    return json.dumps(str(name)[:60])


def is_wanted(entry):
    """Return whether an entry is switched on. Raises ValueError."""
    if not isinstance(entry, dict):
        raise ValueError("expected an object")
    for name in ("disabled", "enabled"):
        check(name, entry.get(name), bool)
    return entry.get("disabled") is not True and entry.get("enabled") is not False


def check(name, value, kind):
    """Raise ValueError for a member of another type. null counts as absent."""
    if value is not None and not isinstance(value, kind):
        raise ValueError(f"{name}: expected {KINDS[kind]}")


def read_entry(entry):
    """Return an entry as a Client takes it. Raises OSError, ValueError."""
    command = entry.get("command")
    if isinstance(command, dict):
        # Zed: {"path": ..., "args": ..., "env": ...}
        entry = {**entry, **command, "command": command.get("path")}
    if isinstance(command, list) and command and entry.get("type") == "local":
        # opencode: the program and its arguments
        check("args", entry.get("args"), list)
        more = entry.get("args") or []
        entry = {**entry, "command": command[0], "args": [*command[1:], *more]}
    target = {}
    for their_name, (name, kind) in MEMBERS.items():
        value = entry.get(their_name)
        check(their_name, value, kind)
        if value is None or name in target or is_for_editors(their_name, value):
            continue
        target[name] = expand(value, is_strict=name in ("url", "headers"))
    if "command" not in target and "url" not in target:
        raise ValueError("neither command nor url")
    if "envFile" in target:
        target["env"] = {**read_env(target.pop("envFile")), **target.get("env", {})}
    return target


def is_for_editors(name, value):
    """Return whether only an editor knows which file an `envFile` is: the folder that is
    open has no name here. The server may do without."""
    return name == "envFile" and value.startswith("${workspaceFolder}")


def read_env(path):
    """Return the variables in a file. Raises OSError."""
    with open(path, encoding="utf-8-sig") as file:
        found = [ENV_LINE.match(line) for line in file]
    return {
        each[1]: re.sub(r"""^(["'])(.*)\1$""", r"\2", each[2].strip())
        for each in found
        if each is not None
    }


def parse_loose_json(path):
    """Return the value in a file of JSON with comments and trailing commas."""
    with open(path, encoding="utf-8-sig") as file:
        text = file.read()
    for pattern in (COMMENT, TRAILING_COMMA):
        text = re.sub(pattern, keep_text, text, flags=re.DOTALL)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON: {error}") from None


def keep_text(match):
    """Return a string as it is, a comment's line ends, and nothing for a comma."""
    return match[1] or "\n" * match[0].count("\n")


def expand(value, is_strict):
    """Return a value with its variables and its ~ replaced. Numbers become texts, and
    null is left out.

    is_strict: whether $NAME must be set; if not, a $ may be part of a text
    """
    if isinstance(value, dict):
        known = {key: value[key] for key in value if value[key] is not None}
        return {key: expand(known[key], is_strict) for key in known}
    if isinstance(value, list):
        return [expand(each, is_strict) for each in value if each is not None]
    if not isinstance(value, str):
        return json.dumps(value)
    return re.sub(
        VARIABLE, partial(look_up, is_strict=is_strict), os.path.expanduser(value)
    )


def look_up(match, is_strict):
    """Return the value of a variable, or its default. Raises ValueError."""
    name, has_default, default = (match[1] or match[2] or "").partition(":-")
    known = os.environ.get(name[4:] if name.startswith("env:") else name)
    if known is None and match[2] is not None and not is_strict:
        return match[0]
    if known is None and not has_default:
        raise ValueError(f"the variable {name} is not set")
    return known or default


class ClientGroup:
    """Several servers as one; a context manager. Options are those of Client.

    source: a config's path, a dict like its content, or a dict of names and targets.
    patience: seconds for which the group waits for one server. A server that is late
        joins when it is ready.
    clients: the connected Clients by name; group[name] is one of them.
    errors: by name, why a server is missing, or its last failure.
    Tools and prompts are called SERVER_NAME here; a table says which server has which. A
    resource is read from the first server that lists it.
    """

    def __init__(self, source, patience=PATIENCE, **client_options):
        is_config = not isinstance(source, dict) or {*SERVERS}.intersection(source)
        config = load_config(source) if is_config else source
        self.patience = patience
        self.errors = dict(getattr(config, "errors", {}))
        self.clients = {}
        self._all = {}
        # (kind, name here) -> (server, name there)
        self._owners = {}
        for name, target in config.items():
            try:
                self._all[name] = Client(target, **client_options)
            except (TypeError, ValueError) as error:
                self.errors[name] = error

    def _each(self, clients, action):
        """Return {name: action(client)}, run side by side. Failures, and servers that are
        late, are noted in `errors`."""
        running = {}
        for name, client in clients.items():
            running[name] = Future()
            threading.Thread(
                target=run, args=(running[name], action, client), daemon=True
            ).start()
        until = time.monotonic() + self.patience
        results = {}
        for name, future in running.items():
            try:
                results[name] = future.result(max(0.0, until - time.monotonic()))
                self.errors.pop(name, None)
            except Exception as error:
                late = Timeout(f"no answer within {self.patience:g} s")
                self.errors[name] = error if future.done() else late
        if action is Client.connect:
            for name, future in running.items():
                future.add_done_callback(partial(self._join, name))
        return results

    def _join(self, name, future):
        """Add a server that was late to the group."""
        if future.exception() is not None:
            return
        if not self._is_open:
            # The group was closed meanwhile.
            future.result().close()
        elif name not in self.clients:
            self.clients[name] = future.result()
            self.errors.pop(name, None)

    def __enter__(self):
        self.clients = {}
        self._is_open = True
        connected = self._each(self._all, Client.connect)
        self.clients = {**connected, **self.clients}
        return self

    def __exit__(self, *exc_info):
        self._is_open = False
        errors = dict(self.errors)
        # Also those that are still connecting.
        self._each(self._all, Client.close)
        self.errors = errors

    def __getitem__(self, name):
        if name in self.clients:
            return self.clients[name]
        raise self.errors.get(name, KeyError(name))

    def _list(self, kind, read):
        """Return the items of all servers, each under its name here."""
        listed = []
        for server, items in self._each(self.clients, read).items():
            prefix = re.sub(r"[^A-Za-z0-9_.-]", "_", server) + "_"
            # Nobody can ask for an item that has no name.
            for item in (each for each in items if "name" in each):
                owner = server, item["name"]
                name = prefix + item["name"]
                # setdefault is atomic, so several threads may do this at once.
                while self._owners.setdefault((kind, name), owner) != owner:
                    prefix += "_"
                    name = prefix + item["name"]
                listed.append({**item, "name": name})
        return listed

    def list_tools(self):
        """Return the tools of all servers."""
        return self._list("tool", Client.list_tools)

    def list_prompts(self):
        """Return the prompts of all servers."""
        return self._list("prompt", Client.list_prompts)

    def list_resources(self, read=Client.list_resources):
        """Return the resources of all servers, under their own URIs."""
        return sum(self._each(self.clients, read).values(), [])

    def list_resource_templates(self):
        """Return the resource templates of all servers."""
        return self.list_resources(Client.list_resource_templates)

    def _find(self, kind, name, read):
        """Return (client, its own name) of a tool or prompt; look it up if need be."""
        if (kind, name) not in self._owners:
            self._list(kind, read)
        if (kind, name) not in self._owners:
            absent = f"; not connected: {', '.join(self.errors)}" if self.errors else ""
            raise NotFound(f"{name}: no server has this {kind}{absent}")
        server, own_name = self._owners[kind, name]
        return self[server], own_name

    def call(self, name, /, *given, **arguments):
        """Call a tool: see Client.call()."""
        client, tool = self._find("tool", name, Client.list_tools)
        return client.call(tool, *given, **arguments)

    def call_tool(self, name, arguments=None, **options):
        """Call a tool: see Client.call_tool()."""
        client, tool = self._find("tool", name, Client.list_tools)
        return client.call_tool(tool, arguments, **options)

    def get_prompt(self, name, arguments=None):
        """Get a prompt: see Client.get_prompt()."""
        client, prompt = self._find("prompt", name, Client.list_prompts)
        return client.get_prompt(prompt, arguments)

    def read(self, uri):
        """Read a resource of the first server that lists it: see Client.read().

        No server that does not list it sees the URI, and none can answer in its place.
        Raises NotFound if no server has it. To read it from another server that lists
        it as well, use group[NAME].
        """
        listed = self._each(self.clients, Client.list_resources)
        owners = [
            name
            for name, resources in listed.items()
            if any(each.get("uri") == uri for each in resources)
        ]
        if not owners:
            templates = self._each(self.clients, Client.list_resource_templates)
            owners = owners_by_template(uri, templates)
        if owners:
            return self.clients[owners[0]].read(uri)
        raise NotFound(f"{uri}: no server has it")


def owners_by_template(uri, templates):
    """Return the servers whose templates have the longest beginning in common with a
    URI."""
    lengths = {}
    for name, items in templates.items():
        for item in items:
            # The text before the first variable. An empty one would fit any URI.
            begin = str(item.get("uriTemplate", "")).partition("{")[0]
            if ":" in begin and uri.startswith(begin):
                lengths[name] = max(len(begin), lengths.get(name, 0))
    longest = max(lengths.values(), default=0)
    return [name for name in lengths if lengths[name] == longest]


def run(future, action, client):
    """Do something with a client, and settle the future with the outcome."""
    try:
        future.set_result(action(client))
    except BaseException as error:
        future.set_exception(error)


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
    parser.error = lambda why: sys.exit(f"group: {why}; see --help")
    parser.add_argument("config", help="the config file of a desktop program")
    try:
        group = ClientGroup(parser.parse_args().config)
    except (OSError, ValueError) as error:
        sys.exit(printable(f"group: {error}"))
    with group:
        for tool in group.list_tools():
            print_out(printable(f"{tool['name']}  {tool.get('description', '')}"))
        for name, error in group.errors.items():
            print(printable(f"without {name}: {error}"), file=sys.stderr)
        if group.errors and not group.clients:
            sys.exit(4)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
