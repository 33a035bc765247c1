"""The environment variables that every child process inherits; all others have to be passed to it explicitly."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

from pegboard.middleware.observability.masking import is_secret

BASIC_VARIABLES: Final = frozenset(
    {
        "HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER",
        "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME",
        "APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP",
        "USERPROFILE",
    }
)  # fmt: skip
"""What every program needs; their values are not secrets."""

# How to reach the network: certificates, proxies, and the package registries that npx, uvx and pipx install from.
_NETWORK: Final = re.compile(
    r"NODE_EXTRA_CA_CERTS|SSL_CERT_(?:FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE"
    r"|[A-Z]+_PROXY|[a-z]+_proxy|(?:NPM_CONFIG|UV|PIP)_[A-Z0-9_]+"
)


def is_network_variable(name: str) -> bool:
    """Whether a variable says how to reach the network; one that names a secret has to be passed explicitly."""
    return _NETWORK.fullmatch(name) is not None and not is_secret(name)


def is_inherited(name: str) -> bool:
    """Whether every child gets this variable."""
    return name in BASIC_VARIABLES or name.startswith("LC_") or is_network_variable(name)


def network_secrets(environ: Mapping[str, str]) -> Iterator[str]:
    """The passwords in the addresses of proxies and registries, which must not be logged."""
    for name, value in environ.items():
        if "@" in value and is_network_variable(name):
            for address in value.split():
                try:
                    password = urlsplit(address).password
                except ValueError:
                    continue
                if password:
                    yield password
