"""Log lines: their format, the escaping of foreign text, and the watchdog of the event loop."""
