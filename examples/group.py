"""Several servers as one client, from a config file as desktop clients write it.

Teaches: how a client stands on top of clients, and outlives one that fails.

Run: python3 examples/group.py mcp.json    lists the tools of all its servers

The file is what Claude Desktop and Cursor (`mcpServers`) or VS Code (`servers`) have:
JSON with comments and trailing commas; ~, ${VAR}, ${env:VAR} and ${VAR:-default} are
replaced. Name the file: none is looked for, as it says what is to be run.
"""

import argparse
import json
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor

# mcp_lite.py is one folder up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from mcp_lite import Client, McpError, MethodNotFound, NotFound  # noqa: E402

# A text is matched first, so that nothing inside it is taken for a comment or a comma.
TEXT = r'("(?:[^"\\]|\\.)*"?)'
COMMENT = TEXT + r"|//[^\n]*|/\*(?:.*?\*/|.*)"
TRAILING_COMMA = TEXT + r"|,(?=\s*[}\]])"
VARIABLE = r"\$\{([^}]*)\}"
SERVERS = {"mcpServers", "servers"}
MEMBERS = ("command", "args", "env", "cwd", "url", "headers")


class Config(dict):
    """Targets by name, in the file's order. errors: a ValueError for each bad entry."""


def load_config(source):
    """Return the Config of a file's path, or of a dict like its content.

    Raises OSError, or ValueError for what is no config; a bad entry is in `errors`.
    """
    is_file = not isinstance(source, dict)
    # A dict is not shown: its values may be secrets.
    place = source if is_file else "config"
    servers = content = parse_loose_json(source) if is_file else source
    if isinstance(content, dict):
        servers = content.get("mcpServers", content.get("servers", content))
    if not isinstance(servers, dict):
        kind = type(servers).__name__
        raise ValueError(f'{place}: expected "mcpServers" or "servers", got {kind}')
    config = Config()
    config.errors = {}
    for name, entry in servers.items():
        try:
            if entry.get("disabled") is not True:
                known = [member for member in MEMBERS if member in entry]
                config[name] = {each: expand(entry[each]) for each in known}
        except (AttributeError, ValueError) as error:
            config.errors[name] = ValueError(f"{name}: {error}")
    return config


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
    """Return a text as it is; for a comment its line ends; for a comma nothing."""
    return match[1] or "\n" * match[0].count("\n")


def expand(value):
    """Return a value with its variables and its ~ replaced; numbers become texts."""
    if isinstance(value, dict):
        return {key: expand(value[key]) for key in value}
    if isinstance(value, list):
        return [expand(each) for each in value]
    if not isinstance(value, str):
        return json.dumps(value)
    return re.sub(VARIABLE, look_up, os.path.expanduser(value))


def look_up(match):
    """Return the value of a variable, or its default."""
    name, has_default, default = match[1].partition(":-")
    known = os.environ.get(name[4:] if name.startswith("env:") else name)
    if known is None and not has_default:
        raise ValueError(f"the variable {name} is not set")
    return known or default


class ClientGroup:
    """Several servers as one; a context manager. Options are those of Client.

    source: a config's path, or a dict like its content, or of names and targets.
    clients: the connected Clients by name; group[name] is one of them.
    errors: why a server is not there, or failed last, by name.
    Tools and prompts have names SERVER_NAME here; a table says whose each is.
    """

    def __init__(self, source, **client_options):
        is_config = not isinstance(source, dict) or SERVERS.intersection(source)
        config = load_config(source) if is_config else source
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
        """Return {name: action(client)}, done side by side; `errors` gets failures."""
        results = {}
        with ThreadPoolExecutor(max(1, len(clients))) as pool:
            running = {name: pool.submit(action, clients[name]) for name in clients}
        for name, future in running.items():
            try:
                results[name] = future.result()
                self.errors.pop(name, None)
            except Exception as error:
                self.errors[name] = error
        return results

    def __enter__(self):
        self.clients = self._each(self._all, Client.connect)
        return self

    def __exit__(self, *exc_info):
        self._each(self.clients, Client.close)

    def __getitem__(self, name):
        if name in self.clients:
            return self.clients[name]
        raise self.errors.get(name, KeyError(name))

    def _list(self, kind, read):
        """Return the items of all servers, each under its name here."""
        listed = []
        for server, items in self._each(self.clients, read).items():
            prefix = re.sub(r"[^A-Za-z0-9_.-]", "_", server) + "_"
            for item in items:
                owner = server, item["name"]
                name = prefix + item["name"]
                # setdefault is one step, whichever threads are here at once.
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
        """Return (client, name there) of a tool or prompt; look it up if need be."""
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
        """Read a resource of the first server that knows it: see Client.read()."""
        failure = NotFound(f"{uri}: no server has it")
        for client in self.clients.values():
            try:
                return client.read(uri)
            except (NotFound, MethodNotFound):
                continue
            except McpError as error:
                # Some servers have an error of their own for an unknown URI.
                failure = error
        raise failure


def printable(text):
    """Return a text of a server's in one line. Anything that does not print is escaped,
    as it might steer a terminal, or whatever reads a pipe line by line."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("config", help="a file as desktop clients write it")
    try:
        group = ClientGroup(parser.parse_args().config)
    except (OSError, ValueError) as error:
        sys.exit(f"group: {printable(str(error))}")
    with group:
        for tool in group.list_tools():
            print(printable(f"{tool['name']}  {tool.get('description', '')}"))
        for name, error in group.errors.items():
            print(printable(f"without {name}: {error}"), file=sys.stderr)


if __name__ == "__main__":
    main()
