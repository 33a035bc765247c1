"""The HTTP/1.1 server: connections, requests, responses and their limits."""
