r"""Tests for programs: inputs that a model's programs write, answers of programs known to be right.

    python -m r1lit.curation.make_tests --problems code.jsonl --output data/tested.jsonl \
        --writer.model r1lit.endpoint.ServedModel --writer.model.model NAME

A line of ``problems`` has a ``prompt``, ``solutions`` (Python or C++ programs that read standard
input and are right) and perhaps ``incorrect_solutions``, as CodeContests names them. Of each input
only those stay to which all solutions answer alike. Then inputs are chosen, the one first that
exposes most of the wrong programs not yet exposed.

The prompt is the paper's (arXiv 2501.12948v2, Listing 2), which DeepSeek-V2.5 answered: it asks for
several random input generators, a block each, that print one input. r1lit runs each with several
seeds of its own, so that the same command writes the same tests. The numbers below are r1lit's.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser
from tqdm import tqdm

from r1lit.console import run_script
from r1lit.curation.filters import digest
from r1lit.endpoint.chat import key_of
from r1lit.endpoint.client import in_parallel
from r1lit.errors import check_at_least, in_one_line
from r1lit.files import JSONLFile, Record, read_existing
from r1lit.refused import instantiated
from r1lit.sandbox import Limits, LocalSandbox, Sandbox, SandboxError
from r1lit.sandbox.grading import describe_exit, difference, language_of, program_of
from r1lit.verifiers.generative import GenerativeJudge

LISTING_2 = (Path(__file__).with_name("prompts") / "listing2.txt").read_text(encoding="utf-8")
"""The paper's prompt, byte for byte; "Question Description" is its slot."""
SLOT = "Question Description"
SEEDED = "import random\nrandom.seed({seed})\n"
"""Stands before a generator: the paper's draw from ``random`` without a seed."""
MAX_CHARACTERS = 200_000
"""Of one input; longer ones are left out. The generators of Listing 2 print some 100,050."""
OUTPUT_BYTES = 64 << 20
"""Of all inputs of a problem together."""
TOLERANCE = 1e-6
SUM_S = 20.0
"""Seconds that the slowest solution may take for all tests that are kept: a third of what
``StdinCodeVerifier`` gives a program."""


class TestWriter(GenerativeJudge):
    """Prompts ``model`` with ``LISTING_2`` for programs that print one test input each."""

    __test__ = False  # pytest would take it for a test

    def __call__(self, question: str) -> tuple[list[str], str]:
        """Return the programs, or none and why there are none."""
        key = key_of(LISTING_2, self.name, question)
        if (known := self.judgements.get(key)) is not None:
            return json.loads(known), ""
        text = prompt_of(question)
        reply = self.request(lambda fence: text, read_programs, lambda _: "right")
        if reply.value is None:
            failed = reply.status != "unparsed"
            why = f"the writer: {reply.text}" if failed else "no program in the writer's reply"
            return [], " ".join(why.split())
        self.judgements.put(key, json.dumps(reply.value))
        return reply.value, ""


def prompt_of(question: str) -> str:
    """Return ``LISTING_2`` for a question; its doubled braces become single, as in its programs."""
    text = LISTING_2.replace("{{", "{").replace("}}", "}")
    before, _, after = text.rpartition(SLOT)
    return f"{before}{question}{after}"


def read_programs(reply: str, fence: str) -> list[str] | None:
    """Return the Python blocks of a reply that hold more than an ellipsis, None if none does."""
    blocks = re.findall(r"^```(?:python|py)?[ \t]*\n(.*?)^```", reply, re.MULTILINE | re.DOTALL)
    return [code for code in blocks if code.strip() not in ("", "...")] or None


def written_inputs(
    sandbox: Sandbox, programs: Sequence[str], limits: Limits, count: int, seed: int
) -> list[str] | str:
    """Return ``count`` inputs or a few more, or what is wrong with all programs.

    Every program prints one input a run; it runs so often, each time with another seed, that the
    programs make ``count`` inputs together. Those that are equal count once.
    """
    limits = replace(limits, output_bytes=OUTPUT_BYTES)
    inputs, why = dict[str, None](), "the writer's programs printed no input"
    for run in range(-(-count // len(programs))):
        for number, code in enumerate(programs):
            seeded = SEEDED.format(seed=seed + 1000 * run + number) + code
            outcome = sandbox.run(program_of("python", seeded), limits=limits)
            if not outcome.ok:
                why = f"the writer's program failed: {describe_exit(outcome)}"
                continue
            text = outcome.stdout.decode("utf-8", errors="replace")
            if text.strip() and len(text) <= MAX_CHARACTERS and "\ufffd" not in text:
                inputs[text] = None
    return list(inputs) or why


def answers(
    sandbox: Sandbox,
    code: str,
    inputs: Mapping[int, str],
    limits: Limits,
    stop: threading.Event,
) -> dict[int, tuple[str, float]]:
    """Return a program's output for each input, and its seconds; nothing where it fails."""
    program = program_of(language_of(code), code)
    stdins = [text.encode() for text in inputs.values()]
    found = {}
    for index, outcome in zip(inputs, sandbox.runs(program, stdins, limits), strict=False):
        if stop.is_set():
            break
        if outcome.ok:
            try:
                found[index] = outcome.stdout.decode(), outcome.seconds
            except UnicodeDecodeError:
                continue
    return found


def agreed(
    sandbox: Sandbox,
    solutions: Sequence[str],
    inputs: Mapping[int, str],
    limits: Limits,
    stop: threading.Event,
) -> dict[int, tuple[str, float]]:
    """Return the answer that all solutions give to an input, and the slowest one's seconds."""
    kept: dict[int, tuple[str, float]] = {}
    for number, code in enumerate(solutions):
        found = answers(sandbox, code, inputs, limits, stop)
        if number == 0:
            kept = {index: given for index, given in found.items() if given[0].strip()}
        else:
            kept = {
                index: (answer, max(seconds, found[index][1]))
                for index, (answer, seconds) in kept.items()
                if index in found and not difference(found[index][0], answer, TOLERANCE)
            }
        inputs = {index: inputs[index] for index in kept}
    return kept


def chosen(exposed: Mapping[int, frozenset[int]], most: int) -> list[int]:
    """Return which inputs to keep, in their order.

    Args:
        exposed: by input, the wrong programs that fail it.
        most: inputs that are kept.

    >>> chosen({0: frozenset(), 1: frozenset({0}), 2: frozenset({0, 1}), 3: frozenset()}, 2)
    [0, 2]
    """
    left, kept, found = list(exposed), list[int](), frozenset[int]()
    while left and len(kept) < most:
        best = max(left, key=lambda index: len(exposed[index] - found))  # the first of equals
        left.remove(best)
        kept.append(best)
        found |= exposed[best]
    return sorted(kept)


def tests_of(
    row: Mapping[str, Any],
    stop: threading.Event,
    *,
    writer: TestWriter,
    sandbox: Sandbox,
    limits: Limits,
    num_tests: int,
    num_programs: int,
) -> tuple[Record | None, str]:
    """Return a problem with its tests, or None and why there are none; see ``make_tests``."""
    right = list(dict.fromkeys(row["solutions"]))[:num_programs]
    wrong = list(dict.fromkeys(row.get("incorrect_solutions", [])))[:num_programs]
    seed = digest("make_tests", row["prompt"]) % 1_000_000
    programs, why = writer(row["prompt"])
    if not programs:
        return None, why
    try:
        written = written_inputs(sandbox, programs, limits, 2 * num_tests, seed)
        if isinstance(written, str):
            return None, written
        inputs = dict(enumerate(written))
        solved = agreed(sandbox, right, inputs, limits, stop)
        if not solved:
            return None, "solutions agree on no input"
        asked = {index: inputs[index] for index in solved}
        given = [answers(sandbox, code, asked, limits, stop) for code in wrong]
    except (SandboxError, ValueError) as error:
        return None, f"the sandbox: {in_one_line(error)}"
    if stop.is_set():
        return None, "interrupted"
    exposed = {
        index: frozenset(
            number
            for number, found in enumerate(given)
            if index not in found or difference(found[index][0], answer, TOLERANCE)
        )
        for index, (answer, _) in solved.items()
    }
    kept, seconds = list[int](), 0.0
    for index in chosen(exposed, num_tests):
        if seconds + solved[index][1] <= SUM_S:
            seconds += solved[index][1]
            kept.append(index)
    tests = {"inputs": [inputs[i] for i in kept], "outputs": [solved[i][0] for i in kept]}
    counts = {
        "inputs": len(inputs),
        "agreed": len(solved),
        "wrong_programs": len(wrong),
        "exposed": len(frozenset[int]().union(*(exposed[index] for index in kept))),
    }
    return {**row, "tests": tests, "tests_made": counts}, "tested"


def make_tests(
    problems: str,
    output: str,
    writer: TestWriter,
    num_tests: int = 20,
    min_solutions: int = 2,
    num_programs: int = 10,
    limits: Limits | None = None,
    num_threads: int = 4,
) -> dict[str, Any]:
    """Add tests to problems; return what became of them.

    Args:
        problems: JSONL of ``prompt``, ``solutions`` and perhaps ``incorrect_solutions``.
        output: the file to add to: the problems that got tests, which `r1lit.data.TaskTable` reads
            with ``verifier: stdin_code`` and ``meta: {tests: tests}``. Those that it has are not
            made again.
        writer: its ``cache`` keeps replies.
        num_tests: the most that a problem keeps; twice as many inputs are requested.
        min_solutions: problems with fewer solutions are left out; one alone agrees with itself.
        num_programs: the most solutions, and the most wrong programs, that are run.
        limits: of one run of a program; `r1lit.sandbox.Limits`' own if left out.
        num_threads: problems under way at a time.

    Raises:
        ValueError: if the file is missing or a line lacks a key, or no problem got tests.
    """
    numbers = {"num_tests": num_tests, "min_solutions": min_solutions}
    numbers |= {"num_programs": num_programs, "num_threads": num_threads}
    for key, value in numbers.items():
        check_at_least(key, value, 1)
    rows = read_existing(Path(problems), "problems")
    for number, row in enumerate(rows, start=1):
        check_row(number, row)
    path = Path(output)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = JSONLFile(path, "output")
    lines.cut_torn_line()
    known = {row.get("prompt") for row in lines.read()}
    left = [row for row in rows if row["prompt"] not in known]
    enough = [row for row in left if len(set(row["solutions"])) >= min_solutions]
    counts = Counter({"made before": len(rows) - len(left)})
    counts["too few solutions"] = len(left) - len(enough)
    with LocalSandbox() as sandbox:
        work = partial(
            tests_of, writer=writer, sandbox=sandbox, limits=limits or Limits(),
            num_tests=num_tests, num_programs=num_programs,
        )  # fmt: skip
        size = 4 * num_threads  # what a command that is ended has to do again, at most
        for start in tqdm(range(0, len(enough), size), unit="batch", disable=None):
            done = in_parallel(work, enough[start : start + size], num_threads)
            lines.append(row for row, _ in done if row is not None)
            counts.update(why for _, why in done)
    if not known and not counts["tested"]:
        raise ValueError(f"problems: none of {len(rows)} got tests: {dict(counts)}")
    return {"problems": len(rows), **{why: n for why, n in counts.items() if n}}


def check_row(number: int, row: Mapping[str, Any]) -> None:
    """Raise a ValueError that names the line and the key of a row that cannot be read."""
    if not isinstance(row.get("prompt"), str):
        raise ValueError(f"problems: line {number} has no text under 'prompt'")
    for key in ("solutions", "incorrect_solutions"):
        value = row.get(key, [] if key == "incorrect_solutions" else None)
        if not (isinstance(value, list) and all(isinstance(code, str) for code in value)):
            raise ValueError(f"problems: line {number} has no list of programs under {key!r}")


def main(args: Sequence[str] | None = None) -> None:
    """Run the command; ``args`` is ``sys.argv[1:]`` if left out."""
    parser = ArgumentParser(prog="python -m r1lit.curation.make_tests", exit_on_error=False)
    parser.add_argument("-c", "--config", action="config")
    parser.add_function_arguments(make_tests)
    given = instantiated(parser, args)
    print(make_tests(**{key: v for key, v in vars(given).items() if key != "config"}))


if __name__ == "__main__":
    run_script("make_tests", main)
