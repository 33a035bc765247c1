"""The parts of a Board: what it offers, what runs it, and when it opens and closes."""
