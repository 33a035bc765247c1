"""The audit log of a configuration, for decisions that are made on the command line."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from pegboard.config.gateway_config import GatewayConfig, find_config, read_config
from pegboard.errors import SetupError
from pegboard.logs.audit_sink import NO_AUDIT, AuditSink
from pegboard.middleware.audit.audit import Audit

Audited: TypeAlias = AbstractAsyncContextManager[AuditSink]


@asynccontextmanager
async def audit_of(config: str | Path | GatewayConfig | None, store: str | None = None) -> AsyncIterator[AuditSink]:
    """The audit log that a configuration names; NO_AUDIT if it names none.

    Without a configuration it is the default one, unless `store` says that the command is not about a configuration.
    """
    if config is None and store is None:
        with suppress(SetupError):
            config = find_config(os.environ)
    audit = None if config is None else find_audit(config)
    if audit is None:
        yield NO_AUDIT
        return
    try:
        yield audit
    finally:
        audit.close()


def find_audit(config: str | Path | GatewayConfig) -> Audit | None:
    """The Audit of a configuration, if it has one."""
    if not isinstance(config, GatewayConfig):
        path = Path(config).expanduser()
        # Reading the whole configuration may run commands, for its secrets.
        if not path.is_file() or b"Audit" not in path.read_bytes():
            return None
        config = read_config(path, os.environ)
    named = next((entry for entry in config.middleware if entry.use == "Audit"), None)
    return None if named is None else Audit(**named.options)  # type: ignore[arg-type]  # checked by read_config


def audit_folder(path: str) -> Path:
    """The folder of an audit log: a folder, or that of a configuration file."""
    given = Path(path).expanduser()
    if given.is_dir():
        return given
    if not given.exists():
        raise SetupError(f"File not found: {path}")
    audit = find_audit(given)
    if audit is None:
        raise SetupError(
            f"{path} is neither the folder of an audit log nor a configuration with Audit in its 'middleware'"
        )
    audit.close()
    return audit.folder
