"""A URI finds its template among thousands, in bounded work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pegboard.call import Call, Done, Reply
from pegboard.catalog.resource import RelayedResource, ResourceCatalog
from pegboard.catalog.uri_template import TRIES, URI_LENGTH, Template
from pegboard.errors import ResourceNotFound
from tests.work import count_instructions, grows_linearly


async def relay(call: Call) -> Reply:
    return Done({})


def catalog(templates: list[str]) -> ResourceCatalog:
    made = ResourceCatalog()
    made.replace_all(RelayedResource({"uriTemplate": one, "name": one}, relay, source="s") for one in templates)
    return made


def work(made: ResourceCatalog, uri: str) -> int:
    def find() -> None:
        with pytest.raises(ResourceNotFound):
            made.find(uri)

    find()
    return count_instructions(find)


class Looked(str):
    """A URI that counts the characters that are looked at in search of a literal."""

    __slots__ = ("looked",)

    def find(self, sub: str, start: Any = 0, end: Any = None) -> int:
        found = super().find(sub, start, end)
        last = len(self) if end is None else min(end, len(self))
        self.looked += (last if found < 0 else found) - start
        return found


def test_the_first_of_several_templates_that_fit_is_found() -> None:
    made = catalog(["{+all}:x", "x://{a}/b", "x://long/{a}", "x://{+rest}"])
    assert made.find("x://long/b")[0].uri == "x://{a}/b"
    assert made.find("x://long/c") == (made.template("x://long/{a}"), {"a": "c"})
    assert made.find("x://1/2/3")[0].uri == "x://{+rest}"
    assert made.find("y:x") == (made.template("{+all}:x"), {"all": "y"})
    with pytest.raises(ResourceNotFound):
        made.find("y:z")


def test_a_template_is_found_until_it_is_taken_down() -> None:
    made = catalog(["x://{a}", "x://{+a}"])
    assert made.find("x://1")[0].uri == "x://{a}"
    made.remove("x://{a}")
    assert made.find("x://1")[0].uri == "x://{+a}"
    made.add(RelayedResource({"uriTemplate": "z://{a}", "name": "z"}, relay, source="s"))
    assert made.find("z://1")[0].uri == "z://{a}"


def test_templates_that_begin_otherwise_cost_nothing() -> None:
    few, many = (catalog([f"s{number:04}://{{a}}/x" for number in range(count)]) for count in (100, 2_000))
    assert work(many, "s0007://a/y") <= work(few, "s0007://a/y") * 1.1


def test_templates_that_end_otherwise_are_passed_over_and_the_right_one_found() -> None:
    made = catalog([f"x://{{a}}/{number}" for number in range(4 * TRIES)])
    assert made.find(f"x://a/{4 * TRIES - 1}")[1] == {"a": "a"}


def test_no_more_than_a_bounded_number_of_templates_is_matched() -> None:
    few, many = (catalog([f"x://{{a{number}}}{{?b}}" for number in range(count)]) for count in (TRIES, 4 * TRIES))
    assert work(many, "x://a/y") <= work(few, "x://a/y") * 1.1


def test_a_uri_of_any_length_costs_bounded_work_and_a_fixed_one_is_still_found() -> None:
    made = catalog(["x://{a}/{b}"])
    uri = "x://" + "a" * URI_LENGTH
    made.add(RelayedResource({"uri": uri, "name": "fixed"}, relay, source="s"))
    assert made.find(uri)[0].name == "fixed"
    with pytest.raises(ResourceNotFound):
        made.find(uri + "/b")


@pytest.mark.parametrize(
    ("expression", "value"),
    [("{+a%d}x", "ax"), ("{a%d},", "1,"), ("{/a%d}", "/1"), ("{.a%d}", ".1"), ("{;a%d}", ";a=1"), ("{a%d}{+b%d}", "1")],
)
@pytest.mark.parametrize("end", ["", "z", "{?q}", "{#f}"])
def test_a_match_costs_in_proportion_to_template_and_uri(expression: str, value: str, end: str) -> None:
    def match(size: int) -> Callable[[], object]:
        template = Template("x://" + "".join(expression.replace("%d", str(number)) for number in range(size)) + end)
        uri = Looked("x://" + value * size)

        def check() -> None:
            uri.looked = 0
            template.match(uri)
            assert uri.looked <= 2 * len(uri)

        return check

    assert grows_linearly(match, 200)


def test_a_list_of_variables_is_read_in_one_pass() -> None:
    def match(size: int) -> Callable[[], object]:
        names = [f"a{number}" for number in range(size)]
        template = Template("x://s{?" + ",".join(names) + "}")
        uri = "x://s?" + "&".join(f"{name}=1" for name in names)
        return lambda: template.match(uri)

    assert grows_linearly(match, 200)


@pytest.mark.parametrize(
    ("template", "uri", "variables"),
    [("x://{/a,b}", "x:///1/2", {"a": "1", "b": "2"}), ("x://f{.a,b}", "x://f.1.2", {"a": "1", "b": "2"})],
)
def test_several_values_are_read_as_their_operator_writes_them(
    template: str, uri: str, variables: dict[str, str]
) -> None:
    assert Template(template).expand(variables) == uri
    assert Template(template).match(uri) == variables
