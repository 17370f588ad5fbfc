"""The course: four notebooks in order, executed, with two exercises each whose solutions pass."""

from __future__ import annotations

import ast
import itertools
import re
import sys
from typing import Any

import nbformat
import pytest
from test_notebooks import NOTEBOOKS, ROOT, execute, num_images, outputs_in, texts

from r1lit.policy import load_policy, load_tokenizer
from r1lit.rollout import Sampling
from r1lit.verifiers import Grader
from r1lit.worlds import WorldSearch

COURSE_FOLDER = ROOT / "notebooks/course"
sys.path.insert(0, str(COURSE_FOLDER))

from authors import exact_accuracy, written_accuracy  # noqa: E402
from execute import COURSE  # noqa: E402
from sampled import as_candidates, sample  # noqa: E402

WRONG = {
    "leave_one_out": "lambda rewards: [r - sum(rewards) / len(rewards) for r in rewards]",
    "clipped_gradient": "lambda ratio, advantage, epsilon: advantage",
    "token_weights": "lambda lengths, objective, limit=384: [1 / sum(lengths)] * len(lengths)",
    "count_attempts": "lambda text: (text.count('~'), 0, 0)",
    "kept_of": "lambda p, k, m: min(k * p, m)",
    "bradley_terry": "lambda chosen, rejected: -(chosen - rejected).sigmoid().log().mean()",
    "pass_at_k": "lambda n, c, k: 1 - (1 - c / n) ** k",
    "error_over_problems": "lambda right: __import__('numpy').std(right) / len(right) ** 0.5",
}
"""A wrong answer to each exercise that somebody might give."""


def course_notebook(name: str) -> Any:
    return nbformat.read(ROOT / "notebooks" / name, as_version=4)


def tagged(notebook: Any, tag: str) -> list[Any]:
    return [cell for cell in notebook.cells if tag in cell.metadata.get("tags", [])]


def solution_of(cell: Any) -> str:
    """Return the code of a solution's cell, which is folded in Jupyter and on the site."""
    found = re.fullmatch(
        r'<details markdown="1">\n<summary>Solution \d</summary>\n\n'
        r"```python\n(.*)\n```\n\n</details>",
        cell.source,
        re.DOTALL,
    )
    assert found, cell.source
    return found[1]


def exercises() -> list[tuple[str, Any, Any]]:
    """Return (the function to write, the reader's cell, the solution's cell) of every exercise."""
    found = []
    for name in COURSE:
        notebook = course_notebook(name)
        for own, hidden in zip(
            tagged(notebook, "exercise"), tagged(notebook, "solution"), strict=True
        ):
            found.append((re.search(r"checks\.(\w+)\(", own.source)[1], own, hidden))
    return found


def printed(source: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Execute an exercise's cell after what every notebook imports; return what it prints."""
    exec("import re\nimport checks\nimport torch\n" + source, {})
    return capsys.readouterr().out


def test_the_course_has_four_notebooks_in_order() -> None:
    names = sorted(f"course/{path.name}" for path in COURSE_FOLDER.glob("*.ipynb"))
    assert names == list(COURSE) and len(names) == 4
    assert [name.removeprefix("course/")[0] for name in COURSE] == list("1234")
    assert not set(COURSE) & set(NOTEBOOKS)
    for name, following in itertools.pairwise(COURSE):
        assert f"]({following.removeprefix('course/')})" in course_notebook(name).cells[-1].source


@pytest.mark.parametrize("name", COURSE)
def test_it_is_executed_and_has_two_exercises_with_hidden_solutions(name: str) -> None:
    notebook = course_notebook(name)
    nbformat.validate(notebook)
    first, sources = notebook.cells[0].source, [cell.source for cell in notebook.cells]
    assert first.startswith(f"# {name.removeprefix('course/')[0]}. ") and "2501.12948" in first
    assert "@@" not in "".join(sources)
    assert any("## A question with an exact answer" in source for source in sources[-8:])
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code), f"python notebooks/execute.py {name}"
    outputs = outputs_in(notebook)
    assert {o.output_type for o in outputs} <= {"display_data", "execute_result", "stream"}
    assert 1 <= num_images(outputs) <= 4
    assert str(ROOT) not in str(texts(outputs))
    assert len(tagged(notebook, "exercise")) == 2
    for cell in tagged(notebook, "exercise"):
        assert "not written yet" in "".join(o.text for o in cell.outputs if "text" in o)
    for cell in tagged(notebook, "solution"):
        ast.parse(solution_of(cell))


def test_its_minutes_are_few() -> None:
    """Those that train state their CPU time: of one thread, so two cores need less."""
    for name in COURSE[1:]:
        said = str([o.get("text", "") for o in outputs_in(course_notebook(name))])
        assert float(re.search(r"([\d.]+) minutes of CPU time", said)[1]) <= 5


@pytest.mark.parametrize(("name", "own", "hidden"), exercises())
def test_the_solution_passes_and_nothing_else_does(
    name: str, own: Any, hidden: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"{name}: not written yet" in printed(own.source, capsys)
    solution = solution_of(hidden)
    assert re.search(rf"{name}: right, in \d+ cases", printed(solution, capsys))
    wrong = f"{name} = {WRONG[name]}\nchecks.{name}({name})"
    assert f"{name}: not yet." in printed(wrong, capsys)


def test_the_cells_of_r1_zero_are_those_of_the_one_file() -> None:
    """A function of both has the same text in both, and all but the loop are there."""
    file = (ROOT / "experiments/one_file/grpo.py").read_text()
    notebook = course_notebook(COURSE[1])
    cells = "\n\n".join(
        cell.source.removeprefix("%matplotlib inline")
        for cell in notebook.cells
        if cell.cell_type == "code"
    )
    written, here = definitions(file), definitions(cells)
    assert len(written) == 10
    assert {name: here.get(name) for name in written} == written


def definitions(source: str) -> dict[str, str]:
    """Return the text of each function and class at the top, but main."""
    return {
        node.name: ast.unparse(node)
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name != "main"
    }


def test_the_exact_accuracy_is_that_of_authors_who_write() -> None:
    problems = WorldSearch("held_out", num_problems=36).problems()
    for go_on, verify in ((0.65, 0.25), (0.95, 0.25), (0.9, 0.9), (1.0, 0.0)):
        exact = [exact_accuracy(problem, go_on, verify) for problem in problems]
        written = [written_accuracy(problem, go_on, verify, 200) for problem in problems]
        variance = sum(p * (1 - p) / 200 for p in exact) / len(problems) ** 2
        difference = sum(exact) / len(problems) - sum(written) / len(problems)
        assert abs(difference) < 4 * variance**0.5 + 1e-9


def test_responses_to_equal_prompts_are_independent() -> None:
    student = str(ROOT / "models/mini_student")
    problem = WorldSearch(num_problems=6).problems()[0]
    responses = sample(
        load_policy(student),
        load_tokenizer(student),
        Grader(),
        "small_world",
        [problem, problem],
        4,
        sampling=Sampling(max_tokens=24),
    )
    first, second = ([r.text for r in responses[i : i + 4]] for i in (0, 4))
    assert first != second and len(set(first + second)) > 4
    candidates = as_candidates(responses, 4)
    assert [c.sample for c in candidates] == [0, 1, 2, 3] * 2
    assert [c.status for c in candidates] == [r.verdict.status for r in responses]


@pytest.mark.slow
@pytest.mark.parametrize("name", COURSE)
def test_it_runs_from_top_to_bottom(name: str) -> None:
    committed = outputs_in(course_notebook(name))
    made = outputs_in(execute(ROOT / "notebooks" / name, None, R1LIT_ITERATIONS="2"))
    assert num_images(made) == num_images(committed)
    assert len(texts(made)) == len(texts(committed))
