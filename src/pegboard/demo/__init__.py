"""The servers of `pegboard demo`: three boards, one in the gateway's own process, one on a pipe and one over HTTP."""
