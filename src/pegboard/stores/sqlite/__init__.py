"""The store in one file: what it keeps outlives the process, and several processes of one machine may share it."""
