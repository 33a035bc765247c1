"""The repair of arguments that almost fit their schema."""
