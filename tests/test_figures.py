"""The tables of README and docs are made from bench/figures.json, and a noisy run is not judged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = "Before\n<!-- figures: source -->\nan old line\n<!-- end of figures -->\nAfter\n"

pytestmark = [pytest.mark.process, pytest.mark.same_on_every_python]


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code that imports modules of bench/."""
    path = f"import sys; sys.path.insert(0, {str(ROOT / 'bench')!r})\n"
    return subprocess.run(
        [sys.executable, "-c", path + code, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_tables_of_readme_and_docs_show_the_kept_figures() -> None:
    done = run("import tables\nsys.exit(tables.main())", "--check")
    assert done.returncode == 0, done.stderr


def test_a_page_that_does_not_show_the_kept_figures_is_reported_and_written(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    code = (
        "import kept_figures, tables\n"
        "from pathlib import Path\n"
        f"folder = Path({str(tmp_path)!r})\n"
        "kept_figures.FILE, tables.ROOT, tables.PAGES = folder / 'figures.json', folder, (folder / 'page.md',)\n"
        "noise = {'lost': 0.01, 'spread': 0.02}\n"
        "run = kept_figures.Run('2026-01-02', '2 cores', {'python': 'Python 3.13.0', 'mcp': '2.3.0'}, noise, {})\n"
        "kept_figures.keep({'http': run})\n"
        "sys.exit(tables.main())\n"
    )
    stale = run(code, "--check")
    assert (stale.returncode, page.read_text()) == (1, PAGE), stale.stderr
    assert "page.md does not show bench/figures.json" in stale.stderr
    assert run(code).returncode == 0
    assert "- 2026-01-02, 2 cores, Python 3.13.0; mcp 2.3.0. " in page.read_text()
    assert "http 1.0% and 2.0%." in page.read_text()
    assert "an old line" not in page.read_text()
    assert run(code, "--check").returncode == 0


def test_a_noisy_run_prints_its_figures_without_a_verdict() -> None:
    done = run(
        "from noise import Noise\n"
        "from targets import judge\n"
        "figures = {'gateway of four': {'seconds': 9.0, 'MB': 50.0}}\n"
        "even, one_slow, half_slow = [1.0, 1.02, 1.0, 1.03], [1.0, 1.5, 1.0, 1.0, 1.01], [1.0, 1.5, 1.0, 1.5]\n"
        "print(Noise([0.0], {0: even}).noisy, Noise([0.0], {0: one_slow}).noisy)\n"
        "print(Noise([0.3], {0: even}).noisy, Noise([0.0], {0: even, 1: half_slow}).noisy)\n"
        "print('short' in judge(figures), 'short' in judge(figures, judged=False), '9.00' in judge(figures, judged=False))\n"
    )
    assert done.stdout.split() == ["False", "False", "True", "True", "True", "False", "True"], done.stderr
