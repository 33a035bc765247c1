"""A board whose tools do all that a server has to survive; tests serve it in processes of its own."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import threading
from collections import defaultdict
from pathlib import Path

from pegboard import Board, CancellationToken, Context, Limits, ToolError

FOREVER = 600.0

board = Board(
    "rough",
    version="1.0.0",
    instructions="Handle with care.",
    limits=Limits(drain_seconds=float(os.environ.get("ROUGH_DRAIN", "10")), line_bytes=1024 * 1024),
)

gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
bolts: dict[str, threading.Event] = {}
left_behind: set[asyncio.Task[None]] = set()


def bolt(key: str) -> threading.Event:
    """The one event of a key, for the loop and all threads: setdefault is one step."""
    return bolts.setdefault(key, threading.Event())


@board.tool
def add(a: float, b: float) -> float:
    """Adds two numbers."""
    return a + b


@board.tool
async def hold(key: str) -> str:
    """Waits on the loop until the key is released."""
    gates["begun " + key].set()
    await gates[key].wait()
    return f"held {key}"


@board.tool
def hold_thread(key: str, token: CancellationToken) -> str:
    """Waits in a thread until the key is released, whatever happens to its caller."""
    bolt("begun " + key).set()
    bolt(key).wait(FOREVER)
    bolt("ended " + key).set()
    return f"held {key}, cancelled {token.cancelled}"


@board.tool
async def pause(key: str, seconds: float) -> str:
    """Takes its time."""
    gates["begun " + key].set()
    await asyncio.sleep(seconds)
    return "paused"


@board.tool
async def release(key: str) -> str:
    """Lets everybody go who waits for the key."""
    gates[key].set()
    bolt(key).set()
    return "released"


@board.tool
async def begun(key: str) -> str:
    """Waits until somebody holds the key."""
    waits = [asyncio.ensure_future(gates["begun " + key].wait())]
    waits.append(asyncio.ensure_future(asyncio.to_thread(bolt("begun " + key).wait, FOREVER)))
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    bolt("begun " + key).set()
    return "begun"


@board.tool
async def steps(upto: int, ctx: Context) -> str:
    """Tells of its progress."""
    for step in range(1, upto + 1):
        await ctx.progress(step, upto, f"step {step}")
    return "done"


@board.tool
def chatter(key: str, ctx: Context, token: CancellationToken) -> str:
    """Goes on telling of its progress after its caller has left."""
    bolt("begun " + key).set()
    token.wait(FOREVER)
    ctx.progress(99, 100, "nobody should read this")
    bolt("ended " + key).set()
    return "done"


@board.tool
async def ended(key: str) -> bool:
    """Waits until a thread with that key has come to its end."""
    return await asyncio.to_thread(bolt("ended " + key).wait, 20.0)


@board.tool
def noise(how: str) -> str:
    """Writes to stdout in every way there is."""
    if how == "print":
        print("noise from print", flush=True)
    elif how == "system":
        os.system("echo noise from a child")
    elif how == "fd":
        os.write(1, b"noise from a descriptor\n")
    elif how == "c":
        libc = ctypes.CDLL(None)
        libc.puts(b"noise from C")
        libc.fflush(None)
    elif how == "original":
        sys.__stdout__.write("noise from the original stdout\n")
        sys.__stdout__.flush()
    return "quiet"


@board.tool
def ask_stdin() -> str:
    """Reads stdin, which is not for tools."""
    try:
        return input("name? ")
    except EOFError:
        return "nothing there"


@board.tool
def leave(how: str) -> str:
    """Tries to end the process from a thread."""
    raise {"exit": SystemExit(3), "interrupt": KeyboardInterrupt()}[how]


@board.tool
async def leave_async(how: str) -> str:
    """Tries to end the process from the loop."""
    raise {"exit": SystemExit(3), "interrupt": KeyboardInterrupt()}[how]


@board.tool
async def leave_behind(how: str) -> str:
    """Leaves a task behind that tries to end the process."""

    async def stray() -> None:
        raise {"exit": SystemExit(3), "interrupt": KeyboardInterrupt()}[how]

    left_behind.add(asyncio.ensure_future(stray()))
    return "left"


@board.tool
def fail(text: str, told: bool = False) -> str:
    """Raises."""
    raise ToolError(text) if told else RuntimeError(text)


@board.tool
def big(size: int) -> str:
    """Returns much."""
    return "x" * size


@board.tool
async def block_the_loop() -> str:
    """What nobody should do: a coroutine that never lets go."""
    print("blocking", file=sys.stderr, flush=True)
    bolt("never").wait(FOREVER)
    return "never"


@board.tool
async def start_thread() -> str:
    """Leaves a thread behind that is no daemon and never returns."""
    threading.Thread(target=bolt("never").wait, args=(FOREVER,), daemon=False).start()
    return "started"


@board.tool
def memory() -> int:
    """How much memory this process holds, in bytes."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    board.run(port=int(os.environ.get("ROUGH_PORT", "7332")))
