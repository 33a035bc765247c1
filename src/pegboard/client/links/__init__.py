"""The contract between a client and a transport, and what every transport shares."""
