"""A span for each request, on the server and on the client.

Teaches: what Server.middleware is good for; and how a trace goes on: the client puts
`traceparent`, `tracestate` and `baggage` into `_meta`, and the server finds them there,
whatever carries the messages. Spans and attributes have OpenTelemetry's names:
https://opentelemetry.io/docs/specs/semconv/gen-ai/mcp/

Run: python3 examples/otel.py
With opentelemetry-api and opentelemetry-sdk installed, the spans are theirs; without,
they are printed, a line each. For a program of yours, copy all but main(), and have
OpenTelemetry export to where your traces are.
"""

import contextlib
import os
import sys

# mcp_lite.py is one folder up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from mcp_lite import Client, McpError, Server, Timeout, ToolError  # noqa: E402

try:
    from opentelemetry import context, propagate, trace
except ImportError:
    trace = None


def trace_server(server):
    """Have a span for each request of a server, as a child of its client's."""

    @server.middleware
    def traced(ctx, method, params, call_next):
        # "reserved for OpenTelemetry trace context propagation": basic/index.md#meta.
        keys = ("traceparent", "tracestate", "baggage")
        told = {
            key: ctx.meta[key] for key in keys if isinstance(ctx.meta.get(key), str)
        }
        attributes = {
            "mcp.protocol.version": ctx.protocol_version,
            "network.transport": "tcp" if ctx.headers else "pipe",
        }
        if ctx.request_id is not None:
            attributes["jsonrpc.request.id"] = str(ctx.request_id)
        if ctx.session_id is not None:
            attributes["mcp.session.id"] = ctx.session_id
        return follow("SERVER", method, params, attributes, call_next, told)


class TracedClient(Client):
    """A Client with a span for each call, read, prompt, completion and ping."""

    def request(self, method, params=None, timeout=None):
        def send():
            meta = {**(params or {}).get("_meta", {}), **context_to_tell()}
            return Client.request(
                self, method, {**(params or {}), "_meta": meta}, timeout
            )

        return self._follow(method, params or {}, send)

    def call(self, name, /, **arguments):
        def send():
            return self.start_call(name, arguments, meta=context_to_tell()).value()

        return self._follow("tools/call", {"name": name}, send)

    def call_tool(self, name, arguments=None, meta=None, **options):
        def send():
            told = {**(meta or {}), **context_to_tell()}
            return Client.call_tool(self, name, arguments, meta=told, **options)

        return self._follow("tools/call", {"name": name}, send)

    def _follow(self, method, params, send):
        attributes = {"mcp.protocol.version": self.protocol_version}
        return follow("CLIENT", method, params, attributes, send)


def follow(kind, method, params, attributes, work, told=None):
    """What work() returns, in a span that tells what it was, and what came of it."""
    target = ""
    attributes["mcp.method.name"] = method
    if method == "tools/call":
        target = attributes["gen_ai.tool.name"] = params["name"]
        attributes["gen_ai.operation.name"] = "execute_tool"
    elif method == "prompts/get":
        target = attributes["gen_ai.prompt.name"] = params["name"]
    elif "uri" in params:
        attributes["mcp.resource.uri"] = params["uri"]
    with open_span(f"{method} {target}".strip(), kind, attributes, told) as span:
        try:
            result = work()
        # A question to a modern client is no Exception: it passes, and is no failure.
        except Exception as error:
            words = {ToolError: "tool_error", Timeout: "timeout"}
            word = words.get(type(error), type(error).__name__)
            if isinstance(error, McpError):
                word = str(error.code)
                span.set_attribute("rpc.response.status_code", word)
            fail(span, word, str(error))
            raise
        if isinstance(result, dict) and result.get("isError") is True:
            fail(span, "tool_error", "")
        return result


if trace is not None:

    @contextlib.contextmanager
    def open_span(name, kind, attributes, told):
        """A span of OpenTelemetry's; its parent is what the client told, if it did."""
        around = trace.get_current_span().get_span_context()
        links = []
        token = None
        if told is not None:
            # "SHOULD link current ambient context, if it's present": of HTTP, say.
            links = [trace.Link(around)] if around.is_valid else []
            token = context.attach(propagate.extract(told, context.Context()))
        try:
            with trace.get_tracer("mcp_lite").start_as_current_span(
                name,
                kind=trace.SpanKind[kind],
                attributes=attributes,
                links=links,
                record_exception=False,
                set_status_on_exception=False,
            ) as span:
                yield span
        finally:
            if token is not None:
                context.detach(token)

    def context_to_tell():
        """What to put into `_meta`, so that the server goes on with the trace."""
        told = {}
        propagate.inject(told)
        return told

    def fail(span, kind, text):
        span.set_attribute("error.type", kind)
        span.set_status(trace.StatusCode.ERROR, text)

else:
    from contextvars import ContextVar

    # What the span around would tell.
    AROUND = ContextVar("AROUND")

    class PrintedSpan:
        def __init__(self, attributes):
            self.attributes = attributes

        def set_attribute(self, name, value):
            self.attributes[name] = value

    @contextlib.contextmanager
    def open_span(name, kind, attributes, told):
        """A line for a span, when it ends; with its trace, itself and its parent."""
        around = AROUND.get({}) if told is None else told
        # version-trace-parent-flags, all in hexadecimal: W3C Trace Context.
        _, trace_id, parent, *_ = (around.get("traceparent", "") + "---").split("-")
        trace_id = trace_id or os.urandom(16).hex()
        span_id = os.urandom(8).hex()
        mine = {**around, "traceparent": f"00-{trace_id}-{span_id}-01"}
        token = AROUND.set(mine)
        try:
            yield PrintedSpan(attributes)
        finally:
            AROUND.reset(token)
            words = [f"{key}={value}" for key, value in sorted(attributes.items())]
            print(kind, name, trace_id, span_id, parent or "-", *words, flush=True)

    def context_to_tell():
        """What to put into `_meta`, so that the server goes on with the trace."""
        return AROUND.get({})

    def fail(span, kind, text):
        span.set_attribute("error.type", kind)


def main():
    if trace is not None:
        from opentelemetry.sdk.trace import TracerProvider, export

        provider = TracerProvider()
        exporter = export.ConsoleSpanExporter()
        provider.add_span_processor(export.SimpleSpanProcessor(exporter))
        trace.set_tracer_provider(provider)

    stock = Server("stock")
    shop = Server("shop")
    trace_server(stock)
    trace_server(shop)

    @stock.tool
    def count(item: str) -> int:
        return {"tea": 3}[item]

    @shop.tool
    def price(item: str) -> int:
        """Asks another server, in the same trace."""
        with TracedClient(stock) as client:
            return 3 * client.call("count", item=item)

    with TracedClient(shop) as client:
        print("the price:", client.call("price", item="tea"))
        with contextlib.suppress(ToolError):
            client.call("price", item="coal")
        with contextlib.suppress(McpError):
            client.request("prompts/get", {"name": "review"})


if __name__ == "__main__":
    main()
