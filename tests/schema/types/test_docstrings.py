"""What docstrings say."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pegboard.schema.types.docstrings import Docs, read_docs
from tests.depth import every_case

pytestmark = every_case

GOOGLE = """Paint a thing.

    It may take
    a while.

    Args:
        color: Paint colour,
            as people call it
        finish (str, optional): How it shines. Defaults to "matt".

    Returns:
        The thing, painted.
    """
NUMPY = """Paint a thing.

    It may take
    a while.

    Parameters
    ----------
    color : str
        Paint colour,
        as people call it
    finish : str, optional
        How it shines. Defaults to "matt".

    Returns
    -------
    str
        The thing, painted.
    """
SPHINX = """Paint a thing.

    It may take
    a while.

    :param color: Paint colour,
        as people call it
    :param str finish: How it shines. Defaults to "matt".
    :returns: The thing, painted.
    """


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_the_three_styles_say_the_same(text: str) -> None:
    assert read_docs(text) == Docs(
        "Paint a thing.\n\nIt may take\na while.",
        {"color": "Paint colour, as people call it", "finish": 'How it shines. Defaults to "matt".'},
    )


@pytest.mark.parametrize("text", [None, "", "  \n "])
def test_no_docstring_says_nothing(text: str | None) -> None:
    assert read_docs(text) == Docs()


def test_prose_is_kept_without_its_indentation() -> None:
    text = """Adds two numbers.

        Example: 5 + 3 = 8
    """
    assert read_docs(text) == Docs("Adds two numbers.\n\nExample: 5 + 3 = 8")
    assert read_docs("Note: this is prose: nothing else.").summary == "Note: this is prose: nothing else."


def test_prose_alone_does_not_import_the_parser() -> None:
    script = (
        "import sys; from pegboard.schema.types.docstrings import read_docs; read_docs('Adds: a, b.\\n\\nMore.');"
        "assert 'docstring_parser' not in sys.modules;"
        "read_docs('Adds.\\n\\nArgs:\\n    a: one'); assert 'docstring_parser' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
