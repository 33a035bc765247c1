"""Definitions that are not served: malformed ones, and those that an operator has to accept first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from msgspec import Struct

from pegboard.gateway.lock.definition_scan import scan_text
from pegboard.gateway.lock.pins import Pins
from pegboard.gateway.modes.instructions import MAX_INSTRUCTIONS
from pegboard.gateway.offers import Offers
from pegboard.tools.qualified_names import ToolName


class WithheldDefinitions(Struct):
    """Tools with the reason, prompts, templates by server and URI, and the servers whose instructions are withheld.

    A server whose templates are not known yet is in `templates` with none.
    """

    tools: dict[ToolName, str] = {}
    prompts: set[ToolName] = set()
    templates: dict[tuple[str, str], set[str]] = {}
    instructions: set[tuple[str, str]] = set()


def withhold(shown: Sequence[Offers], pins: Pins) -> WithheldDefinitions:
    """What is malformed or withheld by the lock file; details of the latter go to the notes of each server's offers."""
    withheld = WithheldDefinitions()
    for offers in shown:
        if offers.catalog is None:
            if pins.quarantines:
                withheld.templates[offers.place] = set()
            continue
        withheld.tools.update(offers.withheld)
        tools = pins.judge(*offers.place, offers.catalog.tools)
        prompts = pins.judge(*offers.place, offers.catalog.prompts, kind="prompts")
        templates = pins.judge(*offers.place, offers.catalog.templates, kind="templates")
        for name, reason in tools.withheld.items():
            if (place := offers.place_of(name)) is not None:
                withheld.tools[place] = reason
        withheld.prompts.update(ToolName(*offers.place, name) for name in prompts.withheld)
        if templates.withheld:
            withheld.templates[offers.place] = {offers.addresses.to_gateway(uri) for uri in templates.withheld}
        notes = [*tools.notes, *prompts.notes, *templates.notes]
        instructions = offers.catalog.instructions
        if instructions and not pins.has_accepted("servers", *offers.place, {"instructions": instructions}):
            findings = _scan(instructions[:MAX_INSTRUCTIONS])
            notes += [
                f"{offers.source}: its instructions are not passed on to clients; {finding}" for finding in findings
            ]
            if findings or pins.quarantines:
                withheld.instructions.add(offers.place)
        offers.notes += [note for note in notes if note not in offers.notes]
    return withheld


@lru_cache(maxsize=256)
def _scan(instructions: str) -> tuple[str, ...]:
    return tuple(str(finding) for finding in scan_text(instructions, "instructions"))
