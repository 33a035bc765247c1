"""The store in one SQLite file, for processes of one machine; its data survives restarts."""
