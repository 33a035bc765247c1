"""From the dispatcher to the author's function and back."""
