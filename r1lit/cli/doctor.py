"""``r1lit doctor``: faults of a training run, each with the evidence and the key to change.

    r1lit doctor runs/mine

It reads ``config.yaml``, ``metrics.jsonl`` and, where there is one, ``responses.jsonl`` of a run
folder. Each rule of ``RULES`` is a reading of docs/METRICS.md; a rule whose numbers a run does not
have stays silent. It exits with 1 if a rule applies, else with 0.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r1lit.cli.run_folder import Run
from r1lit.evaluation.second_verdict import is_right
from r1lit.files import Record
from r1lit.metrics.words import repeated_share
from r1lit.text.extract import extract_final

Evidence = str | None
"""What was seen, or None where the rule does not apply."""


@dataclass(frozen=True)
class Rule:
    """A fault's name, how it is seen, what it means, and what to change."""

    name: str
    see: Callable[[Run], Evidence]
    meaning: str
    change: str


def above(key: str, bound: float) -> Callable[[Run], Evidence]:
    """Return what sees that a metric's mean is above a bound."""

    def see(run: Run) -> Evidence:
        mean = run.mean(key)
        return f"{key} is {mean:.3g} on average (good: at most {bound:g})" if mean > bound else None

    return see


ACCURACY = "train/reward/accuracy"
TIME_OUT = r"tim(e|ed)[ -]?out|\bin time\b|out of time|too slow|gave up|took too long|overloaded"
"""How reasons name a verdict that did not come in time."""


def without_verdict(status: str, reasons: str) -> Callable[[Run], Evidence]:
    """Return what sees verdicts that do not come: by their status, or by the reason they give.

    A verifier of one's own may call a time-out or a crash of it a wrong answer.
    """

    def see(run: Run) -> Evidence:
        if seen := above(f"train/verifier/{status}", 0.01)(run):
            return seen
        found = [x for x in run.responses if re.search(reasons, str(x.get("reason") or ""), re.I)]
        if len(found) < max(2, 0.01 * len(run.responses)):
            return None
        seen = f"{len(found)} of {len(run.responses)} recorded responses have a reason such as"
        return f"{seen} {found[0]['reason'][:60]!r}, with status {found[0].get('status')}"

    return see


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
    """See groups whose responses are copies of each other while they are not all right."""
    groups = [g for g in run.groups if len(g) >= 4 and not all(map(got_right, g))]
    if len(groups) < 3:
        return None
    share = statistics.fmean(len({x["response"] for x in g}) / len(g) for g in groups)
    if share > 0.4:
        return None
    return f"{share:.0%} of a group's responses are distinct, in {len(groups)} groups not all right"


def few_problems(run: Run) -> Evidence:
    """See that all groups are of a handful of problems."""
    uids = {group[0].get("uid") for group in run.groups}
    if len(run.groups) < 12 or len(uids) > 8 or len(run.groups) < 2 * len(uids):
        return None
    return f"the {len(run.groups)} groups recorded are of {len(uids)} problems"


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
    """See that nearly all groups are wrong, to the end."""
    wrong = run.end("train/groups/all_wrong")
    return f"{run.moved('train/groups/all_wrong')}" if wrong > 0.85 else None


def too_easy(run: Run) -> Evidence:
    """See that nearly all groups are right from the start."""
    right = run.start("train/groups/all_right")
    return f"train/groups/all_right is {right:.3g} at the start" if right > 0.6 else None


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


def never_earned(run: Run) -> Evidence:
    """See a reward that no response ever earns, or a punishment that most responses get."""
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


def got_right(line: Record) -> bool:
    """Return whether a recorded response was judged right."""
    return bool(line.get("status") == "right")


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


def kl_strong(run: Run) -> Evidence:
    """See a KL penalty six times above the published ones."""
    if re.search("DPO|Distillation|SFT|Reward", run.class_of("model")):  # another beta
        return None
    for key in ("model.objective.beta", "model.kl_in_reward"):
        beta = float(run.setting(key, 0.0))
        if beta >= 0.25:
            return f"{key} is {beta:g} (R1: 0.001; DeepSeekMath: 0.04)"
    return None


def mismatch_bounds(run: Run) -> dict[str, float]:
    """Return how far the log-probs of the same weights may differ by rounding.

    An engine in this process computes with the trainer's own weights: in float32 nearly the same.
    """
    precision = str(run.setting("trainer.precision", ""))
    if not precision.startswith(("32", "64")):
        return {"mean_abs": 0.04, "k3_kl": 0.01, "share_outside": 0.01}
    if re.search("vllm|server|client", run.class_of("model.engine"), re.I):
        return {"mean_abs": 0.02, "k3_kl": 0.01, "share_outside": 0.01}
    return {"mean_abs": 1e-3, "k3_kl": 1e-3, "share_outside": 1e-3}


def is_corrected(run: Run) -> bool:
    """Return whether the run weighs, or leaves out, tokens whose sampler is not the policy."""
    masked = run.setting("model.objective.off_policy_threshold") is not None
    return masked or bool(run.setting("model.correction"))


def mismatch(run: Run) -> Evidence:
    """See that the sampler's log-probs are not the trainer's, or that older weights sampled."""
    key, values = "train/mismatch/mean_abs", run.values("train/mismatch/mean_abs")
    bounds = mismatch_bounds(run)
    if run.setting("model.max_staleness", 0):  # it is allowed from the second iteration on
        if values and values[0] > bounds["mean_abs"]:
            return f"{key} is {values[0]:.3g} at the first iteration, whose weights are not stale"
        old = None if is_corrected(run) else above(key, 0.02)(run)
        return old and f"{old}, by model.max_staleness without a correction"
    if len(values) >= 3 and max(values) > max(10 * min(values), 2e-3):
        moves = f"{key} is {min(values):.2g} in one iteration and {max(values):.2g} in another"
        return f"{moves}: old weights sample"
    slack = 5 if run.setting("model.correction") else 1
    seen = (above(f"train/mismatch/{name}", slack * bound)(run) for name, bound in bounds.items())
    return next(filter(None, seen), None)


def stale(run: Run) -> Evidence:
    """See stale rollouts without a correction, or with too few effective samples."""
    age = run.setting("model.max_staleness", 0)
    if not age:
        return None
    size = run.mean("train/mismatch/effective_sample_size")
    if size < 0.8:
        return f"train/mismatch/effective_sample_size is {size:.3g} (1: all tokens count alike)"
    kl = run.mean("train/mismatch/k3_kl")
    if not is_corrected(run) and (age >= 2 or kl > 0.01):
        seen = f"model.max_staleness is {age} without a correction"
        return f"{seen}; train/mismatch/k3_kl is {kl:.2g}"
    return None


LEAST_STEP = 1e-7
"""Nat per token. A hundred steps of it in one direction move a policy by 0.001: KL grows with the
square of a distance."""


def still(run: Run) -> Evidence:
    """See weights that do not move: the policy stays at its rollout, or at its reference."""
    rate = statistics.median(run.values("train/learning_rate") or [1.0])
    if rate < 1e-8:
        return f"train/learning_rate is {rate:.2g} in half of the iterations"
    given = run.setting("model.optimizer.lr", 0.0)
    if rate < 0.01 * given and "Cycl" not in run.class_of("model.lr_scheduler"):
        seen = f"train/learning_rate is at most {rate:.2g} in half of the iterations"
        return f"{seen}, model.optimizer.lr {given:.2g}: model.lr_scheduler is of another length"
    if run.mean("train/groups/mixed") <= 0.1 or len(run.metrics) < 4:
        return None
    away = run.values("train/kl_reference")
    if away and max(away) < 10 * LEAST_STEP:
        return f"train/kl_reference is at most {max(away):.2g}"
    moved, rounding = run.values("train/approx_kl_old"), run.mean("train/mismatch/k3_kl", 0.0)
    if run.setting("model.correction") or run.num_updates <= 1:  # no distance before an update
        return None
    if run.setting("model.max_staleness", 0):  # the mismatch is that of older weights then
        rounding = 0.0
    least = max(rounding / 2, LEAST_STEP)
    if moved and statistics.median(moved) < least:
        seen = f"train/approx_kl_old is {statistics.median(moved):.2g}"
        return f"{seen}; rounding, or too small a step to get anywhere, is {least:.2g}"
    return None


def not_a_number(run: Run) -> Evidence:
    """See a loss or gradient that stops being a number; files contain null then."""
    for key in ("train/loss", "train/grad_norm"):
        known = run.values(key)
        last = run.metrics[-1].get(key)
        if known and not (isinstance(last, int | float) and math.isfinite(last)):
            missing = len(run.metrics) - len(known)
            return f"{key} is not a number at the end, nor in {missing} iterations in all"
    return None


def broken(run: Run) -> Evidence:
    """See accuracy or form that falls, by more than chance, or what is sure to bring that about."""
    rate, kind = run.setting("model.optimizer.lr", 0.0), run.class_of("model.optimizer")
    if run.setting("model.optimizer.maximize"):
        return "model.optimizer.maximize is true: updates raise the loss"
    if rate >= 0.01 and "Adam" in kind and "Cycl" not in run.class_of("model.lr_scheduler"):
        return f"model.optimizer.lr is {rate:g} with {kind} (R1: 3e-6; the small world: 2e-4)"
    for key, share in ((ACCURACY, 0.5), ("train/reward/format", 0.67)):
        start, end = run.start(key), run.end(key)
        if start > 0.1 and end < share * start and start - end > 3 * run.standard_error(key):
            return f"{run.moved(key)}; train/approx_kl_old is {run.mean('train/approx_kl_old'):.2g}"
    return not_a_number(run)


def collapse(run: Run) -> Evidence:
    """See entropy that falls far while problems remain unsolved, or further than accuracy explains.

    Entropy falls in healthy runs too, as accuracy rises.
    """
    key, better = "train/entropy", run.end(ACCURACY) - run.start(ACCURACY)
    share = run.end(key) / max(run.start(key), 1e-9)
    if run.end(ACCURACY) > 0.9 or not share < (0.4 if better < 0.1 else 0.15):
        return None
    return f"{run.moved(key)}, and {run.moved(ACCURACY)}"


def incoherent(run: Run) -> Evidence:
    """See entropy that rises to more than twice what it was."""
    key = "train/entropy"
    return run.moved(key) if run.end(key) > max(2.5 * run.start(key), 0.5) else None


def far(run: Run) -> Evidence:
    """See updates that go far from their rollout, or more passes over it than published ones.

    The bound is PPO's usual one: 1.5 times a target of 0.01.
    """
    epochs = run.setting("model.num_inner_epochs", 1)
    if seen := above("train/approx_kl_old", 0.015)(run):
        return f"{seen}, with {run.num_updates} updates an iteration"
    return f"model.num_inner_epochs is {epochs} (published: 1 to 4)" if epochs >= 10 else None


def shorter(run: Run) -> Evidence:
    """See responses that shrink without becoming better."""
    key = "train/length/mean"
    better = run.end(ACCURACY) - run.start(ACCURACY)
    if run.end(key) < 0.6 * run.start(key) and better < 0.05:
        return f"{run.moved(key)}, and {run.moved(ACCURACY)}"
    return None


def padded(run: Run) -> Evidence:
    """See responses that grow without becoming better, as far as so many can show."""
    key = "train/length/mean"
    better = run.end(ACCURACY) - run.start(ACCURACY) + run.standard_error(ACCURACY)
    if run.end(key) > 1.5 * run.start(key) and better < 0.05:
        return f"{run.moved(key)}, and {run.moved(ACCURACY)}"
    return None


def divisor(run: Run) -> Evidence:
    """See a divisor of Dr. GRPO, or of one's own form of it, that is not the responses' limit."""
    limits = [run.setting("model.sampling.max_tokens", 512)]
    limits += (run.setting("model.max_tokens_from", {}) or {}).values()
    given = run.setting("model.objective.max_tokens")
    if given and not min(limits) / 1.25 <= given <= 1.25 * max(limits):
        return f"model.objective.max_tokens is {given}, and sampling.max_tokens {max(limits)}"
    return None


def small_groups(run: Run) -> Evidence:
    """See groups too small for a baseline."""
    size = run.setting("data.rollout.group_size", 16)
    if size >= 4 or run.class_of("model") == "PPOModule":
        return None
    return f"data.rollout.group_size is {size} (R1: 16)"


EPSILONS = ("epsilon", "epsilon_low", "epsilon_high")
TOKEN_RATIOS = ("GRPO", "DrGRPO", "DAPO", "PPO", "GMPO")
"""Objectives whose clip is of each token's ratio, published with 0.1 and more."""


def truncated(run: Run) -> Evidence:
    """See a limit that cuts a fifth of the responses, on average or when the run starts.

    A policy may learn to stay below a limit that is too low for it, so the start counts too. Or it
    grows up to a limit that becomes too low, or that the run lowers.
    """
    key = "train/length/truncated"
    start, mean, end = run.start(key), run.mean(key), run.end(key)
    if not (max(start, mean) > 0.2 or end > 0.5):
        return None
    limit = run.setting("model.sampling.max_tokens", 512)
    seen = f"{key} is {start:.3g} at the start, {mean:.3g} on average, {end:.3g} at the end"
    return f"{seen}; the limit is {limit} tokens"


def clip(run: Run) -> Evidence:
    """See a clip that takes much of the gradient, or a range in which no update fits.

    At an iteration's first update every ratio is 1, so the mean over k updates is scaled by
    k / (k - 1).
    """
    key, num = "train/clip_fraction", run.num_updates
    on_policy = not run.setting("model.max_staleness", 0)
    share = run.mean(key) * (num / (num - 1) if on_policy and num > 1 else 1.0)
    if share > 0.2:
        return f"{key} is {share:.3g} after an iteration's first update (good: at most 0.2)"
    for name in EPSILONS if run.class_of("model.objective") in TOKEN_RATIOS else ():
        epsilon = run.setting(f"model.objective.{name}", 0.2)
        if num > 1 and epsilon < 0.01:
            return f"model.objective.{name} is {epsilon:g} (published: 0.1 to 10)"
    return None


def critic(run: Run) -> Evidence:
    """See a critic that is worse than a constant to the end."""
    key = "train/explained_variance"
    return run.moved(key) if run.end(key) < 0 else None


def unread(run: Run) -> Evidence:
    """See responses in which verifiers find no answer, from the first recorded ones on.

    Half of all, or a quarter of those that the limit did not cut. Or a prompt that does not ask for
    the tags that are paid, and does not get them.
    """
    early = run.by_iteration[0] if run.responses else []
    whole = [x for x in early if x.get("finished", True)]
    for lines, bound, least in ((early, 0.5, 1), (whole, 0.25, 16)):
        share = statistics.fmean([x.get("status") == "unparsed" for x in lines] or [0.0])
        if share > bound and len(lines) >= least:
            seen = f"no answer was read in {share:.0%} of the {len(lines)} responses first recorded"
            return seen if lines is early else f"{seen} that ended by themselves"
    prompts = [x["prompt"] for x in run.trained_on if x.get("prompt")]
    opened = all(prompt.rstrip().endswith("<think>") for prompt in prompts)
    for reward in run.setting("model.rewards", []) if prompts else ():
        options = (reward.get("init_args") or {}) if isinstance(reward, dict) else {}
        if options.get("think_prefilled", opened) != opened:
            end = "end" if opened else "do not end"
            return f"prompts {end} in <think>, and think_prefilled is {not opened} in model.rewards"
    form = run.start("train/reward/format")
    if not form < 0.5 or not prompts or any("<answer>" in prompt for prompt in prompts):
        return None
    return f"no prompt asks for <answer>, and train/reward/format is {form:.3g} at the start"


def words_of(text: str) -> list[str]:
    """Return the words and signs of a text."""
    return re.findall(r"\w+|[^\w\s]", text.lower())


_ONE_WORD = re.compile(r"\b([^\W\d_]{2,})(?:\W+\1\b){4}", re.IGNORECASE)
"""A word five times running."""


def repetition(run: Run) -> Evidence:
    """See responses that repeat themselves, in any iteration recorded."""
    for lines in run.by_iteration:
        at = f"responses of iteration {lines[0].get('iteration')}"
        words = [found[1] for x in lines if (found := _ONE_WORD.search(x["response"]))]
        if len(words) >= max(2, 0.1 * len(lines)):
            return f"{len(words)} of {len(lines)} {at} say {words[0]!r} or the like five times over"
        long = [x["response"] for x in lines if len(words_of(x["response"])) >= 20]
        share = statistics.fmean([repeated_share(text, 4) for text in long] or [0.0])
        if len(long) >= 8 and share > 0.4:
            return f"{share:.0%} of the four-word runs in {len(long)} long {at} are repeats"
    return None


def disagreeing(run: Run, status: tuple[str, ...], second: bool) -> tuple[list[Record], int]:
    """Return recorded responses whose second verdict is ``second``, and how many have a status."""
    given = [x for x in run.responses if x.get("status") in status and x.get("answer")]
    found = [x for x in given if is_right(x["response"], str(x["answer"])) is second]
    return found, len(given)


def refused(run: Run) -> Evidence:
    """See right answers that earn nothing: by a second verifier's verdict, or by the run's own.

    An answer in its tags is rarely refused for its form, so a few such are enough.
    """
    found, whole = disagreeing(run, ("wrong", "unparsed"), True)
    marked = [x for x in found if extract_final(x["response"]) is not None]
    if len(found) >= max(3, 0.05 * whole) or len(marked) >= max(2, 0.01 * whole):
        seen = f"{len(found)} of {whole} refused responses are right to a second verifier"
        return f"{seen}, {len(marked)} of them in the tags or box of an answer"
    right = [x for x in run.trained_on if got_right(x) and "accuracy" in (x.get("rewards") or {})]
    free = [x for x in right if not x["rewards"]["accuracy"]]
    if len(free) < max(3, 0.05 * len(right)):
        return None
    return f"the reward accuracy is 0 for {len(free)} of {len(right)} responses judged right"


def wrong_and_paid(run: Run) -> Evidence:
    """See answers that a second verifier finds wrong, and the run's finds right."""
    found, whole = disagreeing(run, ("right",), False)
    if len(found) < max(2, 0.02 * whole):
        return None
    return f"{len(found)} of {whole} responses judged right have another value than the gold answer"


RULES = (
    Rule("verifier_timeout", without_verdict("timeout", TIME_OUT),
         "the machine decides what is right: a time-out earns what a wrong answer earns",
         "raise timeout_s of the verifier in model.grader, or free a core"),
    Rule("verifier_error", without_verdict("error", "traceback|crashed"),
         "verifiers crash or cannot decide, and that earns what a wrong answer earns",
         "read `reason` in responses.jsonl; model.grader, or the source's answers"),
    Rule("unread_answers", unread, "the verifier reads another form than the policy writes",
         "data.prompts.template or data.prompts.wording"),
    Rule("right_and_refused", refused, "right answers earn nothing",
         "model.grader, the source's verifier, what model.rewards pays, or data.prompts"),
    Rule("wrong_and_paid", wrong_and_paid, "wrong answers earn what right ones earn",
         "model.grader, or the source's verifier"),
    Rule("groups_left_out", above("train/num_groups_left_out", 0.5),
         "verdicts do not come, and their groups are not trained on",
         "the service or sandbox behind model.grader; its timeout_s"),
    Rule("truncated", truncated,
         "responses end before their answer", "raise model.sampling.max_tokens"),
    Rule("temperature", sampling, "rollouts are nearly greedy, or nearly noise",
         "model.sampling: temperature 1.0, top_p 1.0, top_k 0"),
    Rule("copies", copies, "the responses of a group are alike, so nothing is compared",
         "model.sampling, or the seeds of model.engine"),
    Rule("few_problems", few_problems, "the policy learns a few answers by heart",
         "more problems in data.train"),
    Rule("too_hard", too_hard, "no problem is solved, or the gold answers are wrong",
         "easier problems in data.train, or check their answers"),
    Rule("too_easy", too_easy, "all is solved before training", "harder problems in data.train"),
    Rule("no_mixed_groups", no_mixed_groups, "no advantages: nothing is learnt",
         "problems of another difficulty in data.train, or a larger data.rollout.group_size"),
    Rule("small_groups", small_groups, "the baseline of a group is mostly noise",
         "data.rollout.group_size: 8 or more"),
    Rule("format_alone", format_alone, "the form is learnt and the answer is not",
         "model.rewards: r1lit.rewards.Accuracy with the weight of Format at least"),
    Rule("reward_hacked", reward_hacked, "the reward is earned without right answers",
         "model.rewards: raise the weight of Accuracy, lower that of what is earned instead"),
    Rule("never_earned", never_earned, "a reward is the same for all, so nothing is learnt from it",
         "that reward's arguments in model.rewards, or data.prompts.template"),
    Rule("kl_strong", kl_strong, "the penalty holds the policy at the reference",
         "model.objective.beta: 0.001 to 0.04; model.kl_in_reward likewise"),
    Rule("stale", stale, "rollouts are too old for these updates",
         "less model.max_staleness, a model.correction, or objective.off_policy_threshold"),
    Rule("mismatch", mismatch, "the rollout's log-probs are not the policy's: ratios are wrong",
         "model.engine's weights, temperature and precision; or a model.correction"),
    Rule("learning_rate_low", still, "updates do not move the policy",
         "model.optimizer's lr and eps, model.lr_scheduler, model.max_grad_norm"),
    Rule("learning_rate_high", broken, "updates destroy what the policy could do",
         "lower model.optimizer's lr, or model.max_grad_norm"),
    Rule("far_from_rollout", far,
         "the updates of an iteration run away from its rollout",
         "fewer model.num_inner_epochs, a larger train_batch_size, or a lower lr"),
    Rule("off_policy", above("train/off_policy", 0.2),
         "off-policy masking leaves much of what was sampled out",
         "less model.max_staleness, fewer updates an iteration, or a lower lr"),
    Rule("clip", clip, "the clip drops much of the gradient",
         "a wider model.objective.epsilon, fewer updates an iteration, or a lower lr"),
    Rule("entropy_collapse", collapse, "the policy has stopped exploring",
         "a lower lr, model.objective.epsilon_high, or objective KLCov"),
    Rule("incoherent", incoherent, "the policy falls apart",
         "a lower lr, or model.objective.beta above 0"),
    Rule("critic", critic, "the values are worse than a constant: advantages are noise",
         "model.critic_warmup, or the critic's lr"),
    Rule("divisor", divisor, "Dr. GRPO's constant scales the gradient by limit / divisor",
         "model.objective.max_tokens: that of model.sampling"),
    Rule("shorter", shorter, "the policy gives up sooner, and is not right more often",
         "objective DrGRPO; or a smaller weight of Format relative to Accuracy"),
    Rule("padded", padded, "responses grow by padding or repetition",
         "r1lit.rewards.Repetition, or what pays for length"),
    Rule("repetition", repetition, "responses run in circles", "r1lit.rewards.Repetition"),
)  # fmt: skip
"""What may be wrong, causes before what they bring about."""


def findings(run: Run) -> list[tuple[Rule, str]]:
    """Return the rules that apply to a run, each with its evidence."""
    seen = ((rule, rule.see(run)) for rule in RULES)
    return [(rule, evidence) for rule, evidence in seen if evidence is not None]


def main(args: Sequence[str] | None = None) -> int:
    """Print the findings of a run; return 1 if there are any."""
    parser = argparse.ArgumentParser(prog="r1lit doctor", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("run", type=Path, help="a run folder of r1lit fit")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(args)
    run = Run(options.run)
    found = findings(run)
    if options.json:
        rows = [{"rule": r.name, "evidence": e, "meaning": r.meaning, "change": r.change}
                for r, e in found]  # fmt: skip
        print(json.dumps({"run": str(options.run), "findings": rows}, indent=1))
        return int(bool(found))
    print(f"{options.run}: {len(run.metrics)} iterations, {len(run.responses)} recorded responses")
    for rule, evidence in found:
        print(f"\n{rule.name}: {rule.meaning}\n  seen    {evidence}\n  change  {rule.change}")
    if not found:
        print(f"no rule of {len(RULES)} applies")
    return int(bool(found))
