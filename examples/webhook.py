"""A lifespan that opens a database, and HTTP routes beside the MCP endpoint."""

import sqlite3
from collections.abc import AsyncIterator

from pegboard import Board, Context, HttpRequest, HttpResponse

board = Board("shop")


class Orders:
    """The orders of the shop."""

    def __init__(self) -> None:
        self.database = sqlite3.connect(":memory:", check_same_thread=False)
        self.database.execute("create table orders (number integer primary key, item text)")

    def add(self, item: str) -> int:
        return self.database.execute("insert into orders (item) values (?)", (item,)).lastrowid or 0

    def count(self) -> int:
        return int(self.database.execute("select count(*) from orders").fetchone()[0])


@board.lifespan
async def open_orders() -> AsyncIterator[dict[str, Orders]]:
    orders = Orders()
    yield {"orders": orders}
    orders.database.close()


@board.tool
async def count_orders(ctx: Context) -> int:
    """Counts the orders."""
    orders: Orders = ctx.lifespan["orders"]
    return orders.count()


@board.route("/orders", methods=["POST"])
async def receive_order(request: HttpRequest) -> HttpResponse:
    number = request.lifespan["orders"].add(request.json()["item"])
    return HttpResponse({"number": number}, status=201, headers={"Location": f"/orders/{number}"})


@board.route("/status", public=True)
async def status(request: HttpRequest) -> str:
    return "open"


if __name__ == "__main__":
    board.run()
