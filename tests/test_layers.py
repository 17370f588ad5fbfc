"""The picture of the package, as a test: imports run strictly downward."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import house

ROOT = Path(__file__).resolve().parents[1] / "r1lit"
FILES = sorted(ROOT.rglob("*.py"))
SOURCES = {path: path.read_text() for path in FILES}

LAYERS = (
    {"cli"},
    {"modules", "callbacks", "worlds"},
    {"curation", "search", "doctor"},
    {"protocols"},
    {"evaluation", "view"},
    {"collect"},
    {"steps"},
    {"rollout", "data"},
    {"rewards"},
    {"policy"},
    {"environments"},
    {"verifiers"},
    {"metrics"},
    {"endpoint", "objectives", "sandbox", "text"},
    {"device"},
    {"groups"},
    {"batches", "supervised_batches", "ranks", "seeding", "files", "refused"},
    {"console"},
    {"problems", "sigterm", "user_code", "waiting"},
    {"errors", "moved_keys"},
)
HEIGHT = {name: height for height, rooms in enumerate(LAYERS) for name in rooms}
WITH_LIGHTNING = {"cli", "modules", "callbacks", "data"}
WORDS_AND_EQUATIONS = {"objectives", "batches", "groups", "supervised_batches", "seeding"}
HOMELESS = {"utils", "util", "helpers", "common", "core", "misc"}


def room(path: Path) -> str:
    """The first name below the package: ``rollout`` of ``r1lit/rollout/decoding.py``."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(source: str) -> set[str]:
    """Every module that ``source`` imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports name the whole path"
            assert node.module
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def rooms_of(names: set[str]) -> set[str]:
    """The rooms of this package among imported names."""
    return {name.split(".")[1] for name in names if name.startswith("r1lit.")}


def may_import(here: str, there: str) -> bool:
    return here == there or HEIGHT[here] < HEIGHT[there]


def test_the_page_draws_the_same_picture():
    page = (ROOT.parent / "docs" / "ARCHITECTURE.md").read_text()
    picture = page.split("## Rooms")[1].split("```")[1]
    lines = [line.split("  ")[0].replace("/", "").split() for line in picture.strip().splitlines()]
    assert [set(names) for names in lines] == list(LAYERS)


def test_every_file_has_a_room():
    assert {room(path) for path in FILES} - {"__init__"} == set(HEIGHT)


def test_imports_run_downward():
    for path, source in SOURCES.items():
        names = imported(source)
        here = room(path)
        if here == "__init__":
            assert not rooms_of(names)
            continue
        upward = {there for there in rooms_of(names) if not may_import(here, there)}
        assert not upward, f"{path} imports {upward}"
        packages = {name.split(".")[0] for name in names}
        if here not in WITH_LIGHTNING:
            assert not packages & {"lightning", "pytorch_lightning"}, path
        if here in WORDS_AND_EQUATIONS:
            heavy = {"transformers", "tokenizers", "datasets", "rich", "matplotlib"}
            assert not packages & heavy, path


def circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Files that import each other, in however many steps."""
    found = []
    left = {name: set(others) - {name} for name, others in imports.items()}
    while left:
        free = [name for name, others in left.items() if not others & left.keys()]
        if not free:
            found.append(sorted(left))
            break
        for name in free:
            del left[name]
    return found


def test_files_import_each_other_in_no_circle():
    """Wherever an import stands, for type checking too; a package itself holds no code."""
    names = {path: ".".join(path.relative_to(ROOT.parent).with_suffix("").parts) for path in FILES}
    imports = {
        names[path]: {name for name in house.imports_of(path, types=True) if name in names.values()}
        for path in FILES
    }
    assert len(imports) > 200 and sum(map(len, imports.values())) > 1000
    assert not circles(imports)


def test_a_circle_is_found():
    assert not circles({"a": {"b", "c"}, "b": {"c"}, "c": set()})
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c", "d"]]


OUTSIDE = {
    "benchmarks": {"experiments"},
    "experiments": set(),
    "tests": {"benchmarks", "experiments"},
}


def test_benchmarks_experiments_and_tests_stand_in_one_order():
    """Experiments are below benchmarks, and tests above both; r1lit imports none of them."""
    top = ROOT.parent
    helpers = {path.stem for path in (top / "tests").rglob("*.py")}
    for folder in (*OUTSIDE, "r1lit"):
        allowed = {folder} | OUTSIDE.get(folder, set())
        for path in (top / folder).rglob("*.py"):
            nodes = list(ast.walk(ast.parse(path.read_text())))
            roots = {alias.name.split(".")[0] for node in nodes if isinstance(node, ast.Import)
                     for alias in node.names}  # fmt: skip
            roots |= {(node.module or "").split(".")[0] for node in nodes
                      if isinstance(node, ast.ImportFrom) and not node.level}  # fmt: skip
            assert not (roots & {*OUTSIDE}) - allowed, path
            local = {p.stem for p in path.parent.glob("*.py")}
            assert folder == "tests" or not (roots & helpers) - local - {"r1lit"}, path


def test_verifiers_can_be_used_without_torch():
    """What is right, where an answer stands and how a program runs: of use in any trainer."""
    for path, source in SOURCES.items():
        if room(path) in {"verifiers", "sandbox", "text"}:
            tree = ast.parse(source)
            for node in ast.walk(tree):  # annotations may name a tokenizer
                if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                    node.body = [ast.Pass()]
            heavy = {"torch", "lightning", "pytorch_lightning", "transformers"}
            found = {name.split(".")[0] for name in imported(ast.unparse(tree))}
            assert not found & heavy, path
    code = (
        "import sys, time; start = time.process_time(); import r1lit.verifiers, r1lit.sandbox;"
        "import r1lit.environments;"
        "loaded = {'torch', 'lightning', 'transformers'} & {*sys.modules};"
        "print(time.process_time() - start, *loaded)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds, *loaded = said.stdout.split()
    print(f"import r1lit.verifiers: {float(seconds):.2f} s of CPU")
    assert not loaded


BODY_AND_HEAD = ("get_decoder", "get_output_embeddings", "get_input_embeddings", "lm_head",
                 "base_model", "last_hidden_state")  # fmt: skip


def test_only_a_policy_reaches_into_a_body_or_a_head():
    """All else calls its forward pass, which DDP, FSDP2, LoRA and hooks can wrap."""
    for path, source in SOURCES.items():
        reached = [name for name in BODY_AND_HEAD if name in source]
        assert not reached or room(path) == "policy", (path, reached)


def test_one_place_names_what_makes_a_device_fast():
    """All else asks for a device's backend; by whatever way of importing, and by no operation."""
    inside = ("r1lit.device.cpu", "r1lit.device.cuda", "r1lit.device.operations")
    for path, source in SOURCES.items():
        named = {name for name in imported(source) if name.startswith(inside)}
        assert room(path) == "device" or not (named or "torch.ops.r1lit" in source), path


def test_the_picture_can_be_violated():
    assert may_import("modules", "rollout") and may_import("rollout", "rollout")
    assert not may_import("rollout", "modules")
    assert not may_import("modules", "callbacks") and not may_import("callbacks", "modules")
    assert not may_import("policy", "rollout") and not may_import("verifiers", "rewards")
    assert may_import("rewards", "policy") and not may_import("policy", "rewards")
    assert may_import("rewards", "metrics") and not may_import("metrics", "verifiers")
    assert rooms_of(imported("def f():\n from r1lit import cli, data\n import r1lit.policy")) \
        == {"cli", "data", "policy"}  # fmt: skip


def long_functions(source: str, most: int = 60) -> list[str]:
    """The functions of more than ``most`` lines, their docstrings not counted."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            text = first if ast.get_docstring(node) is not None else None
            lines = node.end_lineno - node.lineno + 1
            lines -= text.end_lineno - text.lineno + 1 if text is not None else 0
            found += [f"{node.name}: {lines} lines"] if lines > most else []
    return found


def test_a_long_function_is_found():
    body = "\n".join(["    x = 1"] * 60)
    assert long_functions(f"def f():\n{body}") == ["f: 61 lines"]
    assert not long_functions(f'def f():\n    """One.\n\n    Two.\n    """\n{body[10:]}')


def test_files_are_one_subject_and_have_a_home():
    """Functions of at most 60 lines, files of at most 700; no room for what has no name."""
    assert not [path for path, text in SOURCES.items() if len(text.splitlines()) > 700]
    long = {path: long_functions(text) for path, text in SOURCES.items()}
    assert not any(long.values()), {path: lines for path, lines in long.items() if lines}
    parts = {part.removesuffix(".py") for path in FILES for part in path.relative_to(ROOT).parts}
    assert not parts & HOMELESS
