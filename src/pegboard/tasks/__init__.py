"""Calls that continue after their first answer: the tasks extension."""
