"""Forms in which a right program is given and tested, each with a wrong program beside it."""

import importlib.util
from collections.abc import Iterator

import pytest

from r1lit.batches import Problem
from r1lit.verifiers import FunctionalCodeVerifier, StdinCodeVerifier
from r1lit.verifiers.code import find_code

FENCE = "`" * 3
RIGHT = "def add(a, b):\n    return a + b\n"
WRONG = "def add(a, b):\n    return a - b\n"
METHOD = "class Solution:\n    def add(self, a: int, b: int) -> int:\n        return a + b\n"


@pytest.fixture(scope="module")
def verifier() -> Iterator[FunctionalCodeVerifier]:
    verifier = FunctionalCodeVerifier(num_workers=1)
    yield verifier
    verifier.close()


def problem(**meta: object) -> Problem:
    return Problem(uid="u", question="", answer="", source="t", meta=meta)


def block(code: str, language: str = "python") -> str:
    return f"{FENCE}{language}\n{code}{FENCE}\n"


def indented(text: str, by: str) -> str:
    return "".join(f"{by}{line}\n" for line in text.splitlines())


PLACES = {
    "alone": lambda code: block(code),
    "usage behind it": lambda code: block(code) + "Use:\n" + block("print(add(1, 2))\n"),
    "tests behind it": lambda code: block(code) + block("assert add(1, 2) == 3\n"),
    "output behind it": lambda code: block(code) + "Output:\n" + block("3\n", ""),
    "shell behind it": lambda code: block(code) + block("python add.py\n", "bash"),
    "an earlier try": lambda code: block("def add(a, b):\n    return 0\n") + block(code),
    "not closed": lambda code: "So:\n" + block(code).removesuffix(FENCE + "\n"),
    "not closed, no end of line": lambda code: block(code).removesuffix(f"\n{FENCE}\n"),
    "closed twice": lambda code: block(code) + FENCE + "\nThis adds.\n",
    "in a list": lambda code: "1. So:\n" + indented(block(code), "   "),
    "deep in a list": lambda code: "* a\n  * b\n" + indented(block(code), "        "),
    "behind a tab": lambda code: indented(block(code), "\t"),
    "in answer tags": lambda code: f"<think> x </think> <answer>\n{block(code)}</answer>",
    "in answer tags, not closed": lambda code: f"<answer>\n{FENCE}python\n{code}</answer>",
    "longer fence": lambda code: f"`{FENCE}python\n{code}`{FENCE}\n",
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_where_the_program_stands(verifier: FunctionalCodeVerifier, place: str):
    tests = problem(tests=["assert add(1, 2) == 3", "assert add(-1, 1) == 0"])
    assert verifier.verify(PLACES[place](RIGHT), tests).status == "right"
    assert verifier.verify(PLACES[place](WRONG), tests).status == "wrong"


def test_what_is_thought_or_empty_is_no_program():
    assert find_code(f"<think>\n{block(RIGHT)}</think> done") is None
    assert find_code(f"{FENCE}python\n") is None
    assert find_code(f"It is {FENCE}python add{FENCE}") is None


IMPORTS = "from typing import *\nimport math\n"
CHECK = (
    "def check(candidate):\n    assert candidate(1, 2) == 3\n    assert candidate(a=2, b=2) == 4\n"
)
STUB = IMPORTS + "class Solution:\n    def add(self, a: int, b: int) -> int:\n"
LEETCODE = {
    "entry point, imports": problem(prompt=IMPORTS, entry_point="Solution().add", test=CHECK),
    "entry point, a stub": problem(prompt=STUB, entry_point="Solution().add", test=CHECK),
    "a call of check": problem(tests=[CHECK, "check(Solution().add)"]),
    "check in one text": problem(tests=[CHECK + "\ncheck(Solution().add)\n"]),
    "asserts": problem(
        tests=["assert Solution().add(1, 2) == 3", "assert Solution().add(2, 2) == 4"]
    ),
    "one object": problem(tests=["s = Solution()\nassert s.add(1, 2) == 3 and s.add(2, 2) == 4"]),
}  # fmt: skip


@pytest.mark.parametrize("form", LEETCODE)
def test_methods_of_solution(verifier: FunctionalCodeVerifier, form: str):
    assert verifier.verify(block(METHOD), LEETCODE[form]).status == "right"
    for wrong in ("a - b", "None", "self", "'3'", "3"):
        code = METHOD.replace("a + b", wrong)
        assert verifier.verify(block(code), LEETCODE[form]).status == "wrong", wrong


def test_an_object_keeps_its_state(verifier: FunctionalCodeVerifier):
    tests = problem(tests=["c = Total()\nc.put(2)\nc.put(3)\nassert c.get() == 5"])
    code = (
        "class Total:\n    n = 0\n    def put(self, k):\n        self.n += k\n    def get(self):\n"
    )
    assert verifier.verify(block(code + "        return self.n\n"), tests).status == "right"
    assert verifier.verify(block(code + "        return 6\n"), tests).status == "wrong"


@pytest.mark.parametrize(
    "test",
    ["assert Solution().add", "assert Solution().ready == 1", "assert not Solution().missing",
     "assert Solution().ready != 0", "assert Solution().ready in [1, True]", "assert Solution()",
     "assert Solution()._hidden()", "assert Solution().__class__.__name__ == 'Solution'"],
)  # fmt: skip
def test_an_attribute_that_is_not_called_pays_nothing(verifier: FunctionalCodeVerifier, test: str):
    code = METHOD + "    ready = True\n    def _hidden(self):\n        return True\n"
    assert verifier.verify(block(code), problem(tests=[test])).value == 0.0


@pytest.mark.parametrize("kind", ["int", "str", "float", "list", "dict", "bool", "type(None)"])
def test_types_may_be_passed_and_returned(verifier: FunctionalCodeVerifier, kind: str):
    values = "[1, 'a', 2.5, [], {}, True, None]"
    tests = problem(tests=[
        f"assert only({values}, {kind}) == [v for v in {values} if type(v) is {kind}]",
        f"assert kind_of(only({values}, {kind})[0]) is {kind}",
    ])  # fmt: skip
    code = "def only(values, kind):\n    return [v for v in values if type(v) is kind]\n"
    code += "def kind_of(value):\n    return type(value)\n"
    assert verifier.verify(block(code), tests).status == "right"
    assert verifier.verify(block(code.replace(" is kind", " is not kind")), tests).status == "wrong"


@pytest.mark.parametrize("library", ["numpy", "sortedcontainers", "torch", "sympy", "pip"])
def test_libraries(verifier: FunctionalCodeVerifier, library: str):
    """Two libraries may be imported where they are installed; no other package can be."""
    allowed = library in ("numpy", "sortedcontainers") and importlib.util.find_spec(library)
    expected = "right" if allowed else "wrong"
    for line in (f"import {library}", f"from {library} import *", f"import math, {library} as l"):
        code = f"{line}\n{RIGHT}"
        assert (
            verifier.verify(block(code), problem(tests=["assert add(1, 2) == 3"])).status
            == expected
        )
    with_stdin = StdinCodeVerifier(num_workers=1)
    one = problem(tests={"inputs": ["1 2"], "outputs": ["3"]})
    code = f"import {library}\nprint(sum(map(int, input().split())))\n"
    assert with_stdin.verify(block(code), one).status == expected
    with_stdin.close()


@pytest.mark.parametrize("kind", ["int64", "int32", "uint8", "float32", "float64", "complex64"])
def test_a_scalar_of_numpy_is_the_number_that_it_is(verifier: FunctionalCodeVerifier, kind: str):
    if not importlib.util.find_spec("numpy"):
        pytest.skip("numpy is not installed")
    tests = problem(tests=["assert add(1, 2) == 3", "assert less(1, 2)", "assert not less(2, 1)"])
    code = "import numpy as np\ndef less(a, b):\n    return np.bool_(a < b)\n"
    code += f"def add(a, b):\n    return np.{kind}(a) + np.{kind}(b)\n"
    assert verifier.verify(block(code), tests).status == "right"
    assert verifier.verify(block(code.replace(") + ", ") * ")), tests).status == "wrong"
    assert verifier.verify(block(code.replace("a < b", "b")), tests).status == "wrong"


def test_numpy_shows_no_other_package(verifier: FunctionalCodeVerifier):
    if not importlib.util.find_spec("numpy"):
        pytest.skip("numpy is not installed")
    code = "import numpy, os\ndef seen():\n"
    code += "    return sorted(os.listdir(os.path.dirname(numpy.__path__[0])))\n"
    tests = problem(tests=["assert set(seen()) <= {'numpy', 'numpy.libs'}"])
    assert verifier.verify(block(code), tests).status == "right"
