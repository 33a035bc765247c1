"""What the endpoints and lines of one Handler share."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy

from pegboard.call import Handler, Json
from pegboard.limits import Limits
from pegboard.protocol.legacy_codec import legacy_codecs
from pegboard.protocol.modern_codec import ModernCodec
from pegboard.server.exchange.admission import CallerCache
from pegboard.server.exchange.fast_path import FastPath
from pegboard.server.exchange.subscribers import Subscribers
from pegboard.sessions.session import OnSessionEnd


class Service:
    """A Handler as it is served; `transport` is the transport that its callers have."""

    def __init__(
        self,
        handler: Handler,
        info: Mapping[str, Json],
        limits: Limits,
        followers: Subscribers,
        transport: str,
        *,
        direct_methods: bool = False,
        on_session_end: OnSessionEnd | None = None,
    ) -> None:
        """With `direct_methods`, a method that is the name of a tool calls the tool."""
        self.handler = handler
        self.limits = limits
        self.followers = followers
        self.transport = transport
        self.direct_methods = direct_methods
        self.on_session_end = on_session_end
        self.modern = ModernCodec(info)
        self.legacy = legacy_codecs(info)
        self.callers = CallerCache(transport)
        self.read_plain = FastPath(limits, self.callers).read

    def over(self, transport: str) -> Service:
        """The same for callers of another transport."""
        service = copy(self)
        service.transport = transport
        service.callers = CallerCache(transport)
        service.read_plain = FastPath(self.limits, service.callers).read
        return service
