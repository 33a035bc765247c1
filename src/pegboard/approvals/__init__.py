"""Approvals: calls that a person has to approve before they run."""
