"""Short answers that a language model grades: SimpleQA, Chinese SimpleQA, FRAMES.

The judge sees the answer part alone, in the suite's official prompt. A reply without a verdict is
requested again; then the response is an ``error`` that the report counts, never silently wrong.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from r1lit.data import ProblemSource
from r1lit.data.problem_tables import row_uid
from r1lit.data.tables import Row, Table
from r1lit.endpoint.client import in_parallel
from r1lit.errors import check_at_least
from r1lit.evaluation.suites.scores import Groups, Score, pass_at_1
from r1lit.files import JSONLFile, replace_json
from r1lit.metrics import mean
from r1lit.problems import Problem, Status, Verdict
from r1lit.verifiers.base import Verifier, conclude
from r1lit.verifiers.generative import GenerativeJudge, Judgement, Model
from r1lit.verifiers.ifeval import judged_text

PROMPTS = Path(__file__).with_name("prompts")
MAX_CHARACTERS = 100_000
T = TypeVar("T")


def prompt(name: str, **slots: str) -> str:
    """Return a prompt of ``prompts/`` with its slots filled, in one pass: texts may hold braces."""
    return filled(template(name), **slots)


@cache
def template(name: str) -> str:
    """Return the text of a prompt of ``prompts/``, with its slots."""
    return (PROMPTS / f"{name}.txt").read_text(encoding="utf-8")


def filled(template: str, **slots: str) -> str:
    """Return a template with its slots filled, in one pass."""
    return re.sub(r"\{(" + "|".join(slots) + r")\}", lambda slot: slots[slot[1]], template)


class JudgedGrader(Verifier):
    """The common part of graders that let a language model decide.

    Args:
        model: any callable from prompt to reply, such as ``r1lit.endpoint.ServedModel`` or
            ``r1lit.rollout.LocalModel``.
        attempts: how often one verdict is requested before giving up.
        num_threads: requests under way at a time.
    """

    needs_judge = True
    requests_per_response = 1
    needs_answer = False  # no request is spent on gold answers before the run

    def __init__(self, model: Model, attempts: int = 3, num_threads: int = 8) -> None:
        check_at_least("num_threads", num_threads, 1)
        self.judge = GenerativeJudge(model, attempts=attempts)
        self.num_threads = num_threads

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Decide about one response; one without an answer costs no request."""
        answer = judged_text(response)[:MAX_CHARACTERS].strip()
        if not answer:
            return conclude("unparsed", None, "nothing outside thinking")
        return self.decide(answer, problem)

    @abstractmethod
    def decide(self, answer: str, problem: Problem) -> Verdict:
        """Decide about the answer part of a response."""

    def request(self, text: str, read: Callable[[str], T | None]) -> Judgement[T]:
        """Send a prompt until ``read`` finds a verdict in the reply."""
        return self.judge.request(
            lambda fence: text, lambda reply, fence: read(judged_text(reply)), lambda value: "right"
        )

    def verify_batch(self, responses: Sequence[str], problems: Sequence[Problem]) -> list[Verdict]:
        """Decide about many responses, in order, ``num_threads`` at a time."""
        pairs = list(zip(responses, problems, strict=True))
        return in_parallel(lambda pair, _: self.verify_timed(*pair), pairs, self.num_threads)


class AnswerJudge(JudgedGrader):
    """A judge that compares an answer with the gold one, by the prompt ``form``.

    ``details["grade"]`` is A (correct), B (incorrect) or C (not attempted); of FRAMES TRUE or
    FALSE.

    Args:
        form: the prompt's file in ``prompts/``: simpleqa, c_simpleqa or frames.
        question: the key of the question in ``meta``, where the problem's words are more.
        **options: of ``JudgedGrader``.
    """

    def __init__(self, model: Model, form: str, question: str | None = None, **options: Any):
        super().__init__(model, **options)
        self.form = form
        self.question = question

    def decide(self, answer: str, problem: Problem) -> Verdict:
        """Compare one answer with the gold one."""
        text = prompt(
            self.form,
            question=problem.question if self.question is None else problem.meta[self.question],
            target=problem.answer,
            predicted_answer=answer,
        )
        judgement = self.request(text, read_decision if self.form == "frames" else read_grade)
        grade = judgement.value
        if grade is None:
            reason = f"the judge gave no verdict: {judgement.text[:80]!r}"
            return conclude("timeout" if judgement.status == "timeout" else "error", None, reason)
        status: Status = "right" if grade in ("A", "TRUE") else "wrong"
        return Verdict(
            value=float(status == "right"),
            status=status,
            canonical=None,
            reason="" if status == "right" else f"the judge says {grade}",
            details={"grade": grade},
        )


_WORDS = {"CORRECT": "A", "INCORRECT": "B", "NOT_ATTEMPTED": "C", "NOT ATTEMPTED": "C",
          "正确": "A", "错误": "B", "未尝试": "C"}  # fmt: skip

_NAMED = re.compile(r"\bINCORRECT\b|\bCORRECT\b|\bNOT[_ ]ATTEMPTED\b|正确|错误|未尝试")


def read_grade(reply: str) -> str | None:
    """Return A, B or C where a reply is one of them or names exactly one, else None.

    The original takes the first A, B or C of any word, so that "Answer: C" is an A.

    >>> [read_grade(r) for r in ("A", "B: INCORRECT", "Answer: C", "CORRECT", "A or B", "no idea")]
    ['A', 'B', 'C', 'A', None, None]
    """
    letters = set(re.findall(r"(?<![A-Za-z])[ABC](?![A-Za-z'’])", reply))
    if len(letters) == 1:
        return letters.pop()
    grades = {_WORDS[word] for word in _NAMED.findall(reply)}
    return grades.pop() if not letters and len(grades) == 1 else None


def read_decision(reply: str) -> str | None:
    r"""Return FRAMES' TRUE or FALSE, from the last line that begins with ``Decision:``.

    A line that names both, as the prompt's own does, is no decision.

    >>> read_decision('Explanation: so.\n"Decision:" "TRUE"'), read_decision("TRUE")
    ('TRUE', None)
    >>> read_decision('Decision: "TRUE" or "FALSE"')
    """
    found = re.findall(r'(?im)^[\s"*]*Decision:?["*\s:]*(TRUE|FALSE)\b(.*)', reply)
    if not found or re.search(r"(?i)\b(TRUE|FALSE)\b", found[-1][1]):
        return None
    return found[-1][0].upper()


class Frames(ProblemSource):
    """FRAMES (arXiv 2409.12941): questions with the links of their articles, or with their text.

    Args:
        path: a table with ``Prompt``, ``Answer``, ``wiki_links`` and ``reasoning_types``. Where it
            has a column ``articles``, a list of mappings with ``url`` and ``content``, the text of
            all gold articles stands for the links, as in the paper's Table 24.
        split: the split of a Hugging Face data set.
        limit: rows read.
    """

    def __init__(self, path: str, split: str = "test", limit: int | None = None) -> None:
        self.table = Table(path=path, split=split, limit=limit)

    def problems(self) -> list[Problem]:
        """Return every problem in the table's order."""
        columns = {key: key for key in ("Prompt", "Answer", "wiki_links", "reasoning_types")}
        return [
            Problem(
                uid=row_uid(self.table, n, row["Prompt"], str(row["Answer"])),
                question="Here are the relevant Wikipedia articles:\n"
                f"{self._articles(row, n)}\n\nBased on all the information,"
                f" answer the query. \n\nQuery: {row['Prompt']}\n\n",
                answer=self.table.text_or_number(row, n, "answer", "Answer"),
                source="frames",
                meta={"query": row["Prompt"], "reasoning_types": row["reasoning_types"]},
            )
            for n, row in self.table.rows(columns)
        ]

    def _articles(self, row: Row, n: int) -> str:
        articles = row.get("articles")
        if not articles:
            return str(row["wiki_links"])
        given = articles if isinstance(articles, list) else [articles]
        if not all(isinstance(a, Mapping) and {"url", "content"} <= a.keys() for a in given):
            raise ValueError(
                f"articles: {self.table.row(n)} is not a list of mappings with url and content"
            )
        return "\n".join(f"url: {a['url']}\nurl content: {a['content']}" for a in given)


def simpleqa(groups: Groups, *, seed: int = 0) -> Score:
    """Return the share of correct answers, R1's number, and SimpleQA's other ones.

    ``f1`` is the harmonic mean of the share correct and of that among attempted answers.
    """
    grades = [r.get("details", {}).get("grade") for group in groups.values() for r in group]
    correct, incorrect = (mean([grade == letter for grade in grades]) for letter in "AB")
    attempted = correct + incorrect
    given = correct / attempted if attempted else 0.0
    return {
        **pass_at_1(groups, seed=seed),
        "name": "correct",
        "incorrect": incorrect,
        "not_attempted": mean([grade == "C" for grade in grades]),
        "no_verdict": mean([grade is None for grade in grades]),
        "accuracy_given_attempted": given,
        "f1": 2 * given * correct / (given + correct) if given + correct else 0.0,
    }


def agreement(verifier: Verifier, path: Path, name: str) -> dict[str, float]:
    """Return how often a judge agrees with labelled answers, and Cohen's kappa.

    Args:
        verifier: an ``AnswerJudge``.
        path: lines with ``benchmark``, ``problem``, ``answer``, ``response`` and ``grading``, of
            which A (or TRUE) is correct.
        name: the ``benchmark`` of the lines that count.

    Raises:
        ValueError: if there is none.
    """
    rows = [row for row in JSONLFile(path, "labelled").read() if row["benchmark"] == name]
    if not rows:
        raise ValueError(f"labelled: {path} has no line of benchmark {name!r}")
    problems = [
        Problem(
            uid=str(row["id"]),
            question=row["problem"],
            answer=str(row["answer"]),
            source=name,
            meta={"query": row["problem"]},
        )
        for row in rows
    ]
    verdicts = verifier.verify_batch([row["response"] for row in rows], problems)
    judged = [verdict.value == 1.0 for verdict in verdicts]
    labelled = [row["grading"] in ("A", "TRUE") for row in rows]
    same = mean([a == b for a, b in zip(judged, labelled, strict=True)])
    chance = mean(judged) * mean(labelled) + (1 - mean(judged)) * (1 - mean(labelled))
    return {
        "num_examples": len(rows),
        "agreement": same,
        "kappa": (same - chance) / (1 - chance) if chance < 1 else 1.0,
        "no_verdict": mean([verdict.status in ("error", "timeout") for verdict in verdicts]),
    }


def known_agreement(
    verifier: Verifier, labelled: Path, name: str, kept: Path
) -> Mapping[str, float]:
    """Return ``agreement``, from the file ``kept`` where it was measured before."""
    if not kept.is_file():
        replace_json(kept, agreement(verifier, labelled, name))
    found: Mapping[str, float] = json.loads(kept.read_text())
    return found
