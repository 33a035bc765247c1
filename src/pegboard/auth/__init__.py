"""Who calls: principals, and how a request proves them."""
