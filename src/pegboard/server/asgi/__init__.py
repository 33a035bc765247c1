"""The endpoint as an ASGI application."""
