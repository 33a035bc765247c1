"""The walk of one call from the dispatcher to the author's function and back."""
