"""One module for each reader: `check` takes any bytes, and raises where a promise of the reader is broken."""
