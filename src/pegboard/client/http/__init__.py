"""HTTP/1.1 from the client's side: addresses, connections, redirects."""
