"""A gateway in Python: the servers of workshop.json, with middleware for one toolbox."""

from __future__ import annotations

from pathlib import Path

from pegboard import Gateway
from pegboard.middleware import Timing

gateway = Gateway(Path(__file__).with_name("workshop.json"))
gateway.use(Timing(), toolbox="office")

if __name__ == "__main__":
    gateway.run()
