"""Tests that look at a program's objects are left out; errors that tests swallow are no pass."""

from __future__ import annotations

import pytest
from verifiers.code_problems import fenced

from r1lit.problems import Problem
from r1lit.verifiers import FunctionalCodeVerifier


@pytest.fixture(scope="module")
def verifier():
    verifier = FunctionalCodeVerifier(num_workers=2)
    yield verifier
    verifier.close()


def problem(*tests: str) -> Problem:
    return Problem(uid="p", question="", answer="", source="test", meta={"tests": list(tests)})


NODE = "class Node:\n    def __init__(s, v, n=None):\n        s.val, s.next = v, n\n"
LOOKS = {
    "a linked list": (NODE + "def f(xs): return Node(xs[0])", "assert f([1, 2]).val == 1"),
    "a list's next": (
        NODE + "def f(xs): return Node(xs[0], Node(xs[1]))",
        "node = f([1, 2])\nseen = []\nwhile node:\n"
        "    seen.append(node.val)\n    node = node.next\n"
        "assert seen == [1, 2]",
    ),
    "an enum": (
        "from enum import Enum\nclass Color(Enum):\n    RED = 1\ndef f(x): return Color.RED",
        "assert f(1) == Color.RED",
    ),
    "an enum by name": (
        "from enum import Enum\nclass Color(Enum):\n    RED = 1\ndef f(x): return Color.RED",
        "assert f(1) == Color['RED']",
    ),
    "a property": (
        "class Box:\n    @property\n    def area(s): return 4",
        "box = Box()\nassert box.area == 4",
    ),
    "printed": (
        "def f(x): print(x)",
        "import io, contextlib\nout = io.StringIO()\nwith contextlib.redirect_stdout(out):\n"
        "    f(1)\nassert out.getvalue() == '1\\n'",
    ),
    "its length": (
        "class Stack:\n    def __len__(s): return 0",
        "stack = Stack()\nassert len(stack) == 0",
    ),
    "its sum": (
        "class V:\n    def __add__(s, o): return 3",
        "a = V()\nb = V()\nassert a + b == 3",
    ),
    "its class": (NODE + "def f(x): return Node(x)", "assert isinstance(f(1), Node)"),
}


@pytest.mark.parametrize("name", LOOKS)
def test_tests_that_look_at_objects_are_left_out(verifier, name: str):
    code, test = LOOKS[name]
    verdict = verifier.verify(fenced(code), problem(test))
    assert verdict.status == "error" and verdict.status in verifier.excused_statuses, verdict
    assert "look at objects of the program's (" in verdict.reason


@pytest.mark.parametrize(
    ("code", "test"),
    [
        (NODE + "def f(xs): raise ValueError(xs)", "assert f([1, 2]).val == 1"),
        (NODE + "def f(xs) return 1", "assert f([1, 2]).val == 1"),
        (NODE + "def f(xs): return Node(xs)", "assert f(1) == 1"),
        (NODE + "def f(xs): return Node(xs)", "assert f(1).real == 1"),
        (NODE + "def f(xs): return Node(xs)", "assert str(f(1)) == 'x'"),
        ("def f(x): return [2]", "assert f(1).pop() == 1"),
        ("class S:\n    def pop(s): return 2", "s = S()\nassert s.pop() == 1"),
        ("class S:\n    def pop(s): return 2", "assert S().pop() == 1"),
        (
            "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n"
            "def f(x): return P(2)",
            "assert f(1) == P(1)",
        ),
    ],
)
def test_a_wrong_program_is_wrong_where_its_data_decides(verifier, code: str, test: str):
    assert verifier.verify(fenced(code), problem(test)).status == "wrong"


SWALLOWS = [
    "try:\n    assert f('k') == 1\nexcept KeyError:\n    pass",
    "for k in 'ab':\n    try:\n        assert f(k) == 1\n    except KeyError:\n        continue",
    "try:\n    got = f('k')\n    assert got == 1\nexcept Exception:\n    pass",
    "def check():\n    try:\n        assert f('k') == 1\n    except (KeyError, TypeError):\n"
    "        print('skipped')\ncheck()",
    "import contextlib\nwith contextlib.suppress(KeyError):\n    assert f('k') == 1",
    "from contextlib import suppress\nwith suppress(LookupError):\n    assert f('k') == 1",
]


@pytest.mark.parametrize("test", SWALLOWS)
def test_an_error_that_the_test_swallows_is_wrong(verifier, test: str):
    raises = verifier.verify(fenced("def f(k): return {}[k]"), problem(test))
    assert raises.status == "wrong" and "KeyError" in raises.reason, raises
    assert verifier.verify(fenced("def f(k): return 1"), problem(test)).status == "right"


@pytest.mark.parametrize(
    "test",
    [
        "try:\n    f('k')\n    assert False\nexcept KeyError:\n    pass",
        "try:\n    assert f('k') and False\nexcept KeyError:\n    pass",
        "try:\n    f('k')\nexcept KeyError as error:\n    assert 'k' in str(error)\n"
        "else:\n    raise AssertionError",
        "import pytest\nwith pytest.raises(KeyError):\n    f('k')",
        "table = {}\ntry:\n    assert table['k'] == 1\nexcept KeyError:\n    pass\n"
        "assert callable(f)",
    ],
)
def test_an_error_that_the_test_expects_is_right(verifier, test: str):
    verdict = verifier.verify(fenced("def f(k): return {}[k]"), problem(test))
    assert verdict.status == "right", verdict
