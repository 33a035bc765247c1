"""Real agents as judges: what of a result reaches the model, measured with a scripted model server."""
