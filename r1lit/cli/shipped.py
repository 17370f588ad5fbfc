"""Configs and models shipped with r1lit, found by name wherever it is installed.

``r1lit:mini/r1_zero.yaml`` is a config, ``r1lit:models/mini`` a policy's folder. In a checkout they
lie in its ``configs`` and ``models``; a wheel holds copies.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from r1lit.errors import hint

PREFIX = "r1lit:"


def root() -> Path:
    """Return the folder of ``configs`` and ``models``."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "shipped"
    return installed if installed.is_dir() else package.parent


def find(name: str) -> Path:
    """Return where ``r1lit:<path>`` lies: a config, or below ``models``.

    Raises:
        ValueError: if there is none, naming those that are there.
    """
    path = Path(name.removeprefix(PREFIX))
    folder = root() if path.parts[:1] == ("models",) else root() / "configs"
    if path.parts and ".." not in path.parts and not path.is_absolute():
        found = folder / path
        if found.exists():
            return found
    known = [f"{PREFIX}models/{p.name}" for p in sorted((root() / "models").glob("*"))]
    configs = sorted((root() / "configs").rglob("*.yaml"))
    known += [f"{PREFIX}{p.relative_to(root() / 'configs').as_posix()}" for p in configs]
    raise ValueError(
        f"{name}: r1lit ships nothing of that name{hint(name, known) or ';'} there are"
        f" {', '.join(known)}"
    )


def instead_of(path: str) -> str:
    """Return "; r1lit ships r1lit:NAME" where a config of that path is one of r1lit's."""
    name = PREFIX + path.removeprefix("configs/")
    try:
        find(name)
    except ValueError:
        return ""
    return f"; r1lit ships {name}"


def resolve(node: Any, *, beside: bool = False) -> Any:
    """Return a configuration with every ``r1lit:`` name replaced by its path.

    Args:
        node: mappings, lists and values.
        beside: whether ``models/<name>`` is one too, as it is in configs that lie beside them.
    """
    if isinstance(node, dict):
        return {key: resolve(value, beside=beside) for key, value in node.items()}
    if isinstance(node, list):
        return [resolve(value, beside=beside) for value in node]
    if isinstance(node, str):
        if node.startswith(PREFIX):
            return str(find(node))
        if beside and node.startswith("models/") and (root() / node).exists():
            return str(root() / node)
    return node
