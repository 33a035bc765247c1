"""What a client of the older revisions wishes for the rest of its session: log messages, and news of resources."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET

from pegboard.call import Call, Handler, Reply
from pegboard.errors import InvalidParams
from pegboard.limits import Limits
from pegboard.protocol.jsonrpc import Message, decode_json
from pegboard.protocol.params import Params
from pegboard.sessions.session import Session

SUBSCRIBE: Final = "resources/subscribe"
AT_ONCE: Final = frozenset({"ping", "logging/setLevel", "resources/unsubscribe"})
"""What is answered with an empty result, and concerns nobody but the session."""


def settle_at_once(session: Session, method: str, message: Message, params: Params) -> None:
    """Do what one of these asks for."""
    if method == "logging/setLevel":
        session.set_level(_read_level(message))
    elif method == "resources/unsubscribe":
        session.unsubscribe(read_uri(method, params))


def read_uri(method: str, params: Params) -> str:
    """The resource that a subscription is about."""
    if params.uri is UNSET:
        raise InvalidParams(f"params.uri is missing: {method} needs to know which one")
    return params.uri


def subscribing(handler: Handler, session: Session, limits: Limits) -> Handler:
    """A Handler that notes the subscription once the board has said that there is such a resource."""

    async def subscribe(call: Call) -> Reply:
        reply = await handler(call)
        session.subscribe(call.name, limits)
        return reply

    return subscribe


def _read_level(message: Message) -> object:
    try:
        return decode_json(message.params).get("level")
    except (msgspec.MsgspecError, AttributeError):
        return None
