"""The console: every call of a board or gateway, live, in a browser."""
