"""Rewards that are earned by something else than right answers, or by nothing."""

from __future__ import annotations

import math
import re
import statistics
from collections import defaultdict
from typing import Any

from r1lit.doctor.rule import ACCURACY, Evidence
from r1lit.doctor.run import Run, got_right
from r1lit.files import Record


def rewards_of(run: Run) -> list[tuple[str, str, float]]:
    """Return each reward function's class, the name under which it is logged, and its weight."""
    found = []
    for reward in run.setting("model.rewards", []):
        path, options = reward, dict[str, Any]()
        while isinstance(path, dict):  # a ConditionalReward stands for the one that it holds
            options = path.get("init_args") or {}
            path = options.get("reward") or path["class_path"]
        kind = path.rsplit(".", 1)[-1]
        name = options.get("name") or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind).lower()
        found.append((kind, name, float(options.get("weight", 1.0))))
    return found


def weights_of(run: Run) -> dict[str, float]:
    """Return the weight of each reward function by its name."""
    return {name: weight for _, name, weight in rewards_of(run)}


FORMS = ("format", "special_token_format", "language_consistency")
"""Rewards for how an answer is written."""

MEANT = ("Accuracy", "CosineLength", "GroupLength", "RewardModel", "ProcessReward",
         "Format", "SpecialTokenFormat", "LanguageConsistency")  # fmt: skip
"""Reward functions that a run may be for, or that a policy learns first."""


def total(line: Record, weights: dict[str, float]) -> float:
    """Return the reward of a recorded response."""
    return sum(weights.get(name, 1.0) * value for name, value in line["rewards"].items())


def form_decides(run: Run) -> Evidence:
    """See that a right answer earns no more than a wrong one, and no answer earns far less."""
    earned: dict[str, list[float]] = defaultdict(list)
    for line in run.trained_on:
        if line.get("rewards"):
            earned[str(line.get("status"))].append(total(line, weights_of(run)))
    right, wrong, unread = (earned[status] for status in ("right", "wrong", "unparsed"))
    if min(len(right), len(wrong)) < 8 or len(unread) < 3:
        return None
    best, other, none = map(statistics.fmean, (right, wrong, unread))
    if not 0 < best < other / 0.85 or none > 0.5 * best:
        return None
    return f"a right answer earns {best:.2f} on average, a wrong one {other:.2f}, none {none:.2f}"


def format_alone(run: Run) -> Evidence:
    """See that the form earns nearly all, and the answer nearly nothing."""
    if seen := form_decides(run):
        return seen
    weights = weights_of(run)
    form, whole = sum(weights.get(name, 0.0) for name in FORMS), sum(map(abs, weights.values()))
    if form <= 0:
        return None
    if form > 0.7 * whole:
        return f"model.rewards gives format {form:g} of a whole weight of {whole:g}"
    right = [x["rewards"] for x in run.trained_on if got_right(x) and x.get("rewards")]
    paid = {name for rewards in right for name, value in rewards.items() if value}
    if len(right) < 3 or not paid or paid - set(FORMS):
        return None
    return f"{len(right)} recorded right responses earned nothing but {', '.join(sorted(paid))}"


PUNISHES = re.compile(r"penal|punish|repet|overlong|too_long", re.IGNORECASE)
"""Names of rewards that are 0 when all is well."""


def unknown_rewards(run: Run) -> list[str]:
    """Return the keys of rewards in the metrics of a run whose settings are not known."""
    if run.config:
        return []
    keys = {key for line in run.metrics for key in line if key.startswith("train/reward/")}
    return sorted(key for key in keys if not PUNISHES.search(key))


def never_earned(run: Run) -> Evidence:
    """See a reward that no response ever earns, or a punishment that most responses get."""
    keys = unknown_rewards(run)
    unearned = [key for key in keys if (values := run.values(key)) and not any(values)]
    if unearned and len(run.metrics) >= (5 if unearned == keys else 20):
        return f"{' and '.join(unearned)}: 0 in all {len(run.metrics)} iterations"
    weights = weights_of(run)
    for name in weights.keys() & set(FORMS):
        values = run.values(f"train/reward/{name}")
        if len(values) >= 4 and max(values) <= 0.02:
            return f"train/reward/{name} is never above {max(values):.3g}"
    for name, bound in (("overlong", -0.5), ("cosine_length", -0.95)):
        values = run.values(f"train/reward/{name}")
        if len(values) >= 4 and max(values) <= bound:
            return f"train/reward/{name} is never above {max(values):.3g}"
    return None


def reward_hacked(run: Run) -> Evidence:
    """See a reward that rises by something else than right answers, or that they do not earn."""
    for kind, _, weight in rewards_of(run):
        if weight < 0 and kind in (*MEANT, "Overlong", "Repetition"):
            return f"model.rewards gives {kind} a weight of {weight:g}: it pays for the opposite"
    reward, accuracy = (run.end(k) - run.start(k) for k in ("train/reward", ACCURACY))
    spread = run.mean("train/reward_std")
    if reward > max(spread, 0.2) and accuracy < 0.05 * reward:
        return f"{run.moved('train/reward')}, while {run.moved(ACCURACY)}"
    noise = 3 * spread * math.sqrt(2 / run.window_rows)
    for kind, name, weight in rewards_of(run) if run.mean(ACCURACY) > 0.01 else ():
        key = f"train/reward/{name}"
        rise = weight * (run.end(key) - run.start(key))
        is_bonus = weight * run.end(key) > 0  # a punishment that vanishes is what was wanted
        if kind not in MEANT and is_bonus and rise > max(noise, 2 * accuracy):
            return f"{run.moved(key)} (weight {weight:g}), while {run.moved(ACCURACY)}"
    return unpaid(run)


def unpaid(run: Run) -> Evidence:
    """See that rewards within mixed groups have little to do with right answers."""
    weights = weights_of(run)
    mixed = [g for g in run.groups if 0 < sum(map(got_right, g)) < len(g) and "rewards" in g[0]]
    if len(mixed) < 4 or not weights:
        return None
    pairs = []
    for group in mixed:
        earned = [total(line, weights) for line in group]
        share, mean = statistics.fmean(map(got_right, group)), statistics.fmean(earned)
        pairs += [(t - mean, got_right(x) - share) for t, x in zip(earned, group, strict=True)]
    scale = math.sqrt(sum(t * t for t, _ in pairs) * sum(r * r for _, r in pairs))
    correlation = sum(t * r for t, r in pairs) / scale if scale else 0.0
    if correlation >= 0.5:
        return None
    seen = f"within {len(mixed)} mixed groups, reward and right answers correlate by"
    return f"{seen} {correlation:.2f} (0.5: a quarter of the variance)"
