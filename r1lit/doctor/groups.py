"""Rules about sampling, and about groups that give no advantage."""

from __future__ import annotations

import math
import re
import statistics

from r1lit.doctor import settings
from r1lit.doctor.rule import Evidence
from r1lit.doctor.run import Run, got_right
from r1lit.files import Record


def sampling(run: Run) -> Evidence:
    """See rollouts that are nearly greedy, or nearly noise."""
    for key, default, low, high in (
        ("temperature", 1.0, 0.5, 1.5),
        ("top_p", 1.0, 0.6, 1.0),
        ("top_k", 0, 10, math.inf),
    ):
        value = run.setting(f"model.sampling.{key}", default)
        if not low <= value <= high and not (key == "top_k" and value == 0):
            return f"model.sampling.{key} is {value}"
    return None


def copies(run: Run) -> Evidence:
    """See groups whose responses are copies of each other while they are not all right.

    Or a few copies of responses so unlikely that independent samples are none.
    """
    counts = run.measured_numbers("num_copies")
    if (total := sum(counts)) >= 2:
        seen = f"{total:g} responses of the {len(counts)} iterations measured equal another one"
        return f"{seen} of their group, which independent samples do once in a million"
    groups = [g for g in run.groups if len(g) >= 4 and not all(map(got_right, g))]
    if len(groups) < 3:
        return None
    share = statistics.fmean(len({x["response"] for x in g}) / len(g) for g in groups)
    if share > 0.4:
        return None
    return f"{share:.0%} of a group's responses are distinct, in {len(groups)} groups not all right"


def identity(line: Record) -> str:
    """Return a key of the problem that a response answers: its words and answer, not its name."""
    text = str(line.get("question") or line.get("prompt") or line.get("uid")).lower()
    words = " ".join(re.findall(r"\w+|[^\w\s]", text)).rstrip(" .?!")
    return f"{words} {line.get('answer')}"


def few_problems(run: Run) -> Evidence:
    """See that all groups are of a handful of problems, by whatever names they go."""
    problems = {identity(group[0]) for group in run.groups}
    names = {group[0].get("uid") for group in run.groups}
    if len(run.groups) < 12 or len(problems) > 8 or len(run.groups) < 2 * len(problems):
        return None
    named = f", under {len(names)} names" if len(names) > len(problems) else ""
    return f"the {len(run.groups)} groups recorded are of {len(problems)} problems{named}"


def evaluation_sampling(run: Run) -> Evidence:
    """See evaluations that sample otherwise than training does, beyond published settings.

    R1 trains at 1.0 and evaluates at 0.6. A greedy evaluation has one response a problem: k of them
    are one.
    """
    given, key = run.setting("model.validation_sampling"), "model.validation_sampling"
    if not isinstance(given, dict) or run.setting("trainer.limit_val_batches") == 0:
        return None
    given = given.get("init_args", given)
    trained = float(run.setting("model.sampling.temperature", 1.0))
    temperature = float(given.get("temperature", 1.0))
    num = int(run.setting("data.evaluation.num_samples", 1))
    if temperature == 0 and num > 1:
        return f"{key}.temperature is 0 with {num} samples of each problem: they are alike"
    low, high = 0.5 * min(trained, 1.0), 1.25 * max(trained, 1.0)
    if temperature > 0 and not low <= temperature <= high:
        return f"{key}.temperature is {temperature:g}, and model.sampling.temperature {trained:g}"
    limit = given.get("max_tokens", 512)
    cut = [e["truncated"] for e in run.evaluations if e.get("truncated") is not None]
    if limit < run.setting("model.sampling.max_tokens", 512) and cut and cut[-1] > 0.2:
        return f"{key}.max_tokens is {limit}, which cuts {cut[-1]:.0%} of the last evaluation"
    return None


def no_mixed_groups(run: Run) -> Evidence:
    """See that hardly a group has right and wrong responses, or that their rewards are alike.

    A run that has solved its problems is none of these.
    """
    mixed, spread = run.mean("train/groups/mixed"), run.mean("train/reward_std")
    right = "train/groups/all_right"
    if run.end(right) > 0.7 and run.start(right) < 0.5:
        return None
    if spread < 1e-6:
        return f"train/reward_std is {spread:.3g} on average"
    return f"train/groups/mixed is {mixed:.3g} on average" if mixed < 0.2 else None


def too_hard(run: Run) -> Evidence:
    """See that most groups are wrong at the start, and nearly all at the end."""
    key = "train/groups/all_wrong"
    always = run.start(key) > 0.5 and run.end(key) > 0.85  # else training has brought it about
    return run.moved(key) if always else None


def too_easy(run: Run) -> Evidence:
    """See that nearly all groups are right from the start."""
    right = run.start("train/groups/all_right")
    return f"train/groups/all_right is {right:.3g} at the start" if right > 0.6 else None


def small_groups(run: Run) -> Evidence:
    """See groups too small for a baseline."""
    size = run.setting("data.rollout.group_size", 16)
    if size >= 4 or settings.has_critic(run):
        return None
    return f"data.rollout.group_size is {size} (R1: 16)"


def truncated(run: Run) -> Evidence:
    """See a limit that cuts a fifth of the responses, on average or when the run starts.

    A policy may learn to stay below a limit that is too low for it, so the start counts too. Or it
    grows up to a limit that becomes too low, or that the run lowers.
    """
    key = "train/length/truncated"
    start, mean, end = run.start(key), run.mean(key), run.end(key)
    if not (max(start, mean) > 0.2 or end > 0.5):
        return None
    limit = run.setting("model.sampling.max_tokens", 512 if run.config else "unknown")
    seen = f"{key} is {start:.3g} at the start, {mean:.3g} on average, {end:.3g} at the end"
    return f"{seen}; the limit in tokens is {limit}"


def tools_unused(run: Run) -> Evidence:
    """See that tools were called once, and hardly are any more."""
    key = "train/environment/calls"
    calls = run.values(key)
    if len(calls) < 4 or max(calls) < 0.2 or run.end(key) > 0.1 * max(calls):
        return None
    return f"{key} is {run.end(key):.2g} at the end, and was {max(calls):.2g}"
