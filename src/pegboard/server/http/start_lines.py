"""The rules for the first line of a request."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from pegboard.server.http.plain_responses import plain_error
from pegboard.server.http_types import Answer

# Origin-form only (RFC 9112, 3.2.1): no fragment, no absolute URL whose host could differ from the Host field.
TARGET: Final = re.compile(rb"/[!\"$-~]*")


class BadRequest(Exception):
    """Stops the parser from inside one of its callbacks."""

    def __init__(self, refusal: Answer) -> None:
        self.refusal = refusal


MALFORMED: Final = plain_error(400, "This is not a well-formed HTTP/1.1 request.")


def split_target(target: bytes) -> tuple[bytes, bytes] | None:
    """The path and the query of a target in origin form, percent-encoding left as it is."""
    if TARGET.fullmatch(target) is None:
        return None
    path, _, query = target.partition(b"?")
    return path, query


# Targets repeat, so the result is cached; long ones are not, since the cache keeps them.
REMEMBERED_BYTES: Final = 256
find_path = lru_cache(maxsize=256)(split_target)


def check_start(
    method: bytes, target: tuple[bytes, bytes] | None, version: str, headers: dict[bytes, bytes]
) -> tuple[bytes, bytes]:
    """Refuse a request line we do not serve, or a request of HTTP/1.1 that names no host."""
    if version not in ("1.1", "1.0"):
        raise BadRequest(plain_error(505, "This server speaks HTTP/1.1."))
    if method == b"CONNECT":
        # What follows its head is a tunnel, not a body: two parsers could disagree about where the next request starts.
        raise BadRequest(plain_error(400, "This server is not a proxy: CONNECT is not supported."))
    if target is None:
        raise BadRequest(
            plain_error(400, "The request target must be a path: no absolute URL, no authority, no fragment.")
        )
    if version == "1.1" and b"host" not in headers:
        raise BadRequest(plain_error(400, "A request of HTTP/1.1 has a Host field."))
    return target
