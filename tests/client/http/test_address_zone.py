"""What a server names is as near as the server itself and no nearer, however it is spelled and wherever its name leads."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from typing import Any

import pytest

from pegboard import Client, OAuth
from pegboard.client.http import dialer
from pegboard.client.http.address import Zone, written_zone, zone_of
from pegboard.errors import MalformedMessage, PegboardError, Unreachable
from tests.client.fakes import Asked, Fake, data, faking, initialized, modern, reply, stream, text
from tests.client.login.authorization_server import Person
from tests.client.process_leftovers import nothing_left

SPELLINGS = ["127.0.0.1", "127.1", "2130706433", "0x7f000001", "017700000001", "0", "0.0.0.0", "localhost", "LOCALHOST",
             "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]"]  # fmt: skip


class Lookups:
    """Stands in for the lookup of names; what it does not know is looked up as ever."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **known: Iterable[str]) -> None:
        loop = asyncio.get_running_loop()
        self.asked: list[str] = []
        self._known = {f"{name}.example": [*answers] for name, answers in known.items()}
        self._look_up = loop.getaddrinfo
        monkeypatch.setattr(loop, "getaddrinfo", self)

    async def __call__(self, host: Any, port: Any, **how: Any) -> Any:
        answers = self._known.get(host)
        if answers is None:
            return await self._look_up(host, port, **how)
        self.asked.append(host)
        # One answer for each lookup; the last stays.
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        found = [await self._look_up(one, port, **how) for one in answer.split()]
        return [one for places in found for one in places]


def behind_proxy(monkeypatch: pytest.MonkeyPatch, proxy: Fake, *straight: str) -> None:
    """Servers on the internet are reached through a proxy, except these."""
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
    monkeypatch.setenv("no_proxy", ",".join(straight))


def moved(location: str) -> Any:
    return lambda asked, writer: reply(writer, b"", "307 Moved", Location=location)


@pytest.mark.parametrize(
    ("number", "zone"),
    [
        ("127.0.0.1", Zone.MACHINE), ("127.8.8.8", Zone.MACHINE), ("0.0.0.0", Zone.MACHINE), ("::1", Zone.MACHINE),
        ("::", Zone.MACHINE), ("::ffff:127.0.0.1", Zone.MACHINE), ("::ffff:0.0.0.0", Zone.MACHINE),
        ("64:ff9b::7f00:1", Zone.MACHINE), ("2002:7f00:1::1", Zone.MACHINE), ("::127.0.0.1", Zone.MACHINE),
        ("10.0.0.1", Zone.NETWORK), ("172.16.0.1", Zone.NETWORK), ("192.168.1.1", Zone.NETWORK),
        ("169.254.169.254", Zone.NETWORK), ("100.64.0.1", Zone.NETWORK), ("0.1.2.3", Zone.NETWORK),
        ("255.255.255.255", Zone.NETWORK), ("224.0.0.251", Zone.NETWORK), ("fe80::1%1", Zone.NETWORK),
        ("fd00::1", Zone.NETWORK), ("::ffff:10.0.0.1", Zone.NETWORK), ("ff02::1", Zone.NETWORK),
        ("8.8.8.8", Zone.INTERNET), ("2606:4700::1111", Zone.INTERNET), ("::ffff:8.8.8.8", Zone.INTERNET),
    ],
)  # fmt: skip
def test_an_address_is_judged_as_a_number(number: str, zone: Zone) -> None:
    assert zone_of(number) is zone


def test_a_host_is_judged_as_far_as_it_is_written() -> None:
    assert {written_zone(host.strip("[]").lower()) for host in SPELLINGS} == {Zone.MACHINE}
    assert written_zone("mcp.example.com") is Zone.INTERNET
    assert written_zone("10.1") is Zone.NETWORK


@pytest.mark.parametrize("straight", [True, False], ids=["straight", "through the proxy"])
@pytest.mark.parametrize("host", SPELLINGS)
async def test_a_server_elsewhere_does_not_redirect_to_this_machine(
    monkeypatch: pytest.MonkeyPatch, host: str, straight: bool
) -> None:
    async with nothing_left(), faking(lambda asked, writer: reply(writer, b"inside")) as inside:
        async with faking(moved(f"http://{host}:{inside.port}/secret")) as proxy:
            behind_proxy(monkeypatch, proxy, *([host.strip("[]")] if straight else []))
            with pytest.raises(MalformedMessage, match="on this machine, named by a server on the internet"):
                async with Client("http://mcp.example/mcp"):
                    pass
        assert inside.connections == 0
        assert {asked.target for asked in proxy.asked} == {"http://mcp.example/mcp"}


@pytest.mark.parametrize(
    ("answers", "where"),
    [("127.0.0.1", "this machine"), ("::1", "this machine"), ("10.0.0.1 192.168.0.1", "a private network"),
     ("169.254.169.254", "a private network"), ("127.0.0.1 10.0.0.1", "a private network")],
)  # fmt: skip
async def test_a_name_that_leads_inside_is_not_followed(
    monkeypatch: pytest.MonkeyPatch, answers: str, where: str
) -> None:
    async with nothing_left(), faking(lambda asked, writer: reply(writer, b"inside")) as inside:
        async with faking(moved(f"http://inner.example:{inside.port}/secret")) as proxy:
            behind_proxy(monkeypatch, proxy, "inner.example")
            lookups = Lookups(monkeypatch, inner=[answers])
            with pytest.raises(MalformedMessage, match=f"on {where}, named by a server"):
                async with Client("http://mcp.example/mcp"):
                    pass
        assert lookups.asked == ["inner.example"]
        assert inside.connections == 0


async def test_a_name_is_looked_up_once_and_what_was_judged_is_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    # An address of this machine at which nothing listens stands in for one on the internet.
    judge = dialer.zone_of
    monkeypatch.setattr(dialer, "zone_of", lambda one: Zone.INTERNET if one == "127.0.0.2" else judge(one))
    async with nothing_left(), faking(lambda asked, writer: reply(writer, b"inside")) as inside:
        async with faking(moved(f"http://inner.example:{inside.port}/secret")) as proxy:
            behind_proxy(monkeypatch, proxy, "inner.example")
            # The first answer passes; a second lookup would lead inside.
            lookups = Lookups(monkeypatch, inner=["127.0.0.2", "127.0.0.1"])
            with pytest.raises(Unreachable, match=r"inner\.example"):
                async with Client("http://mcp.example/mcp"):
                    pass
        assert lookups.asked == ["inner.example"]
        assert inside.connections == 0


async def test_of_several_addresses_only_those_that_may_be_are_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = dialer.zone_of
    monkeypatch.setattr(dialer, "zone_of", lambda one: Zone.INTERNET if one == "127.0.0.2" else judge(one))
    async with nothing_left(), faking(lambda asked, writer: reply(writer, b"inside")) as inside:
        async with faking(moved(f"http://inner.example:{inside.port}/secret")) as proxy:
            behind_proxy(monkeypatch, proxy, "inner.example")
            Lookups(monkeypatch, inner=["127.0.0.1 127.0.0.2 127.0.0.1"])
            with pytest.raises(Unreachable, match=r"inner\.example"):
                async with Client("http://mcp.example/mcp"):
                    pass
        assert inside.connections == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1", "inner.example"])
async def test_a_server_on_this_machine_redirects_within_it(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    there = modern(lambda asked, writer: reply(writer, text(asked, "here")))
    async with nothing_left(), faking(there) as other, faking(moved(f"http://{host}:{other.port}/mcp")) as fake:
        Lookups(monkeypatch, inner=["127.0.0.1"], mine=["127.0.0.1"])
        # A name that a person configured may lead anywhere.
        for configured in ("127.0.0.1", "mine.example"):
            async with Client(f"http://{configured}:{fake.port}/mcp") as client:
                assert (await client.call("any")).text == "here"


@pytest.mark.parametrize("host", ["127.1", "inner.example"])
async def test_a_server_elsewhere_has_no_login_ask_this_machine(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    def lock(asked: Asked, writer: asyncio.StreamWriter) -> None:
        about = f'Bearer resource_metadata="https://{host}:{inside.port}/about"'
        reply(writer, b"", "401 Unauthorized", WWW_Authenticate=about)

    async with nothing_left(), faking(lambda asked, writer: reply(writer, b"inside")) as inside:
        async with faking(lock) as proxy:
            behind_proxy(monkeypatch, proxy, host)
            Lookups(monkeypatch, inner=["127.0.0.1"])
            with pytest.raises(PegboardError, match="on this machine"):
                async with Client("http://mcp.example/mcp", auth=OAuth(login=Person())):
                    pass
        assert inside.connections == 0


async def test_messages_of_the_first_transport_do_not_follow_a_name_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = dialer.zone_of
    monkeypatch.setattr(dialer, "zone_of", lambda one: Zone.INTERNET if one == "127.0.0.2" else judge(one))

    def outside(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.method == "GET":
            stream(writer, b"event: endpoint\ndata: /messages\n\n")
        else:
            reply(writer, b"", "405 Method Not Allowed", Connection="close")
            writer.close()

    inner = lambda asked, writer: reply(writer, data(initialized(asked)))  # noqa: E731
    fake = Fake(outside)
    async with nothing_left(), faking(inner) as inside:
        server = await asyncio.start_server(fake.serve, "127.0.0.2", inside.port)
        lookups = Lookups(monkeypatch, mcp=["127.0.0.2", "127.0.0.2", "127.0.0.2", "127.0.0.1"])
        try:
            with pytest.raises(PegboardError):
                async with Client(f"http://mcp.example:{inside.port}/mcp"):
                    pass
        finally:
            server.close()
            for task in fake.tasks:
                task.cancel()
            await asyncio.gather(*fake.tasks, return_exceptions=True)
        assert [asked.method for asked in fake.asked][-1] == "GET"
        assert len(lookups.asked) == 4
        assert inside.connections == 0


def test_what_the_system_makes_of_a_spelling_is_what_is_judged() -> None:
    for spelling in ("127.1", "2130706433", "0x7f000001", "017700000001"):
        found = socket.getaddrinfo(spelling, 80, type=socket.SOCK_STREAM)
        assert {zone_of(str(place[0])) for *_, place in found} == {Zone.MACHINE}
