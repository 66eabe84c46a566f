"""The server of a tutorial on the raw protocol: 250 lines have become three functions.

Teaches: you need not write a handshake, routing or framing; and an expression of a
stranger is parsed, never eval'ed.

Run: echo '{"jsonrpc":"2.0","id":1,"method":"ping"}' | python3 examples/raw_server.py
"""

import ast
import datetime
import operator
import os
import platform
import sys
import time

# mcp_lite.py is one folder up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from mcp_lite import Server, ToolError  # noqa: E402

server = Server("raw-mcp-server", version="1.0.0")
STARTED = time.monotonic()
# What an expression may hold.
BINARY = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
UNARY = {ast.UAdd: operator.pos, ast.USub: operator.neg}
# What the parser and the arithmetic may raise.
NOT_COMPUTABLE = (
    SyntaxError,
    ValueError,
    ArithmeticError,
    RecursionError,
    MemoryError,
)


def evaluate(node):
    """Return the value of an arithmetic expression's syntax tree.

    Anything else in it is refused with a ToolError.
    """
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    if isinstance(node, ast.UnaryOp) and type(node.op) in UNARY:
        return UNARY[type(node.op)](evaluate(node.operand))
    if isinstance(node, ast.BinOp) and type(node.op) in BINARY:
        left = evaluate(node.left)
        right = evaluate(node.right)
        # Few digits suffice for a power that takes hours.
        if isinstance(node.op, ast.Pow) and (abs(left) > 1e6 or abs(right) > 64):
            raise ToolError("the power is too large")
        return BINARY[type(node.op)](left, right)
    raise ToolError("only numbers, + - * / // % ** and parentheses are understood")


@server.tool
def calculate(expression: str) -> str:
    """Evaluate a mathematical expression, such as "2 + 3 * 4"."""
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        return str(evaluate(tree.body))
    except NOT_COMPUTABLE as error:
        raise ToolError(f"cannot evaluate {expression[:60]!r}: {error}") from None


@server.tool
def get_timestamp() -> str:
    """Get the current UTC timestamp in ISO 8601 format."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat()


@server.resource("server://info", name="Server Information")
def info() -> dict:
    """Tell the server's status and configuration."""
    return {
        "server": {"name": server.name, "version": server.version},
        "uptime": time.monotonic() - STARTED,
        "pythonVersion": platform.python_version(),
        "platform": sys.platform,
        "pid": os.getpid(),
    }


if __name__ == "__main__":
    server.run()
