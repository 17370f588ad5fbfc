"""Writes docs/TROUBLESHOOTING.md from the doctor's rules: python docs/troubleshooting.py."""

from __future__ import annotations

from pathlib import Path

from r1lit.doctor.rule import Rule
from r1lit.doctor.rules import RULES

PAGE = Path(__file__).parent / "TROUBLESHOOTING.md"
SECTIONS: dict[str, tuple[str, ...]] = {
    "The reward does not move": (
        "flat", "learning_rate_low", "clipped_gradients", "frozen", "adapter_rate", "kl_strong",
        "no_mixed_groups", "too_hard", "too_easy", "copies", "temperature", "small_groups",
        "never_earned", "clip", "divisor", "stale", "off_policy", "groups_left_out",
    ),
    "Verdicts are wrong or do not come": (
        "unread_answers", "right_and_refused", "wrong_and_paid", "verifier_timeout",
        "verifier_error",
    ),
    "The reward rises, and right answers do not": (
        "reward_hacked", "format_alone", "few_problems", "evaluation_sampling", "tools_unused",
    ),
    "The reward falls": (
        "wrong_way", "learning_rate_high", "apart_at_once", "far_from_rollout", "mismatch",
        "weight_decay", "entropy_bonus", "critic",
    ),
    "Responses look wrong": (
        "one_sign", "repetition", "truncated", "shorter", "padded", "entropy_collapse",
        "incoherent",
    ),
    "The machine": ("memory_grows",),
}  # fmt: skip
"""Each part of the page, by what a user sees first, and its rules, the likeliest first."""

HEAD = """\
# My reward does not go up

Ask the doctor first. It reads the files of a run, also while it goes on:

```bash
r1lit doctor runs/mine
```

Each finding names what was seen, the iteration at which it began, the key to change, and its part
of this page. If several rules apply, begin with the first: causes stand before what they bring
about. `r1lit fit` prints new findings every ten iterations, and one line at its end.

```bash
r1lit doctor runs/mine --watch        # look every 30 s, and print each finding once
r1lit doctor trl_output               # trainer_state.json and completions of TRL's GRPOTrainer
```

![Reward, accuracy, entropy and KL to the reference of a healthy run and of three sick
ones](images/troubleshooting.png)

*One healthy run (grey) and three with a planted fault, six iterations each, same seed. The reward
alone does not tell them apart; entropy and KL do. One run each, on the small world:
[experiments/doctor](../experiments/doctor/README.md).*

**How far to trust it.** Of 20 faults that were planted by someone who had not read the rules, they
named 16 (95 % interval 0.58 to 0.92), and of six healthy runs five were left alone. Two rules are
younger: `flat` and `apart_at_once`. The person who wrote them had seen the published logs below, so
how well they name other faults is not known. `adapter_rate`, `tools_unused` and `memory_grows` were
tried on made-up numbers alone. Silence does not mean that a run is healthy: `r1lit doctor` also
prints which rules could not judge a run, and what it lacks.
"""

TAIL = """\
## Runs of TRL

`r1lit doctor` reads TRL's `trainer_state.json`, also that of the newest checkpoint, and the tables
in `completions/` (`log_completions=True`). It prints the names that the log has, also those of
earlier versions. Three things are not known:

- **Settings.** TRL writes them to `training_args.bin` alone, a pickle that can run code. It is not
  opened, so every rule about a setting is named as not judged.
- **Verdicts.** A completion counts as right if a reward function is named after accuracy or
  correctness and gives its largest value. Without one, the rules about right answers are silent.
- **Weights.** Whether parameters move, and whether updates go the right way, is measured by
  r1lit's callback alone.

The reader was tested on seven runs of TRL 1.16 that were made for it, six of them with a fault, of
six steps each (`tests/doctor/make_trl_runs.py`). On nine published logs of other people, the doctor
named 6 of the 19 faults that a person had seen in the numbers before, and gave no false alarm. With
the two rules that were written after that, and with TRL's rewards counted as never earned where all
entries are 0, it names 14
([what was tried](../experiments/doctor/README.md#published-runs-of-trl)).

This page is written by `python docs/troubleshooting.py` from the rules in `r1lit/doctor/`.
"""


def as_page() -> str:
    """Return the whole page."""
    rules = {rule.name: rule for rule in RULES}
    parts = [HEAD, "## By symptom\n"]
    parts += [table(title, [rules[name] for name in names]) for title, names in SECTIONS.items()]
    for title, names in SECTIONS.items():
        parts.append(f"## {title}\n")
        parts += [entry(rules[name]) for name in names]
    return "\n".join([*parts, TAIL])


def table(title: str, own: list[Rule]) -> str:
    """Return what one sees in one part, with links."""
    rows = [f"| {rule.symptom} | [{rule.name}](#{rule.name}) |" for rule in own]
    return "\n".join([f"**{title}**\n", "| what you see | rule |", "|---|---|", *rows, ""])


def entry(rule: Rule) -> str:
    """Return what the page says of a rule."""
    return (
        f"### {rule.name}\n\n"
        f"- **What you see.** {rule.symptom}\n"
        f"- **What it means.** {sentence(rule.meaning)}\n"
        f"- **Confirm.** `r1lit doctor runs/mine --rule {rule.name}`\n"
        f"- **Change.** {sentence(rule.change)}\n"
    )


def sentence(text: str) -> str:
    """Return a text that ends in a full stop, and begins with a capital unless it is a key."""
    first = text.split()[0]
    is_key = "." in first or "_" in first or "'" in first
    return (text if is_key else text[0].upper() + text[1:]) + "."


if __name__ == "__main__":
    PAGE.write_text(as_page())
