"""Every measured number of README.md is that of the committed rows, or of the page it links to."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import pytest

from experiments.earned_length.report import unneeded
from experiments.tables import mean_cell, with_interval
from r1lit.files import Record, read_records
from r1lit.metrics import mean
from r1lit.metrics.seeds import paired_shift

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
SFT = "SFT, the same six documents an update, lengths of R1's chains"


def rows(study: str) -> list[Record]:
    return read_records(ROOT / "experiments" / study / "results.jsonl")


def page(study: str) -> str:
    return (ROOT / "experiments" / study / "README.md").read_text()


def short(cell: str) -> str:
    """A cell's mean without its error."""
    return cell.partition(" ± ")[0].strip()


def aha_table() -> list[str]:
    """Lines of the first table, from the rows of `make aha`'s three seeds."""
    seeds = rows("earned_length")
    ends = [[seed["evaluations"][at] for seed in seeds] for at in (0, -1)]

    def line(name: str, key: str, *forms: str) -> str:
        cells = (mean_cell([e[key] for e in own], f) for own, f in zip(ends, forms, strict=True))
        return f"| {name} | {' | '.join(cells)} |"

    words = [[e["reflection_words_per_response"] for e in own] for own in ends]
    cells = [
        f"{median(own):.{k}f} ({', '.join(f'{value:.{k}f}' for value in sorted(own))})"
        for own, k in zip(words, (2, 1), strict=True)
    ]
    return [
        line("pass@1", "pass_at_1", ".2f", ".2f"),
        line("cons@16 (majority vote of 16)", "cons", ".2f", ".2f"),
        line("response length, tokens", "response_length_tokens", ".0f", ".0f"),
        f"| reflection words per response, median (all three seeds) | {' | '.join(cells)} |",
        near_misses(ends),
    ]


def near_misses(ends: Sequence[Sequence[Record]]) -> str:
    before, after = ([e["habits"]["deceptive_checked"] for e in own] for own in ends)
    cells = f"{mean_cell(before, '.2f')} | {mean_cell(after, '.3f')}"
    return f"| near misses verified | {cells} |"


def unneeded_tokens() -> list[str]:
    said = unneeded(rows("earned_length"))
    gained, least, low, high = re.findall(r"\d+", said)[:4]
    return [f"Of the {gained} tokens gained, {least} (95 % interval over seeds {low} to {high})"]


def controls() -> list[str]:
    """What RL changes with verdicts, and with other rewards in their place."""
    runs: dict[str, list[tuple[float, float]]] = {}
    for r in rows("what_rl_adds"):
        if r["part"] == "controls":
            ends = r["evaluations"][0]["pass_at_1"], r["final"]["pass_at_1"]
            runs.setdefault(r["variant"], []).append(ends)
    before, after = (mean(list(own)) for own in zip(*runs["recipe"], strict=True))
    of_form, of_chance = (
        with_interval(paired_shift([b - a for a, b in runs[name]]), "+.3f").replace("-", "−")
        for name in ("format-only", "random-reward")
    )
    value, interval = of_form.split(" ", 1)
    return [
        f"In 45 iterations pass@1 rises from {before:.2f} to {after:.2f}",
        f"it changes by {value} (95 % interval over three seeds {interval.strip('()')})",
        f"with a random reward by {of_chance}",
    ]


def decision() -> list[str]:
    kinds = [r["kinds"] for r in rows("what_rl_adds") if r["part"] == "decisions"]
    name = "whether to go on after a failure"
    nats = [{k: kind["policy"] - kind["base"] for k, kind in own.items()} for own in kinds]
    share = mean([own[name] / sum(own.values()) for own in nats])
    return [f"log-probabilities, {100 * share:.0f} % is at the decision"]


def stages_of_r1() -> list[str]:
    """Lines of the table of stages, from the page's table with its errors left out."""
    names = {"base": "the base", "Dev3: + rejection sampling, SFT": "Dev3: SFT on its own best"}
    found = []
    for name in ("base", "R1-Zero", "Dev1: cold start", "Dev2: + reasoning RL",
                 "Dev3: + rejection sampling, SFT", "R1: + RL for all scenarios"):  # fmt: skip
        theirs = names.get(name, name)
        line = next(x for x in page("r1").splitlines() if x.startswith(f"| {theirs} | 0."))
        cells = [short(cell) for cell in line.split("|")[2:-1]]
        shown = (f"{float(cells[place]):.2f}" for place in (0, 3, 4, 5, 7))
        found.append(f"| {name} | {' | '.join(shown)} |")
    return found


def real_model() -> list[str]:
    runs: dict[str, list[tuple[float, float]]] = {}
    for r in rows("real_model"):
        ends = r["evaluations"][0]["pass_at_1"], r["final"]["pass_at_1"]
        runs.setdefault(r["variant"], []).append(ends)
    right = runs["right-answer"]
    before, after = (mean(list(own)) for own in zip(*right, strict=True))
    gain, of_form = (
        with_interval(paired_shift([b - a for a, b in runs[name]]), ".2f").replace("-", "−")
        for name in ("right-answer", "any-number")
    )
    value, interval = gain.split(" ", 1)
    least, most = min(b for _, b in right), max(b for _, b in right)
    own, random = (mean([b for _, b in runs[n]]) for n in ("own-right-answers", "random"))
    return [
        f"rises from {before:.2f} to {after:.2f} (three seeds: {least:.2f} to {most:.2f}),"
        f" a gain of {value} (95 % interval over seeds {interval.strip('()')})",
        f"pass@1 rises by {of_form}",
        f"own right answers reaches {own:.2f}",
        f"random reward pass@1 falls to {random:.2f}",
    ]


def larger() -> list[str]:
    runs = [r for r in rows("real_families") if r["variant"] == "larger"]
    before = mean([r["evaluations"][0]["pass_at_1"] for r in runs])
    after = mean_cell([r["final"]["pass_at_1"] for r in runs], ".2f")
    return [f"pass@1 rises from {before:.2f} to {after};"]


def speed() -> list[str]:
    """Lines of the table of speed, from the benchmarks' own file."""
    entries = json.loads((ROOT / "benchmarks" / "results" / "cpu.json").read_text())
    ratio = {(e["work"], e["model"], e["peer"]): e["ratio_median"] for e in entries}
    grpo, sft, vllm = "TRL GRPOTrainer", "TRL SFTTrainer", "vLLM"
    found = {
        "| GRPO iteration | shipped base, 16 × 16 responses, ≤ 512 tokens | TRL `GRPOTrainer` | ":
            f"{ratio['GRPO iteration, 16 x 16, up to 512 tokens', 'mini', grpo]:.1f} |",
        "| GRPO iteration | 135M, 4 × 8, ≤ 256 | TRL `GRPOTrainer` | ":
            f"{ratio['GRPO iteration, 4 x 8, up to 256 tokens', '135M', grpo]:.1f} |",
        "of three seeds | shipped base | TRL `GRPOTrainer` | ":
            f"{ratio['speedrun: shipped base to held-out pass@1 0.75, 3 seeds', 'mini', grpo]:.1f}",
        "| SFT on R1's chains | 135M | TRL `SFTTrainer` | ":
            f"{ratio[SFT, '135M', sft]:.1f} |",
        "| rollout | 135M, bfloat16 | vLLM on the CPU | ":
            f"{ratio['rollout, 64 responses, up to 256 tokens', '135M', vllm]:.2f} |",
    }  # fmt: skip
    return [start + value for start, value in found.items()]


def aha_float32() -> list[str]:
    """Minutes and accuracy of `make aha` on a CPU without bfloat16."""
    found = json.loads((ROOT / "benchmarks" / "results" / "aha_float32.json").read_text())
    end = next(row for row in found["evaluations"] if row["iteration"] == 60)
    minutes = found["minutes"]["60 iterations with evaluations"]
    return [
        f"{minutes:.0f} minutes on two cores with AVX2",
        f"held-out pass@1 of {end['pass_at_1']:.2f} ([one seed]",
    ]


CLAIMS = {
    "make aha": aha_table,
    "make aha in float32": aha_float32,
    "length that buys nothing": unneeded_tokens,
    "controls": controls,
    "the decision": decision,
    "stages of R1": stages_of_r1,
    "a real model": real_model,
    "the larger number": larger,
    "speed": speed,
}
SETTINGS = (
    r"Python 3\.11", r"needs 2\.1 GB", r"Qwen2\.5-1\.5B", r"Apache-2\.0",
    r"held-out pass@1 of 0\.75,", r"SmolLM2-135M",
)  # fmt: skip
"""Numbers that nobody measured as a result: names, versions, an aim, and what a run needs."""


@pytest.mark.parametrize("name", CLAIMS)
def test_a_number_is_that_of_the_rows(name: str) -> None:
    for claim in CLAIMS[name]():
        assert claim in README, f"{name}: README.md lacks {claim!r}"


def test_every_decimal_and_percentage_is_held_by_a_claim() -> None:
    """A new number needs a claim: what no claim and no setting covers is an error."""
    left = re.sub(r"^```.*?^```$", "", README, flags=re.MULTILINE | re.DOTALL)
    for claim in (claim for claims in CLAIMS.values() for claim in claims()):
        left = left.replace(claim, "")
    for setting in SETTINGS:
        assert re.search(setting, README), f"{setting} is in no sentence any more"
        left = re.sub(setting, "", left)
    left = re.sub(r"\]\([^()]*\)|95 % interval", "", left)
    assert re.findall(r"\d*\.\d+|\d+ %", left) == []


def test_a_count_is_that_of_the_page() -> None:
    passed = re.search(r"(\d+ of \d+) tests marked `gpu` passed", README)
    assert passed and f"| `pytest -m gpu` | {passed[1]} passed" in (
        (ROOT / "docs" / "PERFORMANCE.md").read_text()
    )
