"""Sizes, counts and times that bound a server, all of them settable."""

from __future__ import annotations

from msgspec import Struct


class Limits(Struct, frozen=True, kw_only=True):
    """Sizes are in bytes, times in seconds; the code that enforces a limit documents what happens there."""

    connections: int = 10_000
    pipelined: int = 8
    inline_answers: int = 16
    head_bytes: int = 32 * 1024
    head_lines: int = 100
    head_seconds: float = 10.0
    body_bytes: int = 4 * 1024 * 1024
    body_seconds: float = 30.0
    body_rate: int = 1024
    idle_seconds: float = 75.0
    write_buffer: int = 64 * 1024
    write_seconds: float = 30.0
    buffered_bytes: int = 48 * 1024 * 1024

    json_depth: int = 128
    integer_digits: int = 400
    batch: int = 100
    # Work units of about twenty microseconds that the repair of one call's arguments may take.
    repair_work: int = 10_000
    # The characters of a string that repair parses as something else, such as JSON.
    repair_text: int = 64 * 1024

    calls: int = 4096
    # The requests of all calls under way; a request of 4 KiB or less is not counted.
    call_bytes: int = 64 * 1024 * 1024
    calls_per_caller: int = 256
    completions: int = 100
    listed_files: int = 1000
    quiet_seconds: float = 5.0
    threads: int = 32
    thread_queue: int = 512
    threads_asking: int = 256
    result_bytes: int = 16 * 1024 * 1024

    line_bytes: int = 16 * 1024 * 1024

    sessions: int = 10_000
    session_seconds: float = 1800.0
    session_streams: int = 64
    session_bytes: int = 4 * 1024 * 1024
    stream_events: int = 1000
    stream_bytes: int = 1024 * 1024
    ended_streams: int = 16
    ended_seconds: float = 300.0
    stored_bytes: int = 64 * 1024 * 1024
    unwritten_bytes: int = 16 * 1024 * 1024
    worker_seconds: float = 5.0
    worker_messages: int = 10_000

    questions: int = 16
    ask_seconds: float = 600.0
    used_tickets: int = 100_000
    used_tickets_per_caller: int = 10_000

    parked: int = 512
    parked_per_caller: int = 32
    parked_seconds: float = 600.0

    tasks: int = 10_000
    tasks_per_caller: int = 1_000
    task_bytes: int = 256 * 1024 * 1024
    task_bytes_per_caller: int = 64 * 1024 * 1024
    task_seconds: float = 3600.0

    subscribers: int = 10_000
    subscribed_uris: int = 1_000
    subscribed_uri_bytes: int = 256 * 1024
    all_subscribed_uri_bytes: int = 32 * 1024 * 1024
    changes: int = 10_000

    chunk_bytes: int = 256 * 1024
    unread_bytes: int = 1024 * 1024
    all_unread_bytes: int = 32 * 1024 * 1024
    window_bytes: int = 64 * 1024
    unread_seconds: float = 30.0
    ping_seconds: float = 20.0

    drain_seconds: float = 10.0
    stall_seconds: float = 0.25
