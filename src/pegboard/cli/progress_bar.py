"""Shows the progress of a call: a bar on a terminal, else a line for each step."""

from __future__ import annotations

import sys
from typing import Final

from pegboard.cli.output import note, redraw

_BAR: Final = 20


class ProgressBar:
    """The `progress` function of a call."""

    def __init__(self) -> None:
        self._bar = sys.stderr is not None and sys.stderr.isatty()
        self._drawn = False

    def __call__(self, done: float, total: float | None, message: str | None) -> None:
        far = f"{done:g}" if total is None else f"{done:g}/{total:g}"
        text = f"  {message}" if message else ""
        if not self._bar:
            note(f"progress  {far}{text}")
            return
        share = min(max(done / total, 0.0), 1.0) if total else 0.0
        bar = f"[{'#' * round(share * _BAR):<{_BAR}}] " if total else ""
        self._drawn = True
        redraw(f"{bar}{far}{text}")

    def clear(self) -> None:
        """Remove the bar, so that other lines can follow."""
        if self._drawn:
            redraw("")
            self._drawn = False
