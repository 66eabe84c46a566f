"""A span for each request, on the server and on the client.

Teaches: a use of Server.middleware; and how a trace continues on the other side: the
client puts `traceparent` into `_meta`, where the server finds it. Spans and attributes
have OpenTelemetry's names:
https://opentelemetry.io/docs/specs/semconv/gen-ai/mcp/

Run: python3 examples/otel.py
     opentelemetry-instrument --traces_exporter console python3 examples/otel.py
With opentelemetry-api installed, the spans are OpenTelemetry's. Without it, each span is
printed on a line. For your own program, copy everything but main().
"""

import argparse
import contextlib
import os
import re
import sys

# mcp_lite.py is in this folder, or one up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.dirname(HERE))

from mcp_lite import Client, Server, ToolError, printable  # noqa: E402

MAX_NAME = 100  # characters of a name in a span

try:
    from opentelemetry import propagate, trace
except ImportError:
    trace = None


def trace_request(ctx, method, params, call_next):
    """The middleware: make a span for each request, as a child of its client's span."""
    with request_span("SERVER", method, params, ctx.meta) as span:
        result = call_next()
        if result.get("isError") is True:
            span.set_attribute("error.type", "tool_error")
        return result


def call_tool(client, name, **arguments):
    """Call a tool like client.call(), in a span that is the parent of the server's."""
    with request_span("CLIENT", "tools/call", {"name": name}):
        return client.start_call(name, arguments, meta=context_to_tell()).value()


@contextlib.contextmanager
def request_span(kind, method, params, meta=None):
    """Make a span around a request. meta: its `_meta`, which names its trace."""
    # The caller may send any text, of any length.
    target = printable(str(params.get("name", "")))[:MAX_NAME]
    method = printable(method)[:MAX_NAME]
    attributes = {"mcp.method.name": method}
    if method == "tools/call":
        attributes["gen_ai.tool.name"] = target
        attributes["gen_ai.operation.name"] = "execute_tool"
    with open_span(kind, f"{method} {target}".strip(), attributes, meta) as span:
        try:
            yield span
        except Exception as error:
            # A question to a modern client is raised, too, but not as an Exception.
            kind = getattr(error, "code", type(error).__name__)
            if isinstance(error, ToolError):
                kind = "tool_error"
            span.set_attribute("error.type", str(kind))
            raise


if trace is not None:

    def open_span(kind, name, attributes, meta):
        """Make an OpenTelemetry span."""
        context = None
        if meta is not None:
            # The caller may send anything, and extract() wants texts.
            texts = {name: meta[name] for name in meta if isinstance(meta[name], str)}
            context = propagate.extract(texts)
        return trace.get_tracer("mcp_lite").start_as_current_span(
            name,
            kind=trace.SpanKind[kind],
            attributes=attributes,
            context=context,
        )

    def context_to_tell():
        """Return the members of `_meta` with which the server continues the trace."""
        headers = {}
        propagate.inject(headers)
        return headers

else:
    from contextvars import ContextVar

    # version-trace-parent-flags, in hexadecimal: W3C Trace Context. Zeros are not an id.
    TRACEPARENT = re.compile(
        "(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}"
    )
    # The span around the current code, in the form for other programs.
    AROUND = ContextVar("AROUND")

    class PrintedSpan(dict):
        set_attribute = dict.__setitem__

    @contextlib.contextmanager
    def open_span(kind, name, attributes, meta):
        """Make a span that is printed when it ends: the trace, the span, its parent."""
        around = AROUND.get({}) if meta is None else meta
        # The caller may send anything. Without a valid traceparent, a new trace begins.
        known = TRACEPARENT.fullmatch(str(around.get("traceparent")))
        trace_id = known[1] if known else os.urandom(16).hex()
        parent = known[2] if known else ""
        span_id = os.urandom(8).hex()
        token = AROUND.set({"traceparent": f"00-{trace_id}-{span_id}-01"})
        span = PrintedSpan(attributes)
        try:
            yield span
        finally:
            AROUND.reset(token)
            print(kind, name, trace_id, span_id, parent or "-", span)

    def context_to_tell():
        """Return the members of `_meta` with which the server continues the trace."""
        return AROUND.get({})


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.error = lambda why: sys.exit(f"otel: {why}; see --help")
    parser.parse_args()
    shop = Server("shop")
    shop.middleware(trace_request)

    @shop.tool
    def count(item: str) -> int:
        return {"tea": 3}[item]

    @shop.tool
    def price(item: str) -> int:
        """Ask another server, in the same trace."""
        with Client(shop) as client:
            return 3 * call_tool(client, "count", item=item)

    with Client(shop) as client:
        print("the price:", call_tool(client, "price", item="tea"))
        with contextlib.suppress(ToolError):
            call_tool(client, "price", item="coal")


if __name__ == "__main__":
    main()
