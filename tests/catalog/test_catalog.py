"""The tools of a board: found by exact name, listed in order, told when they change."""

from __future__ import annotations

import pytest

from pegboard.catalog.tool_catalog import ToolCatalog
from pegboard.errors import DeclarationError, UnknownTool
from pegboard.tools.tool import Tool, tool_from_function


def tool(name: str) -> Tool:
    def work() -> None: ...

    return tool_from_function(work, name)


def test_tools_are_listed_in_registration_order() -> None:
    names = ["zebra", "ant", "mole"]
    catalog = ToolCatalog(map(tool, names))
    assert [one.name for one in catalog] == names
    assert [one["name"] for one in catalog.listing().value["tools"]] == names
    assert len(catalog) == 3


def test_a_tool_is_found_by_exactly_its_name() -> None:
    catalog = ToolCatalog([tool("get_user")])
    assert catalog.find("get_user").name == "get_user"
    assert "get_user" in catalog
    assert "getuser" not in catalog
    assert catalog.get("GET_USER") is None


@pytest.mark.parametrize("name", ["getUser", "get-user", "get_usr", "GET_USER"])
def test_a_name_that_is_nearly_right_is_refused_with_the_right_one(name: str) -> None:
    with pytest.raises(UnknownTool) as refused:
        ToolCatalog([tool("get_user"), tool("weather")]).find(name)
    assert refused.value.data == {"suggestions": ["get_user"]}
    assert "did you mean 'get_user'?" in refused.value.message


def test_a_name_that_is_like_nothing_has_no_suggestion() -> None:
    with pytest.raises(UnknownTool) as refused:
        ToolCatalog([tool("get_user")]).find("xylophone")
    assert refused.value.data is None
    assert refused.value.message == "Unknown tool: 'xylophone'"


@pytest.mark.parametrize("second", ["get_user", "getUser", "GET-USER", "get.user"])
def test_a_name_that_a_model_would_confuse_is_refused(second: str) -> None:
    catalog = ToolCatalog([tool("get_user")])
    with pytest.raises(DeclarationError, match="give one of them another name") as refused:
        catalog.add(tool(second))
    assert "test_catalog.py" in str(refused.value)
    assert len(catalog) == 1


@pytest.mark.parametrize(("first", "second"), [("get_user1", "get_user_1"), ("setup", "set_up"), ("v1.2", "v12")])
def test_names_of_other_words_may_both_exist(first: str, second: str) -> None:
    assert [one.name for one in ToolCatalog([tool(first), tool(second)])] == [first, second]


def test_a_name_is_free_again_once_its_tool_is_taken_down() -> None:
    catalog = ToolCatalog([tool("get_user")])
    assert catalog.remove("get_user").name == "get_user"
    catalog.add(tool("getUser"))
    assert [one.name for one in catalog] == ["getUser"]
    with pytest.raises(UnknownTool):
        catalog.remove("get_user")


def test_the_listing_is_the_same_object_until_something_changes() -> None:
    catalog = ToolCatalog([tool("one")])
    first = catalog.listing()
    assert catalog.listing() is first
    catalog.add(tool("two"))
    assert catalog.listing() is not first
    assert len(first.value["tools"]) == 1


def test_every_change_is_notified_and_counted() -> None:
    catalog, seen = ToolCatalog(), []
    catalog._watch(lambda: seen.append(catalog.generation))
    catalog.add(tool("one"))
    catalog.remove("one")
    assert seen == [1, 2]
