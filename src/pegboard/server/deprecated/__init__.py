"""Deprecated endpoints: `/rpc`, `/sse` and `/messages`."""
