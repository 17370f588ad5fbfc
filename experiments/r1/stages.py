"""From the evaluation folders of a run to one record a stage.

``<run>/eval/<stage>/`` holds what `r1lit test` wrote, in it or in folders below it (one a kind of
problem, where they are asked another number of times). Kinds are told apart by ``groups.kind`` of
``responses.jsonl`` (``by: [kind]``), programs and puzzles by their source; an eval metric is known
by its name, and missing in responses that it does not apply to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r1lit.evaluation.records import by_problem, eval_metrics_in
from r1lit.files import read_records
from r1lit.metrics import Graded, cons_at_k, mean, mean_and_error, share_right

BASE = "base"
STAGES = ("zero", "dev1", "dev2", "dev3", "r1")
STUDENTS = ("distilled", "small_rl")
EVALUATED = (BASE, *STAGES, *STUDENTS)
SOURCES = ("programs", "puzzles")
"""Reasoning of a source that has a column of its own; "reasoning" is all other."""
REASONING = ("reasoning", *SOURCES)
KINDS = (*REASONING, "general", "harmful")
CONS_K = 16

Record = dict[str, Any]
Group = Sequence[Record]


@dataclass(frozen=True, kw_only=True)
class Column:
    """A number of the table: its key, heading, the kinds of problems it is of, and its form.

    One that is not ``always`` there is left out where no stage has it. One ``by_seed`` is in the
    table of single seeds too.
    """

    key: str
    heading: str
    kinds: tuple[str, ...]
    form: str = ".3f"
    always: bool = True
    by_seed: bool = False


COLUMNS = (
    Column(
        key="reasoning_pass_at_1", heading="reasoning pass@1", kinds=("reasoning",), by_seed=True
    ),
    Column(key="cons_at_16", heading="cons@16", kinds=("reasoning",)),
    Column(
        key="countdown_pass_at_1",
        heading="Countdown",
        kinds=("reasoning",),
        always=False,
        by_seed=True,
    ),
    Column(
        key="chain_pass_at_1", heading="chains", kinds=("reasoning",), always=False, by_seed=True
    ),
    Column(key="truncated", heading="cut", kinds=("reasoning",), always=False, by_seed=True),
    Column(key="programs_pass_at_1", heading="programs", kinds=("programs",), always=False),
    Column(key="puzzles_pass_at_1", heading="puzzles", kinds=("puzzles",), always=False),
    Column(key="format", heading="format", kinds=KINDS),
    Column(key="language_consistency", heading="language consistency", kinds=REASONING),
    Column(key="instruction_following", heading="instruction following", kinds=("general",)),
    Column(key="helpfulness_true", heading="helpfulness, true", kinds=("general",)),
    Column(key="helpfulness_rm", heading="helpfulness, RM", kinds=("general",), form=".2f"),
    Column(key="safety", heading="safety", kinds=("harmful",)),
    Column(key="response_length_tokens", heading="tokens", kinds=KINDS, form=".0f"),
)


def read_stages(run: Path) -> Record:
    """Return ``stages`` (those evaluated, in order), ``base`` and the students of a run.

    Raises:
        ValueError: if no stage was evaluated.
    """
    stages = [stage for name in STAGES if (stage := read_stage(run / "eval" / name)) is not None]
    if not stages:
        raise ValueError(
            f"{run}: no stage is evaluated: there is no {run / 'eval'}/<stage>/report.json for any"
            f" of {', '.join(STAGES)}"
        )
    beside = {name: read_stage(run / "eval" / name) for name in (BASE, *STUDENTS)}
    return {"stages": stages, **beside}


def read_stage(folder: Path) -> Record | None:
    """Return the record of one stage, or None if nothing is evaluated in ``folder``.

    Each number is the mean over problems of the mean over the k responses to each; under
    ``<key>_se`` stands its standard error over problems, and None for both where nothing was
    measured. ``cons_at_16`` is of ``cons_k`` votes, fewer if there are fewer samples.
    """
    by_kind, settings = _read(folder)
    if not settings:
        return None
    record: Record = {"name": folder.name}
    for column in COLUMNS:
        groups = [group for kind in column.kinds for group in by_kind[kind]]
        values = [v for v in map(_value(column.key), groups) if v is not None]
        record[column.key], record[f"{column.key}_se"] = (
            mean_and_error(values) if values else (None, None)
        )
    sizes = {len(group) for group in by_kind["reasoning"]}
    return {**record, "cons_k": min([CONS_K, *sizes]) if sizes else None, "settings": settings}


def read_groups(folder: Path) -> dict[str, list[Group]]:
    """Return the groups of responses of one stage by kind, none where nothing is evaluated."""
    return _read(folder)[0]


def _read(folder: Path) -> tuple[dict[str, list[Group]], dict[str, Any]]:
    by_kind: dict[str, list[Group]] = {kind: [] for kind in KINDS}
    settings: dict[str, Any] = {}
    for path in sorted(folder.rglob("report.json")):
        report = json.loads(path.read_text())
        for kind, groups in _groups(path, report["num_samples"]).items():
            if kind in settings:
                raise ValueError(f"{path}: {kind} is in two evaluations of {folder}; remove one")
            by_kind[kind] += groups
            settings[kind] = _settings(report, len(groups))
    return by_kind, settings


def _settings(report: Record, num_problems: int) -> Record:
    sampling = report["settings"].get("sampling") or {}
    return {
        "num_problems": num_problems,
        "k": report["num_samples"],
        **{key: sampling.get(key) for key in ("temperature", "top_p", "max_tokens")},
        "seed": report["settings"].get("seed"),
    }


def _groups(report: Path, num_samples: int) -> dict[str, list[Group]]:
    """Return the first ``num_samples`` responses to each problem, by kind, in a fixed order."""
    path = report.with_name("responses.jsonl")
    by_kind: dict[str, list[Group]] = {}
    for uid, group in sorted(by_problem(read_records(path), num_samples).items()):
        kind, source = group[0]["groups"].get("kind"), group[0].get("source")
        kind = source if source in SOURCES else kind
        if kind not in KINDS:
            raise ValueError(
                f"{path}: problem {uid!r} has groups.kind {kind!r}, not one of {', '.join(KINDS)};"
                " evaluate with model.by: [kind], and keep the column by meta: [kind]"
            )
        by_kind.setdefault(kind, []).append(group)
    return by_kind


def _value(key: str) -> Callable[[Group], float | None]:
    """Return the number of one problem: the mean over its responses, None where none has it."""
    match key:
        case "reasoning_pass_at_1" | "programs_pass_at_1" | "puzzles_pass_at_1":
            return lambda group: share_right(_graded(group))
        case "countdown_pass_at_1" | "chain_pass_at_1":
            return lambda group: share_right(_graded(group)) if _is_of(group, key) else None
        case "truncated":
            return _share_cut
        case "cons_at_16":
            return lambda group: cons_at_k(_graded(group))[min(CONS_K, len(group)) - 1]
        case "response_length_tokens":
            return lambda group: mean([r["num_tokens"] for r in group])
        case _:
            return lambda group: _mean_eval_metric(group, key)


def _is_of(group: Group, key: str) -> bool:
    return key == f"{group[0].get('source')}_pass_at_1"


def _share_cut(group: Group) -> float | None:
    if any("finished" not in record for record in group):
        return None  # the notebooks' records are shortened
    return mean([not record["finished"] for record in group])


def _graded(group: Group) -> list[Graded]:
    return [Graded.read(record) for record in group]


def _mean_eval_metric(group: Group, key: str) -> float | None:
    found = [value for r in group if (value := eval_metrics_in(r).get(key)) is not None]
    return mean(found) if found else None
