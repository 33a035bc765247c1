"""What legacy clients need remembered between requests."""
