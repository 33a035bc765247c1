"""The way of a request through a server and back, whichever eras both sides are of."""
