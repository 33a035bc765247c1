"""Each user's own credentials for servers: the vault, and the pages where a user connects."""
