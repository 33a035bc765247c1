"""A scripted model server: four model APIs, streaming too, one script, and a record of every request."""
