"""Prints what can be counted about the layout of the source: folders, duplicate names, sizes, version comparisons.

`.venv/bin/python scripts/layout.py`
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "pegboard"
MOST_MODULES = 12
LARGEST = 15
REVISIONS = "pegboard.protocol.revisions"
REVISION = re.compile(r"20\d\d-\d\d-\d\d")
# Ordering one of these is a comparison of protocol revisions.
ORDERED = frozenset({"version", "revision"})


def main() -> None:
    trees = {path.relative_to(SOURCE): ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}
    lines = {path: len((SOURCE / path).read_text().splitlines()) for path in trees}
    modules = [path for path in trees if path.name != "__init__.py"]
    print(f"{len(modules)} modules, {sum(lines.values()):,} lines")
    show("Modules per folder", modules_per_folder(modules))
    show("Duplicate module names", duplicates((path.stem, str(path)) for path in modules))
    show("Duplicate class names", duplicates(classes(trees)))
    largest = sorted(modules, key=lines.__getitem__, reverse=True)[:LARGEST]
    show("Largest modules", (f"{lines[path]:5}  {path}" for path in largest))
    show("Comparisons of protocol revisions outside protocol/", version_comparisons(trees))


def show(title: str, rows: Iterable[str]) -> None:
    listed = list(rows)
    print(f"\n{title} ({len(listed)})", *listed, sep="\n  ")


def modules_per_folder(modules: Iterable[Path]) -> Iterator[str]:
    for folder, count in sorted(Counter(path.parent for path in modules).items()):
        yield f"{count:5}  {'pegboard' / folder}/{'  (more than a dozen)' if count > MOST_MODULES else ''}"


def classes(trees: Mapping[Path, ast.Module]) -> Iterator[tuple[str, str]]:
    for path, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                yield node.name, str(path)


def duplicates(names: Iterable[tuple[str, str]]) -> Iterator[str]:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for name, place in names:
        places[name].append(place)
    for name, found in sorted(places.items()):
        if len(found) > 1:
            yield f"{name}: {', '.join(found)}"


def version_comparisons(trees: Mapping[Path, ast.Module]) -> Iterator[str]:
    """Comparisons with a revision (a literal, or a constant of the table), and those that order two versions."""
    constants = revision_constants(trees[Path("protocol/revisions.py")])
    for path, tree in trees.items():
        if path.parts[0] != "protocol":
            known = imported_from_revisions(tree) & constants
            for node in ast.walk(tree):
                if isinstance(node, ast.Compare) and compares_revisions(node, known, constants):
                    yield f"{path}:{node.lineno}: {ast.unparse(node)}"


def compares_revisions(node: ast.Compare, known: frozenset[str], constants: frozenset[str]) -> bool:
    sides = [node.left, *node.comparators]
    if any(isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for operator in node.ops):
        return any(getattr(side, "attr", getattr(side, "id", "")) in ORDERED for side in sides)
    return any(
        is_literal(side)
        or (isinstance(side, ast.Name) and side.id in known)
        or (isinstance(side, ast.Attribute) and ast.unparse(side.value) == "revisions" and side.attr in constants)
        for side in sides
    )


def is_literal(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and REVISION.fullmatch(node.value) is not None


def imported_from_revisions(tree: ast.Module) -> frozenset[str]:
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == REVISIONS)
    return frozenset(alias.asname or alias.name for node in imports for alias in node.names)


def revision_constants(table: ast.Module) -> frozenset[str]:
    """The constants that are a revision or a collection of them; tables by method or field are dicts."""
    names: set[str] = set()
    for node in table.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            parts = list(ast.walk(node.value))
            if not any(isinstance(part, ast.Dict | ast.DictComp) for part in parts) and any(
                is_literal(part) or (isinstance(part, ast.Name) and part.id in names) for part in parts
            ):
                names.add(node.target.id)
    return frozenset(names)


if __name__ == "__main__":
    main()
