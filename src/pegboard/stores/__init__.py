"""Where what must outlive a connection is kept: one contract, one module per backend."""
