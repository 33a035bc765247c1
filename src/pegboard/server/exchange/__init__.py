"""From a message to a Call, and from its Reply to the bytes of a response."""
