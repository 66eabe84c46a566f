"""A server as an AWS Lambda function, behind a function URL or an API Gateway.

Teaches: serverless is WSGI in other words. An event is a request, and a dict is the
answer. A function keeps nothing between two requests, and neither does 2026-07-28. Older
clients are served without a session, so they can call tools, but cannot be asked.

Run: zip function.zip lambda_app.py mcp_lite.py, and make it a function with the handler
`lambda_app.handler`. Its environment needs MCP_STATE_KEY, of 16 characters or more, as a
question and its answer may reach different instances. To try it with an event from AWS:
python3 examples/lambda_app.py < event.json
"""

import argparse
import base64
import io
import json
import os
import sys
from urllib.parse import urlencode

# mcp_lite.py is one folder up, or beside this file.
sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from mcp_lite import Context, McpError, Server  # noqa: E402

server = Server("serverless", state_key=os.environ.get("MCP_STATE_KEY"))


@server.middleware
def refuse_listening(ctx, method, params, call_next):
    """A stream without an end would occupy the function until AWS ends it, and cost as
    much as a call of that length."""
    if method == "subscriptions/listen":
        raise McpError(-32601, "this server sends no notifications: poll its lists")
    return call_next()


@server.tool
def greet(ctx: Context) -> str:
    """Ask for a name, and greet."""
    form = {"type": "object", "properties": {"name": {"type": "string"}}}
    answer = ctx.elicit("What is your name?", form)
    return f"Hello, {answer.get('content', {}).get('name', 'stranger')}!"


# AWS has checked the host. Without verify=, anybody who knows the URL can call, unless
# the function URL uses AWS_IAM, or the gateway an authorizer.
app = server.wsgi_app(allowed_hosts=["*"])


def handler(event, context):
    """Answer one event of a function URL or an HTTP API (payload format 2.0), or of a
    REST API or a load balancer (1.0)."""
    http = event["requestContext"].get("http")
    query = event.get("rawQueryString", "")
    if http is None:
        http = {"method": event["httpMethod"], "path": event["path"]}
        query = urlencode(event.get("queryStringParameters") or {})
    body = (event.get("body") or "").encode()
    if event.get("isBase64Encoded"):
        body = base64.b64decode(body)
    environ = {
        "REQUEST_METHOD": http["method"],
        "PATH_INFO": http["path"],
        "QUERY_STRING": query,
        "wsgi.input": io.BytesIO(body),
    }
    for name, value in (event.get("headers") or {}).items():
        environ["HTTP_" + name.upper().replace("-", "_")] = value
    environ["CONTENT_TYPE"] = environ.pop("HTTP_CONTENT_TYPE", "")
    environ["CONTENT_LENGTH"] = str(len(body))
    answer = {}
    parts = []

    def start_response(status, headers, exc_info=None):
        answer.update(statusCode=int(status[:3]), headers=dict(headers))
        return parts.append

    # Progress and logs arrive with the answer, as nothing is sent before the end.
    parts += app(environ, start_response)
    return {**answer, "body": b"".join(parts).decode()}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.error = lambda why: sys.exit(f"lambda_app: {why}; see --help")
    parser.parse_args()
    try:
        event = json.load(sys.stdin)
    except ValueError as error:
        sys.exit(f"lambda_app: the event is not JSON: {error}")
    print(json.dumps(handler(event, None)))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
