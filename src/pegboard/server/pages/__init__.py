"""Pages for people: who uses this browser, and plain pages with forms."""
