"""Writes docs/limits.md from limits.py and the constants of fixed limits; `--check` only compares them."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from interpreters import ROOT

SOURCE = ROOT / "src" / "pegboard"
PAGE = ROOT / "docs" / "limits.md"
EXAMPLE = ROOT / "examples" / "quotas.py"

INTRODUCTION = """# Limits

Every buffer, queue and wait of Pegboard has a limit. Set them with `Limits`, on a board, a gateway or a client (the last table lists fixed ones):
`Board("shop", limits=Limits(body_bytes=1_000_000, calls=200))`. A gateway passes its limits to its connections with servers. In a store that
several processes share, give all of them the same limits.

`scripts/limits_page.py` writes this page from the source.

## Quotas
A quota limits what one caller may use, over all endpoints and toolboxes of a server. The fields of `Limits` that end in `_per_caller` are the quota of
everyone; `quotas` changes it for everyone, for anonymous callers, by role, and by principal:

```python
# examples/quotas.py
{quotas}```

In the file of a gateway: `"quotas": {"everyone": {"rate": "600/minute"}, "roles": {"batch": {"calls": 200}}}`. A changed file applies at once. The most
specific quota that sets an amount decides: principal, role (of several, the largest), anonymous, everyone, `Limits`. None, or `null`, means no limit.

| amount | limits |
|---|---|
| `rate` | requests per second, minute, hour or day: `"600/minute"`. Every request counts, also the handshake and lists: one `pegboard call` sends three |
| `bytes` | bytes of its requests per period: `"100MiB/minute"` |
| `tokens` | tokens of the results of tools per period; counted afterwards, so one result may exceed it, and the next request waits |
| `calls` | calls that run at the same time |
| `streams` | open streams: subscriptions, WebSockets, streams of deprecated endpoints |
| `sessions` | open sessions of legacy clients; a further one replaces the caller's own session that has been idle longest |
| `tasks`, `task_bytes` | stored tasks, and the bytes of their requests and results (`taskBytes` in a file) |
| `parked` | calls of a gateway that wait for an answer of the caller |

- **Callers** are principals. An anonymous caller is its address, an IPv6 network of 64 bits being one caller; behind a proxy, set `--trusted-proxy`. Anonymous
  callers on this machine are not counted.
- **Rejections.** A request beyond a quota is rejected before its call begins, with 429, `Retry-After` and, for an amount per period, the fields `RateLimit-Policy`
  and `RateLimit`. The JSON-RPC error has `data: {"reason": "rate", "retryAfter": 12}`. When less than a quarter of the requests is left, responses have the
  field `RateLimit: "rate";r=12;t=45`. After 20 rejections in a second, further ones are sent up to one second later. A limit of the whole process answers 503.
- **Defaults.** A server that other machines can reach (`--public`, or behind `--trusted-proxy`) applies `rate="200/second"`, `bytes="64MiB/second"` and
  `sessions=1000` to each caller. A server on loopback, or mounted in another application, applies only `Limits` and what you set.
- **Several processes** with a common store share each quota: a process claims a part of it in the store, and more when it needs more, so no request waits for
  the store except the first one of a caller. A caller that uses only one of *n* processes may use an *n*-th of a period's amount at once, and soon the whole
  rate. Without the store, each process applies an *n*-th, and says so in its log; so do workers without a common store.
- **Fairness.** Callers get threads, slots of servers behind a gateway and places in the queue of `ConcurrencyLimit` in turn, so a caller with many
  waiting calls delays another by one. Of more than four threads or slots, one caller leaves a fifth to others.

The middleware `RateLimit` and `ConcurrencyLimit` limit tools rather than callers: they run inside of a call, and their rejection is a result for the model.
"""
FIXED = """
## Fixed limits
You cannot set these; the constants are in `src/pegboard/`.

| limit | value | constant |
|---|---|---|
"""
CONSTANTS = (
    ("Depth of calls that tools make to other tools", "execution/nested_calls.py", "MAX_DEPTH"),
    ("Time that the start of a board waits for a remote server", "gateway/remote_server.py", "CONNECT_SECONDS"),
    ("Time that the lifespans of a board have to close", "execution/lifespans.py", "CLOSE_SECONDS"),
    ("Connections that wait to be accepted", "server/http/listener.py", "BACKLOG"),
    ("Accounts of callers that are kept; further callers share one", "accounts/accounts.py", "MAX_ACCOUNTS"),
    ("Longest time that a rejection for a quota is held back", "accounts/account.py", "HELD_BACK_SECONDS"),
    ("Time that the first request of a caller waits for its share", "accounts/stored_shares.py", "CLAIM_SECONDS"),
    ("Pause after a share could not be increased", "accounts/stored_shares.py", "RETRY_SECONDS"),
    ("Callers whose shares are claimed at once", "accounts/stored_shares.py", "CLAIMS"),
    ("Slots that a caller may hold for each one that is free", "fair_slots.py", "SHARE"),
    ("Length of a token of a caller", "auth/request_credentials.py", "TOKEN_BYTES"),
    ("Tokens whose verification is remembered", "server/http/authenticated_endpoint.py", "_REMEMBERED"),
    ("Keys in the key set of an issuer", "auth/issuer_keys.py", "MAX_KEYS"),
    ("Pause between requests for the keys of an issuer, for an unknown key", "auth/issuer_keys.py", "ROTATION_SECONDS"),
    ("The same after a failure", "auth/issuer_keys.py", "RETRY_SECONDS"),
    ("Introspection requests at once", "auth/token_verifiers.py", "AT_ONCE"),
    ("Introspection requests that wait", "auth/token_verifiers.py", "WAITING"),
    ("Age of a DPoP proof", "auth/dpop.py", "PROOF_SECONDS"),
    ("Interval at which API keys are read from the store", "auth/api_keys.py", "CHECK_SECONDS"),
    ("Interval of keep-alive comments on an event stream", "server/exchange/calls_in_flight.py", "_KEEP_ALIVE_SECONDS"),
    ("Time for `start` and `stop` of a middleware", "hooks/lifecycle.py", "HOOK_SECONDS"),
    ("Sets of rights whose verdicts are remembered", "rules/verdicts.py", "VIEWS_KEPT"),
    (
        "Lists of one kind that are kept for callers with different rights",
        "catalog/pagination.py",
        "_LISTS_KEPT",
    ),
    ("Length of the URI of a resource", "catalog/uri_template.py", "URI_LENGTH"),
    ("Size of a file with instructions", "catalog/instructions_template.py", "MAX_FILE_BYTES"),
    ("Tools that instructions list", "catalog/instructions_template.py", "MAX_TOOLS"),
    ("Time for the health check of a helper process", "helper_process.py", "CHECK_SECONDS"),
    ("Failed checks after which a helper process is restarted", "helper_process.py", "FAILED_CHECKS"),
    ("Nesting of a JSON Schema", "schema/schema_check.py", "SCHEMA_DEPTH"),
    ("Parts of a JSON Schema", "schema/schema_check.py", "SCHEMA_PARTS"),
    ("Length of a regular expression in a JSON Schema", "schema/schema_check.py", "PATTERN_LENGTH"),
    ("Time that SQLite waits for a lock", "stores/sqlite/database_file.py", "LOCK_WAIT_SECONDS"),
    ("Size of the headers of a response to a client", "client/http/http_connection.py", "HEAD_BYTES"),
    ("Redirects that a client follows", "client/http/http_pool.py", "REDIRECTS"),
    ("Pages of a list that a client reads", "client/request_delivery.py", "MAX_PAGES"),
    ("Rounds of questions that a client answers in one call", "client/request_delivery.py", "MAX_ROUNDS"),
    ("Times that a client resumes a broken stream", "client/transports/session_http.py", "RESUMPTIONS"),
    (
        "Lines of the stderr of a child process that are logged in 10 s",
        "client/transports/stderr_log.py",
        "LOGGED_LINES",
    ),
    ("Time for a person to log in", "client/login/browser.py", "LOGIN_SECONDS"),
    ("Time for a request to an authorization server", "client/login/login_http.py", "REQUEST_SECONDS"),
    ("Size of a document of an authorization server", "client/login/login_http.py", "DOCUMENT_BYTES"),
    ("Requests that wait for a slot of one server of a gateway", "gateway/servers/request_slots.py", "MAX_WAITING"),
    ("Connections of a gateway with a server that it starts", "gateway/servers/connection_pool.py", "MAX_CONNECTIONS"),
    ("Connections with a server over the network", "gateway/servers/connection_pool.py", "MAX_REMOTE_CONNECTIONS"),
    ("Items that a gateway reads of one list of a server", "gateway/servers/server_catalog.py", "MAX_ITEMS"),
    ("Size of one such item", "gateway/servers/server_catalog.py", "MAX_ITEM_BYTES"),
    ("Size of all lists of one server", "gateway/servers/server_catalog.py", "MAX_BYTES"),
    ("Interval of health checks of a gateway", "gateway/servers/supervisor.py", "HEALTH_CHECK_SECONDS"),
    ("Time that a command such as `npx` gets to install a server", "gateway/servers/downstream.py", "INSTALL_SECONDS"),
    ("Such commands that begin at once", "gateway/gateway.py", "MAX_INSTALLING"),
    ("Time that a store gets to answer for `/ready`", "server/streamable_http/readiness.py", "STORE_SECONDS"),
    ("Longest pause before a gateway reconnects a server", "gateway/servers/supervisor.py", "LONGEST_PAUSE"),
    ("Size of a configuration file", "config/source_file.py", "MAX_BYTES"),
)


def introduction() -> str:
    """The first part of the page, with the board of the example."""
    source = EXAMPLE.read_text()
    board = next(node for node in ast.parse(source).body if isinstance(node, ast.Assign))
    return INTRODUCTION.replace("{quotas}", f"{ast.get_source_segment(source, board)}\n", 1)


def main() -> None:
    page = "".join([introduction(), *settable_limits(), FIXED, *fixed_limits()])
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page)
    elif PAGE.read_text() != page:
        sys.exit("docs/limits.md differs from the source: run scripts/limits_page.py")


def settable_limits() -> Iterator[str]:
    """A table for each section of `Limits`, which a comment begins."""
    path = SOURCE / "limits.py"
    lines = path.read_text().splitlines()
    (fields,) = [node.body for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]
    for field, text in zip(fields[1::2], fields[2::2], strict=True):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and field.value):
            sys.exit(f"limits.py:{field.lineno}: not a field with a default")
        if not (isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)):
            sys.exit(f"limits.py:{field.lineno}: {field.target.id} has no docstring")
        if section := re.match(r"    # -- (.+)", lines[field.lineno - 2]):
            yield f"\n## {section[1]}\n| field | default | meaning |\n|---|---|---|\n"
        yield f"| `{field.target.id}` | {write(field.target.id, field.value)} | {text.value.value!s} |\n"


def fixed_limits() -> Iterator[str]:
    for meaning, module, name in CONSTANTS:
        yield f"| {meaning} | {write(name, constant(SOURCE / module, name))} | `{name}` in `{module}` |\n"


def constant(path: Path, name: str) -> ast.expr:
    for node in ast.parse(path.read_text()).body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value) if found == name:
                return value
            case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                return value
    sys.exit(f"{path.relative_to(ROOT)} has no constant {name}: update CONSTANTS in scripts/limits_page.py")


def write(name: str, expression: ast.expr) -> str:
    """A value with its unit, which its name tells."""
    value = eval(compile(ast.Expression(expression), name, "eval"), {"__builtins__": {}})
    lowered = name.lower()
    if lowered.endswith(("_seconds", "_pause")):
        return f"{value:g} s"
    if lowered.endswith(("bytes", "_buffer")) and value % 1024 == 0:
        return f"{value >> 20} MiB" if value % (1 << 20) == 0 else f"{value >> 10} KiB"
    return f"{value:,}"


if __name__ == "__main__":
    main()
