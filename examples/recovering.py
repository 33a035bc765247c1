"""Errors that tell the model how to recover."""

from pegboard import Board, NextAction, ToolError
from pegboard.middleware import ErrorMessage, ErrorMessages

ORDERS = {17: "three red chairs", 18: "a lamp"}

board = Board("recovering")

board.use(
    ErrorMessages(
        {
            "invalid_arguments": ErrorMessage(steps=("Correct the arguments and call the tool again.",)),
            "internal_error": "The shop has a problem. Tell the user to call support: {message}",
        }
    )
)


@board.tool
async def get_order(order_id: int) -> str:
    """Returns an order."""
    if order_id not in ORDERS:
        raise ToolError(
            f"Order {order_id} does not exist.",
            code="NOT_FOUND",
            steps=["Look for the order among the orders of the customer.", "Call get_order with its id."],
            try_tool=NextAction("list_orders", {"limit": 10}, "lists the newest orders"),
        )
    return ORDERS[order_id]


@board.tool
async def list_orders(limit: int = 100) -> list[int]:
    """Lists the ids of orders, newest first."""
    return sorted(ORDERS, reverse=True)[:limit]


if __name__ == "__main__":
    board.run()
