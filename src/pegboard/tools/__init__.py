"""One `Tool` for every authoring style: names, arguments, results."""
