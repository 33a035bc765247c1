"""The deadlines of calls, by the name that those above the client know them by."""

from pegboard.patience import Patience, held

__all__ = ["Patience", "held"]
