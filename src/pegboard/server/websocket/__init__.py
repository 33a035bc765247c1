"""The `/ws` endpoint: messages and binary streams."""
