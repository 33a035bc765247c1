from pegboard.client.transports.http_link import HttpLink as HttpLink
from pegboard.client.transports.stdio_link import StdioLink as StdioLink
from pegboard.client.transports.websocket_link import WebSocketLink as WebSocketLink
