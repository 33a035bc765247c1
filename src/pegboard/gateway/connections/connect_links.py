"""Links that lead a user to the page where they connect a server: each for one user, one use and a limited time.

A link carries only a random id. Who may use it, and for which server, is in the store, so that every process knows it and
no client can change it. The login that starts with it is kept the same way, under the `state` that the authorization server
sends back.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Final

import msgspec
from msgspec import Struct

from pegboard.bounded_dict import BoundedDict
from pegboard.client.login.grants import PendingLogin
from pegboard.gateway.connections.vault import FEED, CredentialOwner, Vault
from pegboard.stores.store import digest, wait_for_hint

LINK_SECONDS: Final = 600.0
"""How long a link can be opened, and then how long the login may take."""
ID_CHARACTERS: Final = 43
MAX_OPEN: Final = 8
"""Links and begun logins of one user for one server; beyond that, the oldest is deleted."""
_MAX_KNOWN: Final = 4096
_CHALLENGE_CHARACTERS: Final = 2000
_CHECK_SECONDS: Final = 1.0

_encode = msgspec.msgpack.Encoder().encode


class ConnectLink(Struct, frozen=True, array_like=True):
    """A link: its id, the owner that it is for, the server by its names, and the challenge that it has to answer."""

    id: str
    owner: CredentialOwner
    toolbox: str
    server: str
    challenge: str = ""

    @property
    def path(self) -> str:
        """The path and query of the page."""
        return f"/connect/{self.server}?link={self.id}"


class BegunLogin(Struct, frozen=True, array_like=True):
    """A login at an authorization server: the link that began it, and what it needs; `values` is what it has stored."""

    link: ConnectLink
    pending: PendingLogin
    values: dict[str, bytes]


_decode_link = msgspec.msgpack.Decoder(ConnectLink).decode
_decode_login = msgspec.msgpack.Decoder(BegunLogin).decode


class ConnectLinks:
    """The links and begun logins in the store of a vault."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        self._records = vault.records
        # One open link for each owner, however often its user calls.
        self._open: BoundedDict[CredentialOwner, tuple[ConnectLink, float]] = BoundedDict(_MAX_KNOWN)
        # A server may send another challenge with each call, and a user may begin login after login.
        self._kept: BoundedDict[CredentialOwner, list[str]] = BoundedDict(_MAX_KNOWN)

    async def make(self, owner: CredentialOwner, toolbox: str, server: str, challenge: str = "") -> ConnectLink:
        """A link that can be opened now; the same one as before while that is unused and has time left."""
        now = asyncio.get_running_loop().time()
        challenge = challenge[:_CHALLENGE_CHARACTERS]
        known, until = self._open.get(owner, (None, 0.0))
        if known is not None and until > now and known.challenge == challenge and await self.find(known.id) == known:
            return known
        link = ConnectLink(secrets.token_urlsafe(32), owner, toolbox, server, challenge)
        await self._keep(owner, _link_place(link.id), _encode(link))
        self._open[owner] = link, now + LINK_SECONDS / 2
        return link

    async def find(self, link_id: str) -> ConnectLink | None:
        """The link with this id; None if it was used, has expired, or never existed."""
        if len(link_id) != ID_CHARACTERS:
            return None
        place = _link_place(link_id)
        found = await self._records.get(place)
        return None if found is None else _decode_link(self._vault.unseal(place, found.value))

    async def use(self, link: ConnectLink) -> bool:
        """Use the link; False if it was used or has expired."""
        return await self._records.delete(_link_place(link.id))

    async def begin(self, login: BegunLogin) -> None:
        """Keep a login until its redirect arrives."""
        await self._keep(login.link.owner, _login_place(login.pending.state), _encode(login))

    async def find_login(self, state: str) -> BegunLogin | None:
        """The login that a redirect belongs to; None if there is none."""
        if len(state) != ID_CHARACTERS:
            return None
        place = _login_place(state)
        found = await self._records.get(place)
        return None if found is None else _decode_login(self._vault.unseal(place, found.value))

    async def use_login(self, login: BegunLogin) -> bool:
        """Use a begun login; False if it was used or has expired."""
        return await self._records.delete(_login_place(login.pending.state))

    async def complete(self, link: ConnectLink) -> None:
        """The user of this link has connected: continue the calls that wait for that."""
        await self._records.put(_done_place(link.id), b"", ttl=LINK_SECONDS)
        await self._vault.publish(link.owner)

    async def _keep(self, owner: CredentialOwner, place: str, value: bytes) -> None:
        kept = self._kept[owner] = [*self._kept.get(owner, []), place]
        if len(kept) > MAX_OPEN:
            await self._records.delete(kept.pop(0))
        await self._records.put(place, self._vault.seal(place, value), ttl=LINK_SECONDS)

    async def is_complete(self, link_id: str) -> bool:
        return await self._records.get(_done_place(link_id)) is not None

    async def wait_complete(self, link_id: str, seconds: float) -> bool:
        """Wait until the user of a link has connected, in any process; False when the time is up."""
        hint = asyncio.Event()
        stop = self._vault.feeds.watch(FEED, hint.set)
        try:
            async with asyncio.timeout(seconds):
                while not await self.is_complete(link_id):
                    await wait_for_hint(hint, _CHECK_SECONDS)
        except TimeoutError:
            return False
        finally:
            stop()
        return True


def _link_place(link_id: str) -> str:
    return f"connect link {digest(link_id)}"


def _login_place(state: str) -> str:
    return f"connect login {digest(state)}"


def _done_place(link_id: str) -> str:
    return f"connect done {digest(link_id)}"
