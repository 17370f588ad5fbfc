"""docs/EQUATIONS.md names files and symbols: each must exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "EQUATIONS.md").read_text()
NAMED = sorted(set(re.findall(r"`(r1lit/[\w/]+\.py)` `(\w+)`", TEXT)))


def definitions(path: Path) -> set[str]:
    kinds = (ast.ClassDef, ast.FunctionDef)
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, kinds)}


@pytest.mark.parametrize(("file", "symbol"), NAMED, ids=lambda v: v.rsplit("/", 1)[-1])
def test_every_symbol_exists(file, symbol):
    assert symbol in definitions(ROOT / file)


def test_every_path_exists():
    paths = re.findall(r"`((?:tests|r1lit)/[\w/]+\.py)`", TEXT)
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_equation_of_this_room_is_listed():
    # Each file of objectives/ that defines something public is named at least once.
    files = {p.relative_to(ROOT).as_posix() for p in (ROOT / "r1lit/objectives").glob("*.py")}
    helpers = {"r1lit/objectives/__init__.py", "r1lit/objectives/loss_inputs.py"}
    assert files - helpers == {f for f, _ in NAMED if f.startswith("r1lit/objectives/")}
