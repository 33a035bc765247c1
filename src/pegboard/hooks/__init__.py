"""Middleware: its base class, and the chain that is composed once for each tool, prompt or resource."""
