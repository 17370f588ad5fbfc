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
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from r1lit.evaluation.second_verdict import is_right
from r1lit.files import Record, read_existing
from r1lit.metrics.words import repeated_share

Evidence = str | None
"""What was seen, or None where the rule does not apply."""


class Run:
    """A run folder as the rules read it: settings by dotted key, and each metric's numbers.

    Raises:
        ValueError: if the folder has no metrics.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.metrics = read_existing(folder / "metrics.jsonl", "run")
        if not self.metrics:
            raise ValueError(f"run: {folder / 'metrics.jsonl'} has no iteration yet")

    @cached_property
    def config(self) -> dict[str, Any]:
        """The run's configuration; empty where there is none."""
        path = self.folder / "config.yaml"
        return (yaml.safe_load(path.read_text()) or {}) if path.exists() else {}

    @cached_property
    def responses(self) -> list[Record]:
        """Recorded responses of training, in order; evaluation's where there are none."""
        path = self.folder / "responses.jsonl"
        lines = read_existing(path, "run") if path.exists() else []
        return [line for line in lines if line.get("split") == "train"] or lines

    def setting(self, key: str, default: Any = None) -> Any:
        """Return a setting; ``model.`` and ``data.`` stand for their ``init_args``, and so on."""
        value = self._at(key)
        return default if value is None else value

    def class_of(self, key: str) -> str:
        """Return the name of the class at a key, without its module."""
        value = self._at(key)
        path = value.get("class_path", "") if isinstance(value, dict) else value or ""
        return str(path).rsplit(".", 1)[-1]

    def _at(self, key: str) -> Any:
        value: Any = self.config
        for part in key.split("."):
            value = value.get("init_args", value) if isinstance(value, dict) else None
            value = value.get(part) if isinstance(value, dict) else None
        return value

    def values(self, key: str) -> list[float]:
        """Return a metric's numbers, in the order of iterations."""
        found = (line.get(key) for line in self.metrics)
        return [float(value) for value in found if isinstance(value, int | float)]

    def mean(self, key: str, default: float = float("nan")) -> float:
        """Return a metric's mean over the run's iterations; NaN fails every comparison."""
        return statistics.fmean(self.values(key) or [default])

    @property
    def window(self) -> int:
        """Iterations of its start and of its end: a fifth each, two at least."""
        return max(2, len(self.metrics) // 5)

    def start(self, key: str) -> float:
        """Return a metric's mean over the start of the run."""
        return statistics.fmean(self.values(key)[: self.window] or [float("nan")])

    def end(self, key: str) -> float:
        """Return its mean over the end."""
        return statistics.fmean(self.values(key)[-self.window :] or [float("nan")])

    @cached_property
    def groups(self) -> list[list[Record]]:
        """Recorded responses of training by group: those to one problem in one iteration."""
        found: dict[Any, list[Record]] = defaultdict(list)
        for line in self.responses:
            if line.get("split") == "train":
                found[line.get("iteration"), line.get("uid")].append(line)
        return list(found.values())

    @property
    def num_rows(self) -> int:
        """Responses of an iteration."""
        keys = ("prompts_per_iteration", "group_size")
        return math.prod(int(self.setting(f"data.rollout.{key}", 0)) for key in keys)

    @property
    def window_rows(self) -> int:
        """Responses of the iterations of its start, or of its end."""
        return self.window * max(self.num_rows, 1)

    @property
    def num_updates(self) -> int:
        """Updates of an iteration."""
        minibatches = math.ceil(self.num_rows / self.setting("model.train_batch_size", 64))
        return minibatches * int(self.setting("model.num_inner_epochs", 1))

    def standard_error(self, key: str) -> float:
        """Return that of the change of a share from the start to the end, rows independent."""
        start = self.start(key)
        return math.sqrt(max(2 * start * (1 - start), 0.0) / self.window_rows)

    def moved(self, key: str) -> str:
        """Return its start and end in words."""
        return f"{key} went from {self.start(key):.3g} to {self.end(key):.3g}"


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


def sampling(run: Run) -> Evidence:
    """See rollouts that are nearly greedy, or nearly noise."""
    for key, default, low, high in (
        ("temperature", 1.0, 0.3, 1.5),
        ("top_p", 1.0, 0.5, 1.0),
        ("top_k", 0, 5, math.inf),
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
    if len(run.groups) < 12 or len(uids) > 4:
        return None
    return f"the {len(run.groups)} groups recorded are of {len(uids)} problems"


def no_mixed_groups(run: Run) -> Evidence:
    """See that hardly a group has right and wrong responses, or that their rewards are alike."""
    mixed, spread = run.mean("train/groups/mixed"), run.mean("train/reward_std")
    if spread < 1e-6:
        return f"train/reward_std is {spread:.3g} on average"
    return f"train/groups/mixed is {mixed:.3g} on average" if mixed < 0.1 else None


def too_hard(run: Run) -> Evidence:
    """See that nearly all groups are wrong, to the end."""
    wrong = run.end("train/groups/all_wrong")
    return f"{run.moved('train/groups/all_wrong')}" if wrong > 0.85 else None


def too_easy(run: Run) -> Evidence:
    """See that nearly all groups are right from the start."""
    right = run.start("train/groups/all_right")
    return f"train/groups/all_right is {right:.3g} at the start" if right > 0.8 else None


def rewards_of(run: Run) -> list[tuple[str, str, float]]:
    """Return each reward function's class, the name under which it is logged, and its weight."""
    found = []
    for reward in run.setting("model.rewards", []):
        path = reward if isinstance(reward, str) else reward["class_path"]
        options = {} if isinstance(reward, str) else reward.get("init_args") or {}
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
         "ConditionalReward", "Format", "SpecialTokenFormat", "LanguageConsistency")  # fmt: skip
"""Reward functions that a run may be for, or that a policy learns first."""


def format_alone(run: Run) -> Evidence:
    """See that the form earns nearly all, and the answer nearly nothing."""
    weights = weights_of(run)
    form, whole = sum(weights.get(name, 0.0) for name in FORMS), sum(map(abs, weights.values()))
    if form <= 0 or form < 0.8 * whole:
        return None
    return f"model.rewards gives format {form:g} of a whole weight of {whole:g}"


def never_earned(run: Run) -> Evidence:
    """See a reward that no response ever earns, or a punishment that every response gets."""
    bounds = {**dict.fromkeys(FORMS, 0.02), "overlong": -0.95, "cosine_length": -0.95}
    for name in weights_of(run).keys() & bounds.keys():
        values = run.values(f"train/reward/{name}")
        if len(values) >= 4 and max(values) <= bounds[name]:
            return f"train/reward/{name} is never above {max(values):.3g}"
    return None


def got_right(line: Record) -> bool:
    """Return whether a recorded response was judged right."""
    return bool(line.get("status") == "right")


def reward_hacked(run: Run) -> Evidence:
    """See a reward that rises by something else than right answers, or that they do not earn."""
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
        total = [sum(weights.get(k, 1.0) * v for k, v in x["rewards"].items()) for x in group]
        share, mean = statistics.fmean(map(got_right, group)), statistics.fmean(total)
        pairs += [(t - mean, got_right(x) - share) for t, x in zip(total, group, strict=True)]
    scale = math.sqrt(sum(t * t for t, _ in pairs) * sum(r * r for _, r in pairs))
    correlation = sum(t * r for t, r in pairs) / scale if scale else 0.0
    if correlation >= 0.5:
        return None
    seen = f"within {len(mixed)} mixed groups, reward and right answers correlate by"
    return f"{seen} {correlation:.2f} (0.5: a quarter of the variance)"


def kl_strong(run: Run) -> Evidence:
    """See a KL penalty ten times above the published ones."""
    for key in ("model.objective.beta", "model.kl_in_reward"):
        beta = float(run.setting(key, 0.0))
        if beta >= 0.5 and run.class_of("model").startswith(("GRPO", "PPO", "PRIME")):
            return f"{key} is {beta:g} (R1: 0.001; DeepSeekMath: 0.04)"
    return None


def mismatch(run: Run) -> Evidence:
    """See that the sampler's log-probs are not the trainer's at the same weights."""
    if run.setting("model.max_staleness", 0):
        return None
    for key, bound in (("mean_abs", 0.02), ("k3_kl", 0.01), ("share_outside", 0.01)):
        if seen := above(f"train/mismatch/{key}", bound)(run):
            key = "train/mismatch/mean_abs"
            grows = run.end(key) > 3 * run.values(key)[0]
            return f"{seen}; {run.moved(key)}: old weights sample" if grows else seen
    return None


def stale(run: Run) -> Evidence:
    """See stale rollouts without a correction, or with too few effective samples."""
    age = run.setting("model.max_staleness", 0)
    if not age:
        return None
    size = run.mean("train/mismatch/effective_sample_size")
    if size < 0.8:
        return f"train/mismatch/effective_sample_size is {size:.3g} (1: all tokens count alike)"
    kl = run.mean("train/mismatch/k3_kl")
    if kl > 0.01 and not run.setting("model.correction"):
        seen = f"model.max_staleness is {age} without a correction"
        return f"{seen}; train/mismatch/k3_kl is {kl:.2g}"
    return None


LEAST_STEP = 1e-8
"""Nat per token. A thousand steps of it in one direction move a policy by 0.01: KL grows with the
square of a distance."""


def still(run: Run) -> Evidence:
    """See weights that do not move: the policy stays at its rollout, or at its reference."""
    rate = statistics.median(run.values("train/learning_rate") or [1.0])
    if rate < 1e-8:
        return f"train/learning_rate is {rate:.2g} in half of the iterations"
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


def broken(run: Run) -> Evidence:
    """See accuracy or form that falls to less than half, by more than chance."""
    for key in (ACCURACY, "train/reward/format"):
        start, end = run.start(key), run.end(key)
        if start > 0.1 and end < 0.5 * start and start - end > 3 * run.standard_error(key):
            return f"{run.moved(key)}; train/approx_kl_old is {run.mean('train/approx_kl_old'):.2g}"
    return None


def collapse(run: Run) -> Evidence:
    """See entropy that falls to a tenth while problems remain unsolved."""
    key = "train/entropy"
    if run.end(key) < 0.1 * run.start(key) and not run.end(ACCURACY) > 0.9:
        return f"{run.moved(key)}, and {run.moved(ACCURACY)}"
    return None


def incoherent(run: Run) -> Evidence:
    """See entropy that rises to four times what it was."""
    key = "train/entropy"
    return run.moved(key) if run.end(key) > max(4 * run.start(key), 0.5) else None


def shorter(run: Run) -> Evidence:
    """See responses that shrink without becoming better."""
    key = "train/length/mean"
    better = run.end(ACCURACY) - run.start(ACCURACY)
    if run.end(key) < 0.5 * run.start(key) and better < 0.05:
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
    """See a divisor of Dr. GRPO that is not of the size of the responses' limit."""
    if run.class_of("model.objective") != "DrGRPO":
        return None
    limits = [run.setting("model.sampling.max_tokens", 512)]
    limits += (run.setting("model.max_tokens_from", {}) or {}).values()
    given = run.setting("model.objective.max_tokens")
    if given and not min(limits) / 4 <= given <= 4 * max(limits):
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

    A policy may learn to stay below a limit that is too low for it, so the start counts too.
    """
    key = "train/length/truncated"
    start, mean = run.start(key), run.mean(key)
    if not max(start, mean) > 0.2:
        return None
    limit = run.setting("model.sampling.max_tokens", 512)
    return f"{key} is {start:.3g} at the start, {mean:.3g} on average; the limit is {limit} tokens"


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
    """See responses in which verifiers find no answer, from the first recorded ones on."""
    first = run.responses[0].get("iteration") if run.responses else None
    early = [x.get("status") == "unparsed" for x in run.responses if x.get("iteration") == first]
    if not early or statistics.fmean(early) <= 0.5:
        return None
    share = statistics.fmean(early)
    return f"no answer was read in {share:.0%} of the {len(early)} responses first recorded"


def words_of(text: str) -> list[str]:
    """Return the words and signs of a text."""
    return re.findall(r"\w+|[^\w\s]", text.lower())


def repetition(run: Run) -> Evidence:
    """See responses that repeat themselves."""
    long = [line for line in run.responses if len(words_of(line["response"])) >= 20]
    last = long[-64:]
    if len(last) < 8:
        return None
    share = statistics.fmean(repeated_share(line["response"], 4) for line in last)
    if share < 0.4:
        return None
    return f"{share:.0%} of the four-word runs in the last {len(last)} long responses are repeats"


def disagreeing(run: Run, status: tuple[str, ...], second: bool) -> tuple[int, int]:
    """Count the recorded responses of a status, and those whose second verdict is ``second``."""
    given = [x for x in run.responses if x.get("status") in status and x.get("answer")]
    verdicts = [is_right(x["response"], str(x["answer"])) for x in given]
    return sum(verdict is second for verdict in verdicts), len(given)


def refused(run: Run) -> Evidence:
    """See answers that a second verifier finds right, and the run's does not."""
    num, whole = disagreeing(run, ("wrong", "unparsed"), True)
    if num < 3 or num < 0.05 * whole:
        return None
    return f"{num} of {whole} refused responses are right to a second verifier"


def wrong_and_paid(run: Run) -> Evidence:
    """See answers that a second verifier finds wrong, and the run's finds right."""
    num, whole = disagreeing(run, ("right",), False)
    if num < 3 or num < 0.05 * whole:
        return None
    return f"{num} of {whole} responses judged right have another value than the gold answer"


RULES = (
    Rule("verifier_timeout", above("train/verifier/timeout", 0.01),
         "the machine decides what is right: a time-out earns what a wrong answer earns",
         "raise timeout_s of the verifier in model.grader, or free a core"),
    Rule("verifier_error", above("train/verifier/error", 0.01),
         "verifiers crash or cannot decide, and that earns what a wrong answer earns",
         "read `reason` in responses.jsonl; model.grader, or the source's answers"),
    Rule("unread_answers", unread, "the verifier reads another form than the policy writes",
         "data.prompts.template or data.prompts.wording"),
    Rule("right_and_refused", refused, "right answers earn nothing",
         "model.grader, the source's verifier, or the form that data.prompts asks for"),
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
    Rule("mismatch", mismatch, "the rollout's log-probs are not the policy's: ratios are wrong",
         "model.engine's weights, temperature and precision; or a model.correction"),
    Rule("stale", stale, "rollouts are too old for these updates",
         "less model.max_staleness, a model.correction, or objective.off_policy_threshold"),
    Rule("learning_rate_low", still, "updates do not move the policy",
         "model.optimizer's lr and eps, model.lr_scheduler, model.max_grad_norm"),
    Rule("learning_rate_high", broken, "updates destroy what the policy could do",
         "lower model.optimizer's lr, or model.max_grad_norm"),
    Rule("far_from_rollout", above("train/approx_kl_old", 0.05),
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
