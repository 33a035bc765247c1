"""The store in a Redis or Valkey server, for any number of processes and machines."""
