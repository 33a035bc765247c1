"""Digests that stand for secret ids in a store.

A session id is a secret: anyone who knows it can act as its client. Stores therefore keep a digest: enough to find the
data of a session, useless for opening it. Ids are random, so no salt is needed.
"""

from __future__ import annotations

import secrets
from hashlib import blake2b


def digest(secret: str) -> str:
    """The digest that replaces a session id, or a key that contains one, in a store or a message."""
    return blake2b(secret.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def new_worker() -> str:
    """A unique random name for this process."""
    return secrets.token_hex(6)
