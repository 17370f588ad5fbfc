r"""``r1lit audit-verifier``: how often a verifier is wrong on answers whose truth is known.

    r1lit audit-verifier --problems TableProblems --problems.path gsm8k_test.jsonl \
        --problems.answer_pattern '[#]{4}\s*(.+)' --run runs/audit
    r1lit audit-verifier -c audit.yaml --verifier my_verifier.SameNumber

Each problem's gold answer is rewritten in ways that keep it and in ways that change it. Paying a
changed answer is a false positive, refusing a kept one a false negative. Without ``--verifier``,
each problem's own verifier decides. ``--run`` gets

cases.jsonl   every false verdict, with its response and the verifier's reason
audit.json    counts and rates by rewrite
audit.md      the printed table

A rewrite knows no mathematics, so in rare cases a changed digit leaves an expression's value as it
was (``0 \cdot 5``). Read the cases before you believe a rate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from r1lit.console import as_help
from r1lit.errors import check_at_least
from r1lit.files import Record, replace_file, replace_json, write_records
from r1lit.metrics import wilson_interval, with_error
from r1lit.problems import LETTERS, Problem
from r1lit.refused import instantiated
from r1lit.seeding import generator
from r1lit.verifiers import Grader, Verifier, check_gold_answers
from r1lit.verifiers.choice import right_choice

_NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?")
_CHUNK = 256
EXAMPLES = 3


@dataclass(frozen=True, kw_only=True)
class Case:
    """A problem, its gold answer and another one, as a rewrite sees them.

    ``number`` is the gold answer's value if it is a plain number. ``letter`` and ``other_letter``
    are of a choice's right option and of another one.
    """

    problem: Problem
    gold: str
    other: str
    number: Fraction | None = None
    letter: str = ""
    other_letter: str = ""
    random: np.random.Generator


@dataclass(frozen=True, kw_only=True)
class Rewrite:
    """A way to write a response; ``text`` returns None where it does not apply."""

    name: str
    keeps: bool
    verifiers: tuple[str, ...]
    text: Callable[[Case], str | None]


def _tags(answer: str | None) -> str | None:
    return None if answer is None else f"<answer> {answer} </answer>"


def _of_number(write: Callable[[Fraction], str | None]) -> Callable[[Case], str | None]:
    return lambda case: None if case.number is None else _tags(write(case.number))


def _decimal(value: Fraction) -> str | None:
    """Return a number in digits; None if it has no end."""
    text = f"{float(value):.10f}".rstrip("0").rstrip(".")
    return text if Fraction(text) == value else None


def _with_thousands(value: Fraction) -> str | None:
    return f"{int(value):,}" if value.denominator == 1 and abs(value) >= 1000 else None


def _as_fraction(value: Fraction) -> str:
    sign = "-" if value < 0 else ""
    return rf"{sign}\frac{{{2 * abs(value.numerator)}}}{{{2 * value.denominator}}}"


def _times_ten(value: Fraction) -> str | None:
    return _decimal(10 * value) if value else None


def _negated(value: Fraction) -> str | None:
    return _decimal(-value) if value else None


def _with_other_digit(case: Case) -> str | None:
    """Return the gold answer with one digit changed, to none but 0: 1.50 and 1.5 are the same."""
    places = [m.start() for m in re.finditer(r"[0-9]", case.gold)]
    if not places:
        return None
    place = int(case.random.choice(places))
    digits = [digit for digit in "123456789" if digit != case.gold[place]]
    return _tags(case.gold[:place] + str(case.random.choice(digits)) + case.gold[place + 1 :])


def _as_dfrac(case: Case) -> str | None:
    return _tags(case.gold.replace(r"\frac", r"\dfrac")) if r"\frac" in case.gold else None


def _letter(form: str) -> Callable[[Case], str | None]:
    """Return a rewrite by the right option's letter ``{a}``, another's ``{b}``, and ``{text}``."""

    def write(case: Case) -> str | None:
        text = str(case.problem.meta["choices"][LETTERS.index(case.letter)])
        if "{b}" in form and not case.other_letter:
            return None
        return form.format(a=case.letter, b=case.other_letter, text=text, lower=case.letter.lower())

    return write


def _rewrites() -> tuple[Rewrite, ...]:
    every: tuple[str, ...] = ()
    math, choice = ("math",), ("choice",)
    keeps: list[tuple[str, tuple[str, ...], Callable[[Case], str | None]]] = [
        ("as it is", every, lambda c: _tags(c.gold)),
        ("after thinking", every, lambda c: f"<think> {c.other}? No. </think> {_tags(c.gold)}"),
        ("spaces around", every, lambda c: f"\n<answer>\n\n  {c.gold}\n </answer>\n\n"),
        ("corrected", every, lambda c: f"{_tags(c.other)} No: {_tags(c.gold)}"),
        ("box", math, lambda c: rf"So the answer is \boxed{{{c.gold}}}."),
        ("box in tags", math, lambda c: _tags(rf"\boxed{{{c.gold}}}")),
        ("dollars", math, lambda c: None if "$" in c.gold else _tags(f"${c.gold}$")),
        ("full stop", math, lambda c: _tags(f"{c.gold}.")),
        ("sentence", math, lambda c: _tags(f"The answer is {c.gold}.")),
        ("bold", math, lambda c: _tags(f"**{c.gold}**")),
        ("dfrac", math, _as_dfrac),
        ("named x", math, _of_number(lambda n: f"x = {_decimal(n)}" if _decimal(n) else None)),
        ("decimals", math, _of_number(lambda n: f"{n}.00" if n.denominator == 1 else None)),
        ("fraction not reduced", math, _of_number(_as_fraction)),
        ("commas of thousands", math, _of_number(_with_thousands)),
        ("letter in brackets", choice, _letter("<answer> ({a}) </answer>")),
        ("lower case", choice, _letter("<answer> {lower} </answer>")),
        ("letter and text", choice, _letter("<answer> {a}. {text} </answer>")),
        ("letter in a box", choice, _letter(r"So it is \boxed{{{a}}}.")),
        ("letter in a sentence", choice, _letter("The answer is {a}.")),
    ]  # fmt: skip
    changes: list[tuple[str, tuple[str, ...], Callable[[Case], str | None]]] = [
        ("nothing", every, lambda c: _tags("")),
        ("refusal", every, lambda c: _tags("I do not know.")),
        ("the question", every, lambda c: _tags(c.problem.question)),
        ("another problem's answer", every, lambda c: _tags(c.other)),
        ("only thought", every, lambda c: f"<think> {c.gold} </think> {_tags('I do not know.')}"),
        ("one of two", every, lambda c: _tags(f"{c.gold} or {c.other}")),
        ("taken back", every, lambda c: f"{_tags(c.gold)} No: {_tags(c.other)}"),
        ("denied", every, lambda c: _tags(f"not {c.gold}")),
        ("one digit changed", math, _with_other_digit),
        ("sign changed", math, _of_number(_negated)),
        ("one more", math, _of_number(lambda n: _decimal(n + 1))),
        ("ten times", math, _of_number(_times_ten)),
        ("a hundredth more", math, _of_number(lambda n: _decimal(n + Fraction(1, 100)))),
        ("a range", math, _of_number(lambda n: f"between {n - 1} and {n + 1}")),
        ("two letters", choice, _letter("<answer> {a} or {b} </answer>")),
        ("all letters", choice, lambda c: _tags(LETTERS[: len(c.problem.meta["choices"])])),
        ("another letter with the right text", choice, _letter("<answer> {b}. {text} </answer>")),
    ]  # fmt: skip
    return tuple(
        Rewrite(name=name, keeps=kept, verifiers=verifiers, text=text)
        for kept, rows in ((True, keeps), (False, changes))
        for name, verifiers, text in rows
    )


REWRITES = _rewrites()


def cases_of(problems: Sequence[Problem], grader: Grader, seed: int = 0) -> list[Case]:
    """Return a case a problem; its other answer is that of a problem with the same verifier.

    Raises:
        ValueError: if a verifier goes by no gold answer, or all problems have the same one.
    """
    golds = [grader.verifier_of(problem).gold_text(problem) for problem in problems]
    for problem, gold in zip(problems, golds, strict=True):
        if not gold.strip():
            raise ValueError(
                f"problems: {problem.uid!r} has no gold answer to rewrite; {problem.verifier!r}"
                " decides by tests or instructions, which this command cannot change"
            )
    found = []
    for place, (problem, gold) in enumerate(zip(problems, golds, strict=True)):
        turned = [*range(place + 1, len(problems)), *range(place)]
        others = (golds[i] for i in turned if problems[i].verifier == problem.verifier)
        other = next((text for text in others if _differ(text, gold)), None)
        case = Case(
            problem=problem,
            gold=gold,
            other=other or "",
            number=_number(gold),
            random=generator(seed, "audit", problem.uid),
        )
        if "choices" in problem.meta and problem.verifier == "choice":
            case = _with_letters(case)
        if not case.other:
            raise ValueError(
                f"problems: no other problem of verifier {problem.verifier!r} has another answer"
                f" than {problem.uid!r}; an audit needs at least two"
            )
        found.append(case)
    return found


def _with_letters(case: Case) -> Case:
    choices = [" ".join(str(text).split()) for text in case.problem.meta["choices"]]
    place = right_choice(case.problem)
    others = [i for i, text in enumerate(choices) if text != choices[place]]
    other = LETTERS[int(case.random.choice(others))] if others else ""
    letter = LETTERS[place]
    return replace(case, gold=letter, letter=letter, other=other, other_letter=other, number=None)


def _number(text: str) -> Fraction | None:
    return Fraction(text.strip().replace(",", "")) if _NUMBER.fullmatch(text.strip()) else None


def _differ(a: str, b: str) -> bool:
    """Return whether two answers surely differ: as numbers, or in their letters and digits."""
    numbers = _number(a), _number(b)
    if None not in numbers:
        return numbers[0] != numbers[1]
    plain = [re.sub(r"[\W_]+", "", text).casefold() for text in (a, b)]
    return plain[0] != plain[1] and not (plain[0] in plain[1] or plain[1] in plain[0])


def audit(
    problems: Sequence[Problem], grader: Grader, *, seed: int = 0, progress: bool = True
) -> tuple[Record, list[Record]]:
    """Judge every rewrite of every problem.

    Args:
        problems: those whose gold answers are rewritten.
        grader: has their verifiers.
        seed: of changed digits and letters.
        progress: whether a bar is shown on stderr.

    Returns:
        The report, and the false verdicts.

    Raises:
        ValueError: as ``cases_of``.
    """
    cases = cases_of(problems, grader, seed)
    rows: list[tuple[Rewrite, Case, str]] = []
    for rewrite in REWRITES:
        for case in cases:
            if not rewrite.verifiers or case.problem.verifier in rewrite.verifiers:
                text = rewrite.text(case)
                if text is not None:
                    rows.append((rewrite, case, text))
    false: list[tuple[str, bool, str, bool]] = []
    kept: list[Record] = []
    with tqdm(total=len(rows), desc="audit", unit="answer", disable=not progress) as bar:
        for start in range(0, len(rows), _CHUNK):
            chunk = rows[start : start + _CHUNK]
            verdicts = grader.verdicts([row[2] for row in chunk], [row[1].problem for row in chunk])
            for (rewrite, case, text), verdict in zip(chunk, verdicts, strict=True):
                wrong = (verdict.status == "right") != rewrite.keeps
                false.append((rewrite.name, rewrite.keeps, case.problem.uid, wrong))
                if wrong:
                    kept.append({
                        "uid": case.problem.uid, "rewrite": rewrite.name, "keeps": rewrite.keeps,
                        "gold": case.gold, "response": text, "status": verdict.status,
                        "reason": verdict.reason,
                    })  # fmt: skip
            bar.update(len(chunk))
    return _report(false, len(problems)), kept


def _report(judged: Sequence[tuple[str, bool, str, bool]], num_problems: int) -> Record:
    report: Record = {"num_problems": num_problems, "rewrites": []}
    for rewrite in REWRITES:
        own = [wrong for name, keeps, _, wrong in judged
               if (name, keeps) == (rewrite.name, rewrite.keeps)]  # fmt: skip
        if own:
            low, high = wilson_interval(sum(own), len(own))
            report["rewrites"].append({
                "rewrite": rewrite.name, "keeps": rewrite.keeps, "n": len(own), "false": sum(own),
                "low": low, "high": high,
            })  # fmt: skip
    for name, keeps in (("false_negatives", True), ("false_positives", False)):
        by_problem: dict[str, list[bool]] = {}
        for _, kind, uid, wrong in judged:
            if kind == keeps:
                by_problem.setdefault(uid, []).append(wrong)
        struck = sum(map(any, by_problem.values()))
        low, high = wilson_interval(struck, len(by_problem))
        report[name] = {
            **with_error([sum(own) / len(own) for own in by_problem.values()]),
            "n": sum(map(len, by_problem.values())),
            "problems": {"n": len(by_problem), "false": struck, "low": low, "high": high},
        }
    return report


def as_markdown(report: Record, cases: Sequence[Record]) -> str:
    """Return the report as text: the two rates, a row a rewrite, and some false verdicts."""
    lines = []
    for name, what in (("false_negatives", "right answers are refused"),
                       ("false_positives", "wrong answers are paid")):  # fmt: skip
        rate, struck = report[name], report[name]["problems"]
        lines.append(
            f"- {what}: {rate['value']:.2%} of {rate['n']} (95 % interval over problems"
            f" {rate['low']:.2%} to {rate['high']:.2%}); at least one of them in {struck['false']}"
            f" of {struck['n']} problems ({struck['low']:.2%} to {struck['high']:.2%})"
        )
    lines += ["", "| answer | rewrite | n | false | 95 % interval |", "|---|---|---:|---:|---:|"]
    for row in report["rewrites"]:
        kind = "kept" if row["keeps"] else "changed"
        interval = f"{row['low']:.1%} to {row['high']:.1%}"
        lines.append(f"| {kind} | {row['rewrite']} | {row['n']} | {row['false']} | {interval} |")
    shown: dict[tuple[bool, str], int] = {}
    for case in cases:
        key = case["keeps"], case["rewrite"]
        shown[key] = shown.get(key, 0) + 1
        if shown[key] == 1:
            lines += ["", f"{'refused' if case['keeps'] else 'paid'}, {case['rewrite']}:"]
        if shown[key] <= EXAMPLES:
            lines.append(f"    {case['uid']}  gold {case['gold']!r}  {_short(case['response'])!r}")
    return "\n".join(lines)


def _short(text: str, length: int = 100) -> str:
    return text if len(text) <= length else text[:length] + "…"


def main(args: Sequence[str] | None = None) -> Record:
    """Run the command and return the report; ``args`` is ``sys.argv[1:]`` if left out."""
    from jsonargparse import ArgumentParser

    from r1lit.data import ProblemSource

    parser = ArgumentParser(
        prog="r1lit audit-verifier", description=as_help(__doc__), exit_on_error=False
    )
    parser.add_argument("-c", "--config", action="config", help="these keys, as YAML")
    parser.add_argument("--problems", type=ProblemSource, required=True, help="whose answers")
    parser.add_argument("--verifier", type=Verifier | None, default=None,
                        help="decides, in place of each problem's own")  # fmt: skip
    parser.add_argument("--run", type=Path, required=True, help="the folder that is written to")
    parser.add_argument("--num_problems", type=int, default=500, help="at most, evenly spaced")
    parser.add_argument("--seed", type=int, default=0, help="of changed digits and letters")
    made: Any = instantiated(parser, args)
    check_at_least("num_problems", made.num_problems, 2)
    problems = made.problems.problems()
    problems = problems[:: max(1, -(-len(problems) // made.num_problems))]
    names = {problem.verifier for problem in problems}
    grader = Grader() if made.verifier is None else Grader(dict.fromkeys(names, made.verifier))
    try:
        check_gold_answers(grader, problems, "problems")
        report, cases = audit(problems, grader, seed=made.seed)
    finally:
        grader.close()
    text = as_markdown(report, cases)
    write_records(made.run / "cases.jsonl", cases)
    replace_json(made.run / "audit.json", report)
    replace_file(made.run / "audit.md", (text + "\n").encode())
    print(f"{text}\n\n{made.run}/cases.jsonl has all {len(cases)} false verdicts")
    return report
