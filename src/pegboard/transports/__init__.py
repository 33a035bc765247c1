"""The doors by which requests come in, and the endpoint behind them."""
