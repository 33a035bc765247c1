"""FastMCP's own proxy in front of one server: `fastmcp_proxy.py PORT URL`, or `PORT COMMAND [WORD …]` for one on stdio."""

import sys

import uvicorn
from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy

port, target, *words = sys.argv[1:]
server = create_proxy(StdioTransport(target, words) if words else target, name="bench")

if __name__ == "__main__":
    uvicorn.run(server.http_app(), port=int(port), loop="uvloop", http="httptools", log_level="error")
