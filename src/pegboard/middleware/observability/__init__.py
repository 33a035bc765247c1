"""Middleware that logs, measures, traces and audits calls."""
