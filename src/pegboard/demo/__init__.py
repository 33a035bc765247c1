"""The servers of `pegboard demo`: one in the gateway's process, one on stdio and one over HTTP."""
