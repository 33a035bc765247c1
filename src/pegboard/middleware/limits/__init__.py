"""Rates, concurrency, budgets and timeouts."""
