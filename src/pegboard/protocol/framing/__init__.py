"""How messages are framed in a stream of bytes: server-sent events and WebSocket frames."""
