"""How much of r1lit a reader has to hold: closures of imports, and statements in functions.

Files count with all of their lines. A closure holds what the imports of a file lead to; those of
``TYPE_CHECKING`` blocks lead nowhere, and a name of a lazy package leads to the file that has it.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "r1lit"
FILES = sorted(PACKAGE.rglob("*.py"))

LOADED = """
import json, sys
import {module}
files = [m.__file__ for n, m in [*sys.modules.items()] if n.split(".")[0] == "r1lit"]
print(json.dumps(sorted({{f for f in files if f}})))
"""

WITHIN = """
import importlib.abc, importlib.machinery, json, sys
allowed = set(json.loads(sys.argv[1]))
class Refuses(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] == "r1lit":
            spec = importlib.machinery.PathFinder.find_spec(name, path)
            if spec is not None and spec.origin not in allowed:
                raise ImportError(f"{name} is outside of the closure")
sys.meta_path.insert(0, Refuses())
from r1lit.cli import main
main(sys.argv[2:])
files = [m.__file__ for n, m in [*sys.modules.items()] if n.split(".")[0] == "r1lit"]
refused = False
try:
    import r1lit.modules.ppo
except ImportError:
    refused = True
print(json.dumps({"files": sorted(set(files)), "refused": refused}))
"""


def num_lines(files: Iterable[Path]) -> int:
    """Return the lines of files together."""
    return sum(len(file.read_text().splitlines()) for file in files)


def loaded_by(module: str) -> list[Path]:
    """Return the files of r1lit that ``import module`` loads in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(module=module)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [Path(file) for file in json.loads(done.stdout.splitlines()[-1])]


def run_within(files: Iterable[Path], command: list[str]) -> tuple[list[Path], bool]:
    """Run a command of r1lit in a process that can import no other file of it.

    Returns:
        The files in memory at its end, and whether a file that lies outside was refused then.
    """
    allowed = json.dumps([str(file) for file in files])
    done = subprocess.run(
        [sys.executable, "-c", WITHIN, allowed, *command], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    return [Path(file) for file in said["files"]], said["refused"]


# the closure of imports


def file_of(module: str) -> Path | None:
    """Return the file of a module of r1lit; None if it is a name in one, or another's."""
    path = ROOT.joinpath(*module.split("."))
    if module.split(".")[0] != "r1lit":
        return None
    if path.with_suffix(".py").is_file():
        return path.with_suffix(".py")
    return path / "__init__.py" if (path / "__init__.py").is_file() else None


@cache
def exports(package: Path) -> dict[str, str]:
    """Return the names of a lazy package: name -> the module that has it."""
    stub = package.with_suffix(".pyi")
    if not stub.is_file():
        return {}
    dotted = ".".join(package.parent.relative_to(ROOT).parts)
    return {
        alias.name: f"{dotted}.{node.module}"
        for node in ast.parse(stub.read_text()).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def runtime_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a tree but those of ``if TYPE_CHECKING`` blocks."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield child
        yield from runtime_nodes(child)


@cache
def imports_of(file: Path, types: bool = False) -> frozenset[str]:
    """Return the modules of r1lit that a file imports, anywhere in it, with their packages.

    With ``types``, those of ``TYPE_CHECKING`` blocks too.
    """
    named: set[str] = set()
    tree = ast.parse(file.read_text())
    for node in ast.walk(tree) if types else runtime_nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                named.add(alias.name)
                package = file_of(alias.name)
                named |= {*exports(package).values()} if package else set()
        elif isinstance(node, ast.ImportFrom) and node.module:
            package = file_of(node.module)
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                named.add(whole if file_of(whole) else node.module)
                if package is not None and alias.name in (found := exports(package)):
                    named.add(found[alias.name])
    parents = {module.rsplit(".", depth)[0] for module in named for depth in range(6)}
    return frozenset(module for module in named | parents if file_of(module))


def closure(modules: Iterable[str]) -> set[Path]:
    """Return the files that modules, and what they import, lie in."""
    files: set[Path] = set()
    left = list(modules)
    while left:
        module = left.pop()
        file = file_of(module)
        if file is None and "." in module:  # a class path
            package, _, name = module.rpartition(".")
            holder = file_of(package)
            left.append(exports(holder).get(name, package) if holder else "r1lit")
        elif file is not None and file not in files:
            files.add(file)
            parts = module.split(".")
            left += [".".join(parts[:depth]) for depth in range(1, len(parts))]
            left += imports_of(file)
    return files


def class_paths(node: object) -> set[str]:
    """Return the class paths of r1lit that a configuration names."""
    if isinstance(node, dict):
        return set().union(*map(class_paths, node.values()))
    if isinstance(node, list):
        return set().union(*map(class_paths, node))
    return {node} if isinstance(node, str) and node.startswith("r1lit.") else set()


# density


def statements(file: Path) -> dict[int, int]:
    """Return the statements in a file's functions: the line of each -> the line of its function."""
    found: dict[int, int] = {}
    for node in ast.walk(ast.parse(file.read_text())):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for inner in ast.walk(node):
            is_text = isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Constant)
            if isinstance(inner, ast.stmt) and inner is not node and not is_text:
                found[inner.lineno] = node.lineno
    return found
