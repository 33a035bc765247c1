"""A type is an argument or a service: registering it as a service after a tool took it as an argument fails."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from pegboard import Board
from pegboard.errors import DeclarationError
from pegboard.execution.services import Services


@dataclass
class Session:
    admin: bool = False


def delete_all(session: Session) -> str:
    return str(session.admin)


def greet(session: Session | None = None) -> str:
    return "hello"


def register(services: Services, way: str) -> None:
    match way:
        case "value":
            services.value(Session, Session())
        case "factory":
            services.factory(Session, Session)
        case "override":
            with services.override(Session, Session()):
                pass


def board_with(kind: str) -> Board:
    board = Board()
    match kind:
        case "tool":
            board.tool(delete_all)
        case "optional":
            board.tool(greet)
        case "group":
            board.group("admin").add(delete_all)
    return board


@pytest.mark.parametrize("kind", ["tool", "optional", "group"])
@pytest.mark.parametrize("way", ["value", "factory", "override"])
def test_a_service_of_a_type_that_a_tool_takes_as_an_argument_is_rejected(kind: str, way: str) -> None:
    services = board_with(kind).services
    with pytest.raises(DeclarationError) as rejected:
        register(services, way)
    message = str(rejected.value)
    function = greet if kind == "optional" else delete_all
    assert f"{__file__}:{function.__code__.co_firstlineno}" in message
    assert "'session'" in message
    assert message.count(Path(__file__).name) == 2, "the place of the tool and that of the registration"
    assert "before" in message
    assert Session not in services


def test_a_type_may_become_a_service_after_its_tool_was_removed() -> None:
    board = board_with("tool")
    board.remove("delete_all")
    board.services.value(Session, Session())
    board.tool(delete_all)
    assert "session" not in board.tools.find("delete_all").input_schema.get("properties", {})


def test_a_service_that_tools_take_already_can_be_replaced() -> None:
    board = Board()
    board.services.value(Session, Session())
    board.tool(delete_all)
    board.services.value(Session, Session(admin=True))
    with board.services.override(Session, Session()):
        pass
