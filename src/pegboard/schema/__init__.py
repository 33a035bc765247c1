"""From Python types to JSON Schema, and validation against it."""
