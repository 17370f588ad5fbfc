"""Records of graded responses: writing and reading the lines of ``responses.jsonl``.

`r1lit test` and `r1lit predict` write them to an evaluation's folder, `ResponseTable` to a training
run's; reports, comparisons, curation and the experiments read them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from r1lit.files import JSONLFile, Record, defined
from r1lit.metrics import Graded, accuracy, elo_rating, lengths, mean, share_right, with_error
from r1lit.problems import Response, Status, Transcript


def response_record(response: Response, sample: int) -> Record:
    """Return the line of a graded response; ``sample`` counts from 0 within its problem."""
    problem, verdict = response.problem, response.verdict
    return {
        "uid": problem.uid,
        "sample": sample,
        "source": problem.source,
        "question": problem.question,
        "answer": problem.answer,
        "response": response.text,
        "value": verdict.value,
        "status": verdict.status,
        "reason": verdict.reason,
        "canonical": verdict.canonical,
        "num_tokens": response.num_tokens,
        "finished": response.finished,
        **({"problem": problem.meta["problem"]} if "problem" in problem.meta else {}),
        **({"details": dict(verdict.details)} if verdict.details else {}),
        **({} if response.transcript is None else _episode(response.transcript)),
    }


def _episode(transcript: Transcript) -> Record:
    return {
        "turns": [dict(message) for message in transcript.messages],
        "ended": transcript.ended,
        "num_calls": transcript.num_calls,
        "num_invalid": transcript.num_invalid,
    }


def merged(groups: Mapping[str, list[Record]]) -> dict[str, list[Record]]:
    """Return the groups with those of one problem as one: its responses had a prompt each."""
    found: dict[str, list[Record]] = {}
    for uid, records in groups.items():
        for record in records:
            found.setdefault(record.get("problem", uid), []).append(record)
    return found


def eval_metrics_in(record: Record) -> dict[str, float]:
    """Return the eval metrics of a line; a training run's lines have rewards instead, so none.

    Lines written before the key was renamed have ``measures``.
    """
    return dict(record.get("eval_metrics", record.get("measures", {})) or {})


def by_problem(
    records: Iterable[Record], num_samples: int | None = None
) -> dict[str, list[Record]]:
    """Return the responses to each problem by uid, ordered by sample.

    With ``num_samples``, at most so many of each. The first of repeated samples counts; problems
    stand in the order in which they first appear.
    """
    found: dict[str, dict[int, Record]] = {}
    for record in records:
        if num_samples is None or record["sample"] < num_samples:
            found.setdefault(record["uid"], {}).setdefault(record["sample"], record)
    return {uid: [own[g] for g in sorted(own)] for uid, own in found.items()}


Which = int | Literal["first", "last"]
"""An evaluation of a training run: the first, the last, or that at an iteration."""


def read_evaluation(path: Path, key: str = "run", which: Which = "last") -> list[Record]:
    """Return the responses of one evaluation, in the order of their lines.

    Of a training run's file, which has responses of training and of several evaluations, they are
    those of the evaluation ``which``.

    Raises:
        ValueError: if a line is no record, or there is no evaluation at that iteration; ``key``
            names the file in the error.
    """
    found: list[Record] = []
    of: tuple[str, int] | None = None
    iterations: list[int] = []
    for record in JSONLFile(path, key).read():
        this = (record["split"], record["iteration"]) if "split" in record else None
        if this is not None and this[0] == "train":
            continue
        if this != of:
            if of is not None and which in ("first", of[1]):
                break
            found, of = [], this
            iterations.append(record.get("iteration", 0))
        found.append(record)
    if which not in ("first", "last") and (of is None or of[1] != which):
        has = ", ".join(map(str, iterations)) or "none"
        raise ValueError(f"{key}: {path} has no evaluation at iteration {which}; it has {has}")
    return found


Group = Sequence[Record]


def summarise(
    groups: Mapping[str, Group],
    *,
    settings: Mapping[str, Any],
    group_by: Sequence[str] = (),
    rating: str | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Return every number of an evaluation.

    - ``pass_at_1``: mean over problems of the share of right responses, with its standard error
      and 95 % interval over problems;
    - ``pass_at_k`` and ``cons_at_k``: by k from 1 to the number of samples, each with its interval;
    - ``mean_value``: the mean of the verdicts' values, not pass@1 if partly right answers count;
    - ``response_length``: in tokens; ``truncated``: the share cut at the token limit;
    - ``eval_metrics``: the mean of each, such as format and language consistency;
    - ``verdicts``: how many of each status, and ``reasons``: the commonest of those not right;
    - ``by``: pass@1 by each key of ``group_by``;
    - ``search``, where searches made the responses: the mean of each of their numbers, such as
      ``num_tokens``, all that were generated for a response;
    - ``elo`` with ``rating``, the group that holds a problem's Codeforces rating (`elo_rating`);
    - ``settings``, ``num_problems`` and ``num_samples``.

    Numbers that are undefined (a standard error of one problem) are None.

    Args:
        groups: the k responses to each problem, by uid, in the problems' order.
        settings: what the responses depend on, copied into the report.
        group_by: keys of the records' ``groups``.
        rating: one of these keys, or None.
        seed: of the bootstrap.

    Raises:
        ValueError: if there is no problem, or problems have different numbers of responses.
    """
    sizes = {len(group) for group in groups.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise ValueError(
            f"responses: {len(groups)} problems with {sorted(sizes)} responses each; an evaluation"
            " has as many, and at least one, for every problem"
        )
    graded = {uid: [Graded.read(record) for record in group] for uid, group in groups.items()}
    records = [record for group in groups.values() for record in group]
    report: dict[str, Any] = {
        **accuracy(list(graded.values()), seed=seed),
        "mean_value": mean([r["value"] for r in records]),
        "response_length": lengths([g for group in graded.values() for g in group]),
        "truncated": mean([not r["finished"] for r in records]),
        "eval_metrics": _mean_eval_metrics(records),
        "verdicts": {s: Counter(r["status"] for r in records)[s] for s in get_args(Status)},
        "reasons": _reasons(records),
        "by": {key: _by_group(groups, key, seed) for key in ("source", *group_by)},
        "settings": dict(settings),
    }
    searches = [record["search"] for record in records if "search" in record]
    if searches:
        report["search"] = {key: mean([s[key] for s in searches]) for key in searches[0]}
    if rating is not None:
        report["elo"] = _elo(groups, rating, seed)
    return defined(report)


def _share(group: Group) -> float:
    return share_right([Graded.read(record) for record in group])


def _mean_eval_metrics(records: Group) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for record in records:
        for name, value in eval_metrics_in(record).items():
            values.setdefault(name, []).append(value)
    return {name: mean(own) for name, own in values.items()}


def _reasons(records: Group) -> list[dict[str, Any]]:
    """Return the ten commonest pairs of status and reason among responses that are not right."""
    pairs = Counter((r["status"], r["reason"][:100]) for r in records if r["value"] != 1.0)
    return [
        {"status": status, "reason": reason, "count": count}
        for (status, reason), count in pairs.most_common(10)
    ]


def _by_group(groups: Mapping[str, Group], key: str, seed: int) -> dict[str, Any]:
    shares: dict[str, list[float]] = {}
    for group in groups.values():
        first = group[0]
        name = first["source"] if key == "source" else first["groups"].get(key)
        shares.setdefault(str(name), []).append(_share(group))
    return {
        name: {"num_problems": len(of_group), **with_error(of_group, seed=seed)}
        for name, of_group in sorted(shares.items())
    }


def _elo(groups: Mapping[str, Group], rating: str, seed: int) -> dict[str, Any]:
    """Return the rating over problems that have one, with its bootstrap interval over problems."""
    rated = [
        (_share(group), float(group[0]["groups"][rating]))
        for group in groups.values()
        if group[0]["groups"].get(rating) is not None
    ]
    if not rated:
        raise ValueError(f"rating: no problem has a {rating!r}")
    random = np.random.default_rng(seed)
    resampled = []
    for _ in range(200):
        picked = [rated[i] for i in random.integers(0, len(rated), len(rated))]
        resampled.append(elo_rating(*map(list, zip(*picked, strict=True))))
    low, high = np.percentile(resampled, [2.5, 97.5])
    return {
        "value": elo_rating(*map(list, zip(*rated, strict=True))),
        "low": float(low),
        "high": float(high),
        "num_problems": len(rated),
        "method": "maximum likelihood over independent problems, not simulated contests",
    }


KS = (1, 2, 4, 8, 16, 32, 64, 128)
"""The k in Markdown; JSON has every k."""


def as_markdown(report: Mapping[str, Any], title: str) -> str:
    """Return a report of `r1lit.evaluation.records.summarise` as Markdown.

    Shares are in per cent; 95 % intervals over problems stand in brackets.
    """
    lines = [
        f"# {title}",
        "",
        f"{report['num_problems']} problems, {report['num_samples']} responses each. Per cent, with"
        " standard errors and 95 % bootstrap intervals over problems.",
        "",
        *accuracy_rows(report),
    ]
    if "elo" in report:
        elo = report["elo"]
        lines.append(
            f"| Elo, {elo['method']} | {elo['value']:.0f} | | {elo['low']:.0f} to"
            f" {elo['high']:.0f} |"
        )
    for key, groups in report["by"].items():
        if len(groups) > 1 or key != "source":
            lines += [
                _row(f"pass@1, {key} {name} ({group['num_problems']})", group)
                for name, group in groups.items()
            ]
    lines += ["", "| responses | |", "|---|---|"]
    length, verdicts = report["response_length"], report["verdicts"]
    lines += [
        f"| length in tokens, mean (median, 90th percentile, longest) | {_number(length['mean'])}"
        f" ({_number(length['median'])}, {_number(length['p90'])}, {length['max']}) |",
        f"| length, right / wrong | {_number(length['right'])} / {_number(length['wrong'])} |",
        f"| truncated | {_percent(report['truncated'])} |",
    ]
    if "search" in report:
        tokens = _number(report["search"]["num_tokens"])
        lines.append(f"| tokens generated for a response by its search, mean | {tokens} |")
    lines += [f"| {name} | {_percent(value)} |" for name, value in report["eval_metrics"].items()]
    lines += [f"| verdict: {status} | {count} |" for status, count in verdicts.items()]
    lines += ["", "| settings | |", "|---|---|"]
    lines += [f"| {key} | {_cell(value)} |" for key, value in report["settings"].items()]
    if report["reasons"]:
        lines += ["", "| not right because | responses |", "|---|---|"]
        lines += [
            f"| {r['status']}: {_cell(r['reason'])} | {r['count']} |" for r in report["reasons"]
        ]
    return "\n".join(lines) + "\n"


def accuracy_rows(report: Mapping[str, Any]) -> list[str]:
    """Return the table of pass@1, pass@k and cons@k as lines, with its heading."""
    num_samples = report["num_samples"]
    lines = [
        "| | value | standard error | 95 % interval |",
        "|---|---|---|---|",
        _row("pass@1", report["pass_at_1"]),
    ]
    for name, key in (("pass", "pass_at_k"), ("cons", "cons_at_k")):
        shown = [k for k in KS if 1 < k < num_samples] + [num_samples] * (num_samples > 1)
        lines += [_row(f"{name}@{k}", report[key][str(k)]) for k in shown]
    return lines


def _row(name: str, estimate: Mapping[str, Any]) -> str:
    stderr = _percent(estimate["stderr"]) if "stderr" in estimate else ""
    interval = (
        f"{_percent(estimate['low'])} to {_percent(estimate['high'])}"
        if estimate["low"] is not None
        else "–"
    )
    return f"| {_cell(name)} | {_percent(estimate['value'])} | {stderr} | {interval} |"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}"


def _cell(value: Any) -> str:
    return " ".join(str(value).replace("|", "\\|").split())
