"""Page of the small world's tools: success, calls, faults and endings, by kind of question."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

from jsonschema import Draft202012Validator
from matplotlib.figure import Figure

from experiments.by_source import evaluated_in
from experiments.study import Study
from experiments.tables import Column, by_seed, ends, group_by, number, seed_table, table_by
from experiments.tools.figures import draw
from r1lit.files import Record
from r1lit.metrics import mean
from r1lit.metrics.seeds import Shift, shift_over_seeds
from r1lit.verifiers.structured import answer_text
from r1lit.worlds.forms import schema_of
from r1lit.worlds.tools import MOST

SourceColumn = tuple[str, str, str]
"""A heading, the source of the problems, and a number of its responses."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A task of the study: its title, the numbers that its table shows, and those compared."""

    title: str
    columns: tuple[SourceColumn, ...]
    judged: tuple[str, ...]
    """Headings of the numbers whose changes have intervals."""
    control: str | None = None
    """The variant whose change is subtracted from that of the others, for the first of these."""


PARTS = {
    "look-up": Part(
        title="Look-up",
        judged=("right, unknown people", "calls, unknown", "calls, known"),
        control="random",
        columns=(
            ("right, unknown people", "look-up unknown", "right"),
            ("right, known people", "look-up known", "right"),
            ("calls, unknown", "look-up unknown", "calls"),
            ("calls, known", "look-up known", "calls"),
            ("unreadable calls", "look-up unknown", "invalid"),
            ("tool off: right, unknown", "off unknown", "right"),
            ("tool off: right, known", "off known", "right"),
        ),
    ),
    "guess": Part(
        title="Guess",
        judged=("found", "first guess, distance from the middle"),
        control="coin",
        columns=(
            ("found", "guess", "right"),
            ("turns", "guess", "turns"),
            ("first guess, distance from the middle", "guess", "first"),
            ("unreadable guesses", "guess", "invalid"),
        ),
    ),
    "sums": Part(
        title="Sums",
        judged=("right, to 19", "calls, to 19"),
        columns=(
            ("right, to 199", "sum hard", "right"),
            ("right, to 19", "sum easy", "right"),
            ("calls, to 199", "sum hard", "calls"),
            ("calls, to 19", "sum easy", "calls"),
            ("tool off: right, to 199", "off hard", "right"),
            ("tool off: right, to 19", "off easy", "right"),
        ),
    ),
    "json": Part(
        title="JSON",
        judged=("right", "valid"),
        columns=(
            ("right", "json", "right"),
            ("valid", "json", "valid"),
            ("valid with all keys", "json", "complete"),
            ("empty object", "json", "empty"),
            ("values right, of keys requested", "json", "values"),
        ),
    ),
    "roles": Part(
        title="Roles",
        judged=("turns kept, last", "turns kept, with a claim"),
        control="random",
        columns=(
            ("role kept in every turn", "role", "right"),
            ("turns kept", "role", "kept"),
            ("turns kept, last", "role", "last"),
            ("turns kept, with a claim", "role", "against"),
            ("turns with the right name", "role", "named"),
            ("turns with the claimed name", "role", "claimed"),
            ("kept in all eight turns", "longer", "right"),
        ),
    ),
}
GUESS = re.compile(r"<call> (\d+)</call>")


def read(study: Study) -> list[Record]:
    """Return each finished point of each part, with the numbers of its evaluations by source."""
    found = []
    for part in PARTS:
        if part not in {step["name"] for step in study.content["steps"]}:
            continue
        for result, folder in study.sweep(part).runs():
            evaluations = [
                {"iteration": iteration, **measured(responses)}
                for iteration, responses in evaluated_in(folder).items()
            ]
            kept = {key: result[key] for key in ("variant", "seed", "seconds")}
            found.append({"part": part, **kept, "evaluations": evaluations})
    return found


def measured(responses: Sequence[Record]) -> Record:
    """Return means over the responses of each source, and the shares of how they ended.

    ``right`` is the share of right responses, ``calls`` those of a response that could be read,
    ``invalid`` those that could not, ``turns`` those of the model, ``first`` the distance of the
    first guess from the middle.
    """
    found: Record = {}
    for source, own in group_by("source", responses).items():
        numbers: Record = {
            "right": mean([float(r["status"] == "right") for r in own]),
            "tokens": mean([float(r["num_tokens"]) for r in own]),
        }
        if "ended" in own[0]:
            invalid = sum(r["num_invalid"] for r in own)
            turns = [[t for t in r["turns"] if t["role"] == "assistant"] for r in own]
            numbers |= {
                "calls": sum(r["num_calls"] for r in own) / len(own),
                "invalid": invalid / len(own),
                "turns": mean([float(len(t)) for t in turns]),
            }
            if source == "guess":
                first = [GUESS.search(t[0]["content"]) for t in turns]
                numbers["first"] = mean([abs(int(g[1]) - (MOST + 1) / 2) for g in first if g])
            endings = Counter(r["ended"] for r in own)
            numbers["ended"] = {how: endings[how] / len(own) for how in sorted(endings)}
        if source == "json":
            numbers |= means_of([form_numbers(r) for r in own])
        elif source in ("role", "longer"):
            numbers |= means_of([role_numbers(r) for r in own])
            kept = [r["details"]["kept"] for r in own if "details" in r]
            # a conversation that was cut keeps no turn
            numbers["by_turn"] = [sum(turn) / len(own) for turn in zip(*kept, strict=True)]
        found[source] = numbers
    return found


def means_of(numbers: Sequence[Record]) -> Record:
    """Return the mean of each number."""
    return {key: mean([one[key] for one in numbers]) for key in numbers[0]}


def form_numbers(response: Record) -> Record:
    """Return whether an object is valid, has all keys, or none, and its share of right values.

    It is valid where it breaks no rule but may lack keys, and complete where it lacks none.
    """
    keys = response["question"].removesuffix("?").partition("JSON with ")[2].split(", ")
    gold = json.loads(response["answer"])
    found = object_in(response["response"])
    given = found if isinstance(found, dict) else {}
    valid, complete = (
        isinstance(found, dict) and Draft202012Validator(schema_of(keys, required)).is_valid(found)
        for required in (False, True)
    )
    return {
        "valid": float(valid),
        "complete": float(complete),
        "empty": float(found == {}),
        "values": mean([float(given.get(key) == gold[key]) for key in keys]),
    }


def object_in(response: str) -> object:
    """Return the JSON of a response, None where there is none."""
    try:
        found: object = json.loads(answer_text(response))
    except (ValueError, RecursionError):
        return None
    return found


def role_numbers(response: Record) -> Record:
    """Return the shares of a conversation's turns in role, with each name, and against a claim.

    A conversation that a token limit cut has no share: none of its turns counts as kept.
    """
    details = response.get("details")
    if details is None:
        return dict.fromkeys(("kept", "last", "against", "named", "claimed"), 0.0)
    said = [t["content"] for t in response["turns"] if t["role"] == "user"]
    place = next(i for i, text in enumerate(said, start=1) if text.startswith("You are "))
    return {
        "kept": mean(details["kept"]),
        "last": details["kept"][-1],
        "against": details["kept"][place],
        "named": mean(details["named"]),
        "claimed": mean(details["claimed"]),
    }


def as_table(part: Part, results: Sequence[Record]) -> str:
    """Return a row a variant, as Markdown: first → last evaluation, mean ± s.e. over seeds."""
    columns: list[Column] = [(name, ends(source, key), ".2f") for name, source, key in part.columns]
    columns.append(("seconds", number("seconds"), ".0f"))
    return table_by("variant", results, columns, "variant")


def changes_table(part: Part, results: Sequence[Record]) -> str:
    """Return the changes of what is judged, last less first evaluation, over seeds."""
    keys = {name: (source, key) for name, source, key in part.columns}
    groups = group_by("variant", results)

    def change(name: str, run: Record) -> float | None:
        first, last = (value(run) for value in ends(*keys[name]))
        return None if first is None or last is None else last - first

    found: list[tuple[list[str], Shift | None]] = []
    for variant, name in product(groups, part.judged):
        by = {r["seed"]: c for r in groups[variant] if (c := change(name, r)) is not None}
        found.append(([variant, name], shift_over_seeds(by, dict.fromkeys(by, 0.0))))
    if part.control in groups:
        name = part.judged[0]
        for variant in (one for one in groups if one != part.control):
            shift = by_seed(groups[variant], groups[part.control], partial(change, name))
            found.append(([f"{variant} less {part.control}", name], shift))
    return seed_table(found, ["change of", "number"], ".2f")


def endings(part: Part, results: Sequence[Record]) -> str:
    """Return how episodes ended at the last evaluation, as a sentence a variant."""
    lines = []
    for variant, own in group_by("variant", results).items():
        shares: Counter[str] = Counter()
        sources = dict.fromkeys(source for _, source, _ in part.columns)
        last = [run["evaluations"][-1].get(source, {}) for run in own for source in sources]
        ended = [one["ended"] for one in last if "ended" in one]
        for one in ended:
            shares.update(one)
        told = ", ".join(f"{how} {n / len(ended):.3f}" for how, n in sorted(shares.items()))
        lines += [f"- `{variant}`: {told}"] if told else []
    return "\n".join(["How episodes ended, at the last evaluation:", "", *lines]) if lines else ""


def kept_by_turn(part: Part, results: Sequence[Record]) -> str:
    """Return the share of replies in role by turn, first and last evaluation, a line a variant."""
    lines = []
    for variant, own in group_by("variant", results).items():
        for source in dict.fromkeys(source for _, source, _ in part.columns):
            shares = []
            for place in (0, -1):
                turns = [run["evaluations"][place].get(source, {}).get("by_turn") for run in own]
                known = [one for one in turns if one]
                shares.append(" ".join(f"{mean(turn):.2f}" for turn in zip(*known, strict=True)))
            lines += [f"- `{variant}`, {source}: {shares[0]} → {shares[1]}"] if shares[1] else []
    return "\n".join(["Replies in role, turn by turn:", "", *lines]) if lines else ""


def report(results: Sequence[Record]) -> tuple[str, dict[str, Figure]]:
    """Return tables and figures."""
    parts = group_by("part", results)
    text = ["Held out, first → last evaluation; mean ± standard error over seeds."]
    for name, own in parts.items():
        part = PARTS[name]
        text += [f"**{part.title}**", as_table(part, own), changes_table(part, own)]
        text += [kept_by_turn(part, own), endings(part, own)]
    return "\n\n".join(filter(None, text)), draw(parts)
