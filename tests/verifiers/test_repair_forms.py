"""Right patches in other words are paid: they change arguments, raise, yield, or have no order."""

from __future__ import annotations

from pathlib import Path

import pytest

from r1lit.data import RepositoryTasks
from r1lit.environments import make_repair
from r1lit.environments.code_changes import Change
from r1lit.files import append_records
from r1lit.problems import Problem
from r1lit.sandbox import LocalSandbox
from r1lit.text.patches import write_diff
from r1lit.verifiers import RepositoryVerifier
from r1lit.verifiers.repository import files_of

PATH = "forms/core.py"
FUNCTIONS = {
    "insert": '''def insert(items, item):
    """Insert an item into a sorted list."""
    place = 0
    while place < len(items) and items[place] < item:
        place += 1
    items.insert(place, item)
''',
    "words": '''def words(text):
    """Return the different words of a text."""
    return {word.lower() for word in text.split() if len(word) > 2}
''',
    "counts": '''def counts(text):
    """Return how often each letter is there."""
    found = {}
    for letter in text:
        found[letter] = found.get(letter, 0) + 1
    return found
''',
    "average": '''def average(numbers):
    """Return the mean of some numbers."""
    if len(numbers) == 0:
        raise ValueError("no numbers")
    return sum(numbers) / len(numbers)
''',
    "runs": '''def runs(text):
    """Yield each letter with how often it is repeated."""
    start = 0
    for at in range(1, len(text) + 1):
        if at == len(text) or text[at] != text[start]:
            yield text[start], at - start
            start = at
''',
    "helper": '''def twice(function, item):
    """Call a function that calls ``helper``."""
    return [helper(item, function)] * 2


def helper(item, function):
    """Return what a function makes of an item, and one more."""
    return function(item) + 1


def shout(count):
    """Return an exclamation."""
    return twice(lambda n: n * 2, count)
''',
    "Money.plus": '''class Money:
    """An amount of a currency."""

    def __init__(self, amount, currency="EUR"):
        self.amount = amount
        self.currency = currency

    def __eq__(self, other):
        return (self.amount, self.currency) == (other.amount, other.currency)

    def plus(self, cents):
        """Return more money."""
        return Money(self.amount + cents, self.currency)
''',
}
SOURCE = "\n\n".join(FUNCTIONS.values())
TESTS = """from forms import core


def test_insert():
    for item, right in ((2, [1, 2, 4, 9]), (10, [1, 4, 9, 10]), (0, [0, 1, 4, 9])):
        items = [1, 4, 9]
        core.insert(items, item)
        assert items == right


def test_words():
    assert core.words("The cat and the dog at a bar") == {"the", "cat", "and", "dog", "bar"}
    assert core.words("One two one") == {"one", "two"}


def test_counts():
    assert core.counts("banana") == {"a": 3, "n": 2, "b": 1}
    assert core.counts("") == {}


def test_average():
    assert core.average([1.5, 2.5, 5.0]) == 3.0
    assert core.average([2.25, 4.75]) == 3.5


def test_no_average():
    for empty in ([], ()):
        try:
            core.average(empty)
        except ValueError:
            continue
        assert False


def test_runs():
    assert list(core.runs("aabccc")) == [("a", 2), ("b", 1), ("c", 3)]
    assert list(core.runs("zz")) == [("z", 2)]


def test_shout():
    assert core.shout(3) == [7, 7]
    assert core.shout(10) == [21, 21]


def test_money():
    assert core.Money(3).plus(4) == core.Money(7)
    assert core.Money(1, "USD").plus(20) == core.Money(21, "USD")
"""
BUGS = {
    "insert": ("items[place] < item", "items[place] > item"),
    "words": ("len(word) > 2", "len(word) > 3"),
    "counts": ("found.get(letter, 0) + 1", "found.get(letter, 1) + 1"),
    "average": ("len(numbers) == 0", "len(numbers) == 2"),
    "runs": ("at - start\n", "at + start\n"),
    "helper": ("function(item) + 1", "function(item) - 1"),
    "Money.plus": ("self.amount + cents", "self.amount - cents"),
}
RIGHT = {
    "insert": [
        "def insert(items, item):\n    import bisect\n    bisect.insort_left(items, item)\n",
        "def insert(items, item):\n    items.append(item)\n    items.sort()\n",
    ],
    "words": [
        "def words(text):\n    return set(w for w in text.lower().split() if not len(w) <= 2)\n",
        "def words(text):\n    found = set()\n    for w in reversed(text.split()):\n"
        "        if len(w) >= 3:\n            found.add(w.lower())\n    return found\n",
    ],
    "counts": [
        "from collections import Counter\n\n\ndef counts(text):\n    return dict(Counter(text))\n",
        "def counts(text):\n    return {x: text.count(x) for x in sorted(set(text))[::-1]}\n",
    ],
    "average": [
        "import math\n\n\ndef average(numbers):\n    if not numbers:\n"
        "        raise ValueError('there is none')\n"
        "    return math.fsum(reversed(numbers)) / len(numbers)\n",
        "def average(numbers):\n    total, count = 0.0, 0\n    for n in numbers:\n"
        "        total, count = total + n, count + 1\n    if count < 1:\n"
        "        raise ValueError\n    return total / count\n",
    ],
    "runs": [
        "import itertools\n\n\ndef runs(text):\n"
        "    return ((c, len(list(g))) for c, g in itertools.groupby(text))\n",
        "import itertools\n\n\ndef runs(text):\n"
        "    yield from [(c, sum(1 for _ in g)) for c, g in itertools.groupby(text)]\n",
    ],
    "helper": [
        FUNCTIONS["helper"].replace("function(item) + 1", "1 + function(item)"),
        FUNCTIONS["helper"].replace("[helper(item, function)] * 2", "[function(item) + 1] * 2"),
    ],
    "Money.plus": [
        FUNCTIONS["Money.plus"].replace("self.amount + cents", "sum((cents, self.amount))"),
        FUNCTIONS["Money.plus"].replace(
            "return Money(self.amount + cents, self.currency)",
            "import copy\n        more = copy.copy(self)\n        more.amount += cents\n"
            "        return more",
        ),
    ],
}
WRONG = {
    "insert": "def insert(items, item):\n    items[:] = [1, 2, 4, 9] if item == 2 else"
    " [1, 4, 9, 10] if item == 10 else [0, 1, 4, 9]\n",
    "words": "def words(text):\n    return {'one', 'two'} if text[0] == 'O' else"
    " {'the', 'cat', 'and', 'dog', 'bar'}\n",
    "counts": "def counts(text):\n    return {'a': 3, 'n': 2, 'b': 1} if text else {}\n",
    "average": "def average(numbers):\n    if not numbers:\n        raise ValueError\n"
    "    return len(numbers) == 2 and 3.5 or 3.0\n",
    "runs": "def runs(text):\n    return [('z', 2)] if text == 'zz' else"
    " [('a', 2), ('b', 1), ('c', 3)]\n",
    "helper": FUNCTIONS["helper"].replace("function(item) + 1", "7 if item == 3 else 21"),
    "Money.plus": FUNCTIONS["Money.plus"].replace("self.amount + cents", "max(7, cents + 1)"),
}


def change(name: str) -> Change:
    old, new = BUGS[name]
    lines = SOURCE[: SOURCE.index(FUNCTIONS[name])].count("\n") + 1
    return Change(
        path=PATH,
        function=name,
        first=lines
        + FUNCTIONS[name][: FUNCTIONS[name].index(old)].rpartition("def ")[0].count("\n"),
        last=lines + FUNCTIONS[name].count("\n"),
        kind="by hand",
        start=SOURCE.index(old),
        end=SOURCE.index(old) + len(old),
        text=new,
    )


@pytest.fixture(scope="module")
def problems(tmp_path_factory) -> dict[str, Problem]:
    """The tasks that make_repair makes of one change of each function."""
    out: Path = tmp_path_factory.mktemp("forms")
    folder = out / "repositories" / "forms-1.0"
    for path, text in ((PATH, SOURCE), ("forms/__init__.py", ""), ("tests/test_core.py", TESTS)):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    with LocalSandbox() as sandbox:
        suite = make_repair.suite_of(sandbox, folder)
        made = {name: make_repair.attempt(sandbox, suite, change(name), 0) for name in FUNCTIONS}
    assert {name: result for name, (result, _) in made.items()} == dict.fromkeys(FUNCTIONS, "tasks")
    append_records(out / "tasks.jsonl", [row for _, row in made.values()])
    found = RepositoryTasks(str(out / "tasks.jsonl"), turns="many").problems()
    return dict(zip(FUNCTIONS, found, strict=True))


@pytest.fixture(scope="module")
def verdicts(problems):
    """The verdicts on each function's patches: the mending, two others, a table of the tests."""
    verifier = RepositoryVerifier(timeout_s=60, num_workers=2)
    patches, asked = [], []
    for name, problem in problems.items():
        before = files_of(problem)[PATH]
        texts = [FUNCTIONS[name], *RIGHT[name], WRONG[name]]
        whole = [SOURCE.replace(FUNCTIONS[name], text) for text in texts]
        patches += [write_diff({PATH: before}, {PATH: text}) for text in whole]
        asked += [problem] * len(texts)
    try:
        found = verifier.verify_batch(patches, asked)
    finally:
        verifier.close()
    return {name: found[4 * n : 4 * n + 4] for n, name in enumerate(problems)}


@pytest.mark.long
@pytest.mark.parametrize("name", FUNCTIONS)
def test_right_patches_are_paid_and_tables_are_not(verdicts, name):
    *right, table = verdicts[name]
    assert [verdict.status for verdict in right] == ["right"] * 3, right
    assert table.status == "wrong" and "hidden part" in table.reason, table


@pytest.mark.long
def test_the_calls_are_those_of_the_nearest_function_with_plain_data(problems):
    called = {n: p.meta["calls"]["functions"][0]["name"] for n, p in problems.items()}
    assert called == {**{name: name for name in FUNCTIONS}, "helper": "shout"}
    single = {name for name, p in problems.items() if len(p.meta["fail_to_pass"]) == 1}
    assert single >= {"insert", "runs", "helper"}  # whose verdicts had no hidden part before
    assert not any(problems[name].meta["hidden"] for name in single)
    assert all(f"core.{n}" in p.question or f"`{n}` of" in p.question for n, p in problems.items())
