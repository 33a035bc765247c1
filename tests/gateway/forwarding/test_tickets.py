"""Tickets open for whom and what they were written, as they were, and are refused in every other case."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from pegboard.auth.principal import Principal
from pegboard.call import NULL_CHANNEL, Call, Caller
from pegboard.errors import InvalidParams
from pegboard.gateway.forwarding.forwarder import Forwarder
from pegboard.gateway.forwarding.outcome import Destination
from pegboard.gateway.forwarding.outgoing_params import params_for
from pegboard.gateway.forwarding.tickets import ParkedTicket, StateTicket, Tickets
from pegboard.limits import Limits
from pegboard.security.seal import Seal
from tests.gateway.minimal_gateway import KEYS, MODERN

TICKETS = Tickets(KEYS, "one", Limits())
KEY = st.text(max_size=8)
SOME = st.one_of(
    st.builds(ParkedTicket, KEY, KEY, st.integers(0, 2**31), st.lists(KEY, max_size=3).map(tuple)),
    st.builds(StateTicket, st.none() | st.text(), *[st.lists(KEY, max_size=3).map(tuple)] * 2),
)
REQUEST = st.tuples(
    st.sampled_from(["tools/call", "prompts/get"]),
    st.sampled_from(["a", "b"]),
    st.sampled_from([{}, {"x": 1}, {"x": "1"}, {"y": 1}]),
    st.sampled_from(["alice", "bob", ""]),
    st.sampled_from([("dev", "one"), ("dev", "two"), ("ops", "one")]),
)


def call_of(request: Any, ticket: str | None = None) -> tuple[Call, Destination]:
    method, name, arguments, principal, (toolbox, server) = request
    caller = Caller(version=MODERN, transport="http", principal=Principal(principal))
    raw = Raw(msgspec.json.encode(arguments))
    call = Call(method=method, caller=caller, channel=NULL_CHANNEL, name=name, raw=raw, ticket=ticket)
    # Where it goes is all that a ticket wants to know of a server.
    there: Any = SimpleNamespace(toolbox=toolbox, name=server)
    return call, Destination(downstream=there)


@settings(deadline=None)
@given(ticket=SOME, written=REQUEST, brought=REQUEST)
def test_a_ticket_opens_for_its_own_request_alone(ticket: Any, written: Any, brought: Any) -> None:
    sealed = TICKETS.write(ticket, *call_of(written))
    call, destination = call_of(brought, sealed)
    if written == brought:
        assert TICKETS.read(call, destination) == ticket
    else:
        with pytest.raises(InvalidParams):
            TICKETS.read(call, destination)


@settings(deadline=None)
@given(ticket=SOME, request=REQUEST, data=st.data())
def test_a_ticket_that_was_changed_is_none(ticket: Any, request: Any, data: st.DataObject) -> None:
    sealed = TICKETS.write(ticket, *call_of(request))
    at = data.draw(st.integers(0, len(sealed) - 2))
    letter = data.draw(st.sampled_from("ABCxyz019-_").filter(lambda one: one != sealed[at]))
    with pytest.raises(InvalidParams):
        TICKETS.read(*call_of(request, sealed[:at] + letter + sealed[at + 1 :]))


def test_gateways_of_different_names_with_one_secret_open_nothing_of_each_other() -> None:
    one, two = (Forwarder(name, KEYS, lambda *_: None, Limits()) for name in ("one", "two"))
    for mine, theirs in zip(one.seals, two.seals, strict=True):
        assert mine.open(mine.close("x"), now=0) == "x"
        with pytest.raises(InvalidParams):
            theirs.open(mine.close("x"), now=0)


@settings(deadline=None)
@given(made_up=st.text(), request=REQUEST)
def test_an_invalid_ticket_is_rejected(made_up: str, request: Any) -> None:
    other = Seal("requestState", KEYS, audience="one", secret=True).close(
        made_up.encode("utf-8", "replace"), bearer=request[3]
    )
    for text in (made_up, other):
        with pytest.raises(InvalidParams):
            TICKETS.read(*call_of(request, text))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.text(max_size=8) | st.sampled_from(
    ["progressToken", "traceparent", "io.modelcontextprotocol/clientInfo", "io.modelcontextprotocol/x", "example.org/x"]
)


@settings(deadline=None)
@given(meta=st.dictionaries(NAMES, JSON, max_size=6), more=st.dictionaries(NAMES, JSON, max_size=4))
def test_all_goes_down_but_what_belongs_to_a_hop(meta: dict[str, Any], more: dict[str, Any]) -> None:
    call, _ = call_of(("tools/call", "a", {}, "", ("dev", "one")))
    call.params = Raw(msgspec.json.encode({**more, "name": "a", "arguments": {}, "_meta": meta, "requestState": "x"}))
    sent = msgspec.json.decode(msgspec.json.encode(params_for(call, {"name": "own"})))
    kept = {
        name: value
        for name, value in meta.items()
        if name != "progressToken" and not name.startswith("io.modelcontextprotocol/")
    }
    assert sent.pop("_meta", {}) == kept
    ours = {"name", "uri", "taskId", "arguments", "_meta", "inputResponses", "requestState", "task"}
    assert sent == {**{name: value for name, value in more.items() if name not in ours}, "name": "own"}
