"""Sizes, counts and times that bound a server, a gateway or a client."""

from __future__ import annotations

from msgspec import Struct


class Limits(Struct, frozen=True, kw_only=True):
    """Pass it as `Board(limits=…)`, `Gateway(limits=…)` or `Client(limits=…)`: `Limits(body_bytes=1_000_000)`.

    Sizes are in bytes and times in seconds. docs/limits.md lists all fields, and the limits that are fixed.
    """

    # -- HTTP connections
    connections: int = 10_000
    """Open connections of the server; further ones wait in the backlog of the socket."""
    pipelined: int = 8
    """Requests that one connection may send before their responses."""
    inline_answers: int = 16
    """Requests of one connection that are answered before other connections get their turn."""
    head_bytes: int = 32 * 1024
    """Size of the request line and the headers together."""
    head_lines: int = 100
    """Header lines of a request."""
    head_seconds: float = 10.0
    """Time for the request line and the headers to arrive, and for a TLS handshake."""
    body_bytes: int = 4 * 1024 * 1024
    """Size of the body of a request, and of a WebSocket message."""
    body_seconds: float = 30.0
    """Time for the body of a request, or a WebSocket message, to arrive."""
    body_rate: int = 1024
    """Bytes per second at which a body must arrive, after the first five seconds."""
    idle_seconds: float = 75.0
    """Time that a connection stays open without a request."""
    write_buffer: int = 64 * 1024
    """Size of unsent data of one connection at which its sender waits."""
    write_seconds: float = 30.0
    """Time without progress after which a connection that does not read its data is closed."""
    buffered_bytes: int = 48 * 1024 * 1024
    """Size of unread and unsent data of all connections; beyond it connections are closed, the oldest first."""

    # -- Messages
    json_depth: int = 128
    """Levels of nesting in a message."""
    integer_digits: int = 400
    """Digits of a number."""
    batch: int = 100
    """Messages in a batch, for the revisions that have batches."""
    line_bytes: int = 16 * 1024 * 1024
    """Size of a message that a server reads from stdin."""
    server_message_bytes: int = 16 * 1024 * 1024
    """Size of a message that a client, or a gateway, accepts from a server."""

    # -- Arguments and results
    repair_work: int = 10_000
    """Work that repairing the arguments of one call may take, in units of about 20 microseconds."""
    repair_text: int = 64 * 1024
    """Characters of a text that a repair may read as another type, such as JSON in a string."""
    result_bytes: int = 16 * 1024 * 1024
    """Size of the result of a tool, and of a file that is read as a resource."""
    listed_files: int = 1000
    """Files of a folder that are listed as resources."""

    # -- Calls
    calls: int = 4096
    """Calls that run at the same time; further ones are rejected as busy."""
    call_bytes: int = 64 * 1024 * 1024
    """Size of the requests of all running calls; a request of 4 KiB or less is not counted."""
    calls_per_caller: int = 256
    """Calls of one principal, session or connection that run at the same time."""
    completions: int = 100
    """Completion requests of one caller per second."""
    quiet_seconds: float = 5.0
    """Time without a message after which the response of a call becomes a stream, to keep the connection alive."""
    threads: int = 32
    """Threads for tools that are plain functions."""
    thread_queue: int = 512
    """Calls that wait for a thread; further ones are rejected as busy."""
    threads_asking: int = 256
    """Further threads, for tools that wait for the answer to a question."""

    # -- Sessions and streams of legacy clients
    sessions: int = 10_000
    """Sessions that are open at the same time."""
    session_seconds: float = 1800.0
    """Time without a request after which a session ends."""
    session_streams: int = 64
    """Streams of one session that are kept for resumption."""
    session_bytes: int = 4 * 1024 * 1024
    """Size of the stored events of one session."""
    stream_events: int = 1000
    """Stored events of one stream; the oldest are trimmed."""
    stream_bytes: int = 1024 * 1024
    """Size of the stored events of one stream; the oldest are trimmed."""
    ended_streams: int = 16
    """Streams of one session that are kept after they ended."""
    ended_seconds: float = 300.0
    """Time that a stream is kept after it ended."""
    stored_bytes: int = 64 * 1024 * 1024
    """Size of the stored events of all sessions."""

    # -- Stores and workers
    unwritten_bytes: int = 16 * 1024 * 1024
    """Size of the data that waits to be written to the store; further writes wait."""
    worker_seconds: float = 5.0
    """Time without a sign of life after which a worker counts as gone."""
    worker_messages: int = 10_000
    """Messages that wait for one worker."""

    # -- Questions to the caller
    questions: int = 16
    """Questions of one call that are open at the same time; for a client, questions of one legacy server."""
    ask_seconds: float = 600.0
    """Time that a legacy client has to answer a question."""
    rounds: int = 10
    """Rounds of questions that one call of a tool may take; the official clients stop after ten."""
    ticket_seconds: float = 600.0
    """Time that a client of 2026-07-28 has to repeat its request with the answers."""
    ticket_bytes: int = 256 * 1024
    """Size of the `requestState` that a client carries between rounds."""
    used_tickets: int = 100_000
    """Used `requestState` values that are remembered, so that none is used twice."""
    used_tickets_per_caller: int = 10_000
    """The same for one principal."""

    # -- Calls that wait for an approval
    approvals: int = 1_000
    """Approval requests that are open or not used yet."""
    approvals_per_caller: int = 20
    """The same for one principal."""
    approval_bytes: int = 64 * 1024
    """Size of the arguments of a call that needs an approval: a person has to read them."""
    approval_seconds: float = 3600.0
    """Time for a decision, and from then on for the call that uses it."""
    approval_wait_seconds: float = 45.0
    """Time that a call waits for a decision; then its result says to call again. Many clients give up after 60 s."""
    first_use_seconds: float = 30 * 86_400.0
    """Time that the approval of a caller's first use of a server holds."""

    # -- Calls of a gateway that wait for their caller
    parked: int = 512
    """Calls at legacy servers that wait for an answer of their caller; see docs/decisions/0008-parked-calls.md."""
    parked_per_caller: int = 32
    """The same for one principal."""
    parked_seconds: float = 600.0
    """Time that such a call waits."""

    # -- Tasks
    tasks: int = 10_000
    """Tasks that are stored."""
    tasks_per_caller: int = 1_000
    """The same for one principal."""
    task_bytes: int = 256 * 1024 * 1024
    """Size of the stored results of all tasks."""
    task_bytes_per_caller: int = 64 * 1024 * 1024
    """The same for one principal."""
    task_seconds: float = 3600.0
    """Time that a task is stored, from its creation."""

    # -- Subscriptions
    subscribers: int = 10_000
    """Subscriptions to changes that are open at the same time."""
    subscribers_per_caller: int = 1_000
    """The same for one principal."""
    subscribed_uris: int = 1_000
    """Resources that one client subscribes to."""
    subscribed_uri_bytes: int = 256 * 1024
    """Size of the URIs that one client subscribes to."""
    all_subscribed_uri_bytes: int = 32 * 1024 * 1024
    """Size of the URIs that all clients subscribe to."""
    changes: int = 10_000
    """Changes that are remembered for subscribers that are behind."""

    # -- WebSocket streams
    chunk_bytes: int = 256 * 1024
    """Size of one chunk that a tool writes to its stream; larger ones are split."""
    unread_bytes: int = 1024 * 1024
    """Size of the data of one stream that a tool has not read yet."""
    all_unread_bytes: int = 32 * 1024 * 1024
    """The same for all streams; beyond it each stream may hold only `window_bytes`."""
    window_bytes: int = 64 * 1024
    """Largest window of a stream with flow control."""
    unread_seconds: float = 30.0
    """Time that a stream waits for its reader, or for more data."""
    ping_seconds: float = 20.0
    """Time of silence after which a WebSocket is pinged; after twice that time it is closed."""

    # -- The process
    drain_seconds: float = 10.0
    """Time that running calls get to finish at shutdown; on stdio at most 2 s."""
    start_seconds: float = 60.0
    """Time that the lifespans of a board, and the services that open at start, get to start."""
    stall_seconds: float = 0.25
    """Time that the event loop may be blocked before the log names the code that blocks it."""
