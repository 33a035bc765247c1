"""The tools, resources, prompts and completions of a board, by name and in order."""
