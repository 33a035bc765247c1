"""The sessions and streams of this process, as a JSON document."""

from __future__ import annotations

from typing import Final

import msgspec

from pegboard.accounts.accounts import account_name
from pegboard.call import Json
from pegboard.server.exchange.subscribers import Subscriber
from pegboard.server.hosting import Hosted
from pegboard.sessions.session import Session
from pegboard.stores.store import digest

_MOST: Final = 200


def describe_sessions(served: Hosted) -> Json:
    """What is open now: legacy sessions with their streams, and the subscriptions of modern clients."""
    endpoints = tuple(served.endpoints_served)
    found = sorted(
        ((endpoint.sessions.idle_seconds(session), session) for endpoint in endpoints for session in endpoint.sessions),
        key=lambda entry: entry[0],
    )
    subscribers = [subscriber for endpoint in endpoints for subscriber in endpoint.followers]
    return {
        "sessions": [_session(session, idle) for idle, session in found[:_MOST]],
        "more_sessions": max(0, len(found) - _MOST),
        "subscriptions": [_subscription(one) for one in subscribers if not one.is_of_session][:_MOST],
        "running": sum(len(endpoint.calls) for endpoint in endpoints),
        "streaming": sum(exchange.streaming for endpoint in endpoints for exchange in tuple(endpoint.calls)),
    }


def _session(session: Session, idle: float) -> dict[str, Json]:
    caller = session.caller
    described: dict[str, Json] = {
        # The id itself is a secret of the client.
        "id": digest(caller.session)[:8],
        "client": " ".join(str(caller.client.get(key, "")) for key in ("name", "version"))[:120].strip(),
        "version": caller.version,
        "transport": caller.transport,
        "principal": caller.principal.id,
        "idle": round(idle, 1),
        "running": len(session.calls),
        "asking": session.asking,
        "listening": len(session.listeners),
        "subscribed": len(session.subscribed),
        "streams": [],
        "tally": {},
    }
    if session.streamed:
        streams = session.streams
        described["streams"] = [
            {"last": stream.last_event, "connected": streams.is_connected(stream.id)}
            for stream in reversed(streams.latest)
        ]
        described["tally"] = msgspec.to_builtins(streams.tally)
    return described


def _subscription(subscriber: Subscriber) -> Json:
    return {
        "principal": account_name(subscriber.account),
        "receives": subscriber.granted,
        "position": subscriber.after,
        "behind": max(0, subscriber.changes.last - subscriber.after),
    }
