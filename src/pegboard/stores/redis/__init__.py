"""The store in a Redis or Valkey server: any number of processes on any number of machines share it."""
