"""Streams a file to a tool and prints the result: `streaming_client.py ws://127.0.0.1:7332/ws FILE`."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from pathlib import Path

from websockets.asyncio.client import connect


async def send(url: str, path: Path) -> str:
    stream = uuid.uuid4()
    async with connect(url) as socket:
        meta = {"method": "checksum", "binary": True, "name": path.name}
        await socket.send(json.dumps({"type": "start", "id": str(stream), "meta": meta}))
        with path.open("rb") as file:
            index = 0
            while chunk := file.read(65536):
                await socket.send(stream.bytes_le + index.to_bytes(8, "little") + chunk)
                index += 1
        await socket.send(json.dumps({"type": "done", "id": str(stream)}))
        ended = json.loads(await socket.recv())
    if ended["type"] == "error":
        raise RuntimeError(ended["error"]["message"])
    text: str = ended["summary"]["content"][0]["text"]
    return text


if __name__ == "__main__":
    print(asyncio.run(send(sys.argv[1], Path(sys.argv[2]))))
