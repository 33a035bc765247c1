"""What a client is shown of many tools: modes, meta-tools and search."""
