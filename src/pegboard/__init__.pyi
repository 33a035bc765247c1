from pegboard.board import Board as Board
from pegboard.client.client import Client as Client
from pegboard.errors import ToolError as ToolError
from pegboard.execution.context import CancellationToken as CancellationToken
from pegboard.execution.context import Context as Context
from pegboard.limits import Limits as Limits

__version__: str
