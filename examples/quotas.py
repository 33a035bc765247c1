"""What each caller may use of a server."""

from pegboard import Board, Quota, Quotas

board = Board(
    "shop",
    quotas=Quotas(
        everyone=Quota(rate="600/minute", calls=32, tokens="2000000/day"),
        anonymous=Quota(rate="60/minute"),
        roles={"batch": Quota(rate="6000/minute", bytes="1GiB/hour")},
        principals={"key:nightly": Quota(rate=None, tasks=5_000)},
    ),
)


@board.tool
def find(words: str) -> list[str]:
    """Find products."""
    return [f"a product for {words}"]


if __name__ == "__main__":
    board.run()
