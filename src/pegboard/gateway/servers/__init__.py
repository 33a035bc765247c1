"""The servers behind a gateway: connections, catalogs, supervision."""
