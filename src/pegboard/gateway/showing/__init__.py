"""What callers are shown of many tools: all of them, a few that lead to the rest, or what a search finds."""
