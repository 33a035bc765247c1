"""The log of changes, and `subscriptions/listen`."""
