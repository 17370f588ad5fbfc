"""Plan of an evaluation of suites, made without a model: ``--list`` and ``--dry-run``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from r1lit.errors import hint, import_path
from r1lit.evaluation.suites import Suite, load_suite

MAX_TOKENS = 32_768
"""Where the configuration gives none: the paper's, as `r1lit.modules.EvaluationModule` has it."""
SHOWN = 100
"""Characters of a prompt's first line."""


def suites_of(config: Mapping[str, Any], flag: str) -> list[Suite]:
    """Return the suites that a configuration of ``r1lit test`` names.

    Raises:
        ValueError: if its data are not suites.
    """
    data = config.get("data") or {}
    data = data if isinstance(data, Mapping) else {"class_path": data}
    names = _arguments(data).get("suites")
    if not names:
        raise ValueError(
            f"{flag}: data is {data.get('class_path', 'not given')!r}, which names no suites; -c"
            " r1lit:eval/paper.yaml does"
        )
    return [load_suite(name) for name in names]


def plan(config: Mapping[str, Any], flag: str) -> Iterator[str]:
    """Yield the lines of ``--list``, or of ``--dry-run``, which reads the problems too."""
    suites = suites_of(config, flag)
    data, model = _arguments(config["data"]), _arguments(config.get("model") or {})
    for name in {*(data.get("files") or {})} - {suite.name for suite in suites}:
        names = [suite.name for suite in suites]
        raise ValueError(f"data.files: {name!r} is not among data.suites{hint(name, names)}")
    judge = _name_of(model.get("judge"))
    if flag == "--list":
        yield from _listed(suites, data, judge)
        return
    tokens = int((model.get("sampling") or {}).get("max_tokens", MAX_TOKENS))
    total, requests, left_out = 0, 0, 0
    for suite in suites:
        lines, num_responses = _dry(suite, data, judge)
        yield from lines
        left_out += num_responses is None
        total += num_responses or 0
        requests += (num_responses or 0) * _requests(suite)
    yield (
        f"{len(suites) - left_out} of {len(suites)} suites: {total:,} responses, at most"
        f" {total * tokens:,} tokens ({tokens:,} each), {requests:,} requests to a judge"
    )


def _listed(suites: list[Suite], data: Mapping[str, Any], judge: str | None) -> Iterator[str]:
    width = max(len(suite.name) for suite in suites)
    for suite in suites:
        local = _local(suite, data)
        needs = f"judge: {judge or 'none named (model.judge)'}" if suite.needs_judge else "rules"
        place = local or suite.problems["init_args"].get("path", "made here")
        place = place[0] if isinstance(place, list) else place
        yield f"{suite.name:{width}}  k {_samples(suite, data):2}  {needs:6}  {place}"


def _dry(suite: Suite, data: Mapping[str, Any], judge: str | None) -> tuple[list[str], int | None]:
    """Return the lines of one suite and its number of responses, None if it is left out."""
    k = _samples(suite, data)
    try:
        if suite.needs_judge and judge is None:
            raise ValueError("a language model grades it; name model.judge")
        limit, num_samples = (_number(data, key) for key in ("limit", "num_samples"))
        problems = suite.read(_local(suite, data), limit, num_samples)
    except (ValueError, ImportError) as error:
        return [f"{suite.name}: left out: {' '.join(str(error).split())}"], None
    rows, responses = len(problems) // suite_orders(suite, data), len(problems)
    responses *= 1 if suite.orders > 1 else k
    first = next(line for line in problems[0].question.splitlines() if line.strip())
    grader = f"judge {judge}" if suite.needs_judge else suite.grading
    return [
        f"{suite.name}: {rows:,} problems x {k} = {responses:,} responses; {grader}",
        f"    {first[:SHOWN]}{'…' if len(first) > SHOWN else ''}",
    ], responses


def suite_orders(suite: Suite, data: Mapping[str, Any]) -> int:
    """Return how many prompts each question comes in."""
    return _samples(suite, data) if suite.orders > 1 else 1


def _samples(suite: Suite, data: Mapping[str, Any]) -> int:
    return _number(data, "num_samples") or suite.responses


def _number(data: Mapping[str, Any], key: str) -> int | None:
    """Return a count that may come from the command line, where every value is text."""
    value = data.get(key)
    if value in (None, "null"):
        return None
    if not str(value).isdigit() or int(value) < 1:
        raise ValueError(f"data.{key}: {value!r} is not a number from 1 on")
    return int(value)


def _requests(suite: Suite) -> int:
    if not suite.needs_judge:
        return 0
    assert suite.grader is not None
    return int(import_path(suite.grader["class_path"]).requests_per_response)


def _local(suite: Suite, data: Mapping[str, Any]) -> str | None:
    given = (data.get("files") or {}).get(suite.name)
    if given is not None:
        return str(given)
    folder = data.get("folder")
    here = None if folder is None else Path(folder).expanduser() / suite.file
    return str(here) if here is not None and here.is_file() else None


def _arguments(node: Any) -> Mapping[str, Any]:
    """Return the arguments of a class, beside its ``class_path`` or under ``init_args``."""
    if not isinstance(node, Mapping):
        return {}
    return {**node, **(node.get("init_args") or {})}


def _name_of(judge: Any) -> str | None:
    """Return a judge's model, or its class where it names none."""
    if judge is None or isinstance(judge, str):
        return judge
    arguments = _arguments(judge)
    return str(arguments.get("model") or arguments.get("class_path"))
