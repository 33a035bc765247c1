"""Settings that a legacy client changes for its session: log level and resource subscriptions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import msgspec

from pegboard.call import Call, Handler, Reply
from pegboard.limits import Limits
from pegboard.protocol.jsonrpc import Message, decode_json
from pegboard.protocol.params import Params
from pegboard.server.exchange.admission import named_subject
from pegboard.sessions.session import Session

SUBSCRIBE: Final = "resources/subscribe"
IMMEDIATE_SETTINGS: Final = frozenset({"ping", "logging/setLevel", "resources/unsubscribe"})
"""Methods with an empty result that only affect the session."""


SessionSetting: TypeAlias = Callable[[Session], None]
"""Applies a setting to a session; to apply it twice has no further effect."""


def read_setting(method: str, message: Message, params: Params) -> SessionSetting | None:
    """The setting that such a request changes; None if it changes nothing."""
    if method == "logging/setLevel":
        level = _read_level(message)
        return lambda session: session.set_level(level)
    if method == "resources/unsubscribe":
        uri = named_subject(method, params)
        return lambda session: session.unsubscribe(uri)
    return None


def apply_setting(session: Session, method: str, message: Message, params: Params) -> None:
    """Apply the setting of such a request."""
    wish = read_setting(method, message, params)
    if wish is not None:
        wish(session)


def subscription_handler(
    handler: Handler,
    session: Session,
    limits: Limits,
    change: Callable[[Session, SessionSetting], Awaitable[None]] | None = None,
) -> Handler:
    """A Handler that stores the subscription after the board has confirmed that the resource exists.

    `change` applies the setting if other processes share the session.
    """

    async def subscribe(call: Call) -> Reply:
        reply = await handler(call)
        if change is None:
            session.subscribe(call.name, limits)
        else:
            await change(session, lambda known: known.subscribe(call.name, limits))
        return reply

    return subscribe


def _read_level(message: Message) -> object:
    try:
        return decode_json(message.params).get("level")
    except (msgspec.MsgspecError, AttributeError):
        return None
