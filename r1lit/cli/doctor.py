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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

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

    def start(self, key: str) -> float:
        """Return its mean over the first fifth of the run, of two iterations at least."""
        values = self.values(key)
        return statistics.fmean(values[: max(2, len(values) // 5)] or [float("nan")])

    def end(self, key: str) -> float:
        """Return its mean over the last fifth."""
        values = self.values(key)
        return statistics.fmean(values[-max(2, len(values) // 5) :] or [float("nan")])

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


def cold(run: Run) -> Evidence:
    """See rollouts that are nearly greedy."""
    temperature = run.setting("model.sampling.temperature", 1.0)
    return f"model.sampling.temperature is {temperature}" if temperature < 0.3 else None


def no_mixed_groups(run: Run) -> Evidence:
    """See that hardly a group has right and wrong responses, all run long."""
    mixed = run.mean("train/groups/mixed")
    return f"train/groups/mixed is {mixed:.3g} on average" if mixed < 0.1 else None


def too_hard(run: Run) -> Evidence:
    """See that nearly all groups are wrong, to the end."""
    wrong = run.end("train/groups/all_wrong")
    return f"{run.moved('train/groups/all_wrong')}" if wrong > 0.85 else None


def too_easy(run: Run) -> Evidence:
    """See that nearly all groups are right from the start."""
    right = run.start("train/groups/all_right")
    return f"train/groups/all_right is {right:.3g} at the start" if right > 0.8 else None


def rewards_of(run: Run) -> dict[str, float]:
    """Return the weight of each reward function by its class's name."""
    given = run.setting("model.rewards", [])
    pairs = [(r, {}) if isinstance(r, str) else (r["class_path"], r.get("init_args") or {})
             for r in given]  # fmt: skip
    return {path.rsplit(".", 1)[-1]: float(a.get("weight", 1.0)) for path, a in pairs}


def format_alone(run: Run) -> Evidence:
    """See that the form earns nearly all, and the answer nearly nothing."""
    weights = {name.lower(): weight for name, weight in rewards_of(run).items()}
    form, whole = weights.get("format", 0.0), sum(map(abs, weights.values()))
    if form <= 0 or form < 0.8 * whole:
        return None
    return f"model.rewards gives format {form:g} of a whole weight of {whole:g}"


def reward_hacked(run: Run) -> Evidence:
    """See a reward that rises while accuracy does not, or that right responses do not earn."""
    reward, accuracy = (run.end(k) - run.start(k) for k in ("train/reward", ACCURACY))
    spread = run.mean("train/reward_std")
    if reward > max(spread, 0.2) and accuracy < 0.05 * reward:
        return f"{run.moved('train/reward')}, while {run.moved(ACCURACY)}"
    return None


def kl_strong(run: Run) -> Evidence:
    """See a KL penalty far above every published one."""
    beta = float(run.setting("model.objective.beta", 0.0))
    if beta < 1:
        return None
    return f"model.objective.beta is {beta:g} (R1: 0.001; DeepSeekMath: 0.04)"


def mismatch(run: Run) -> Evidence:
    """See that the sampler's log-probs are not the trainer's at the same weights."""
    if run.setting("model.max_staleness", 0):
        return None
    return above("train/mismatch/mean_abs", 0.02)(run)


def stale(run: Run) -> Evidence:
    """See stale rollouts without a correction, or with too few effective samples."""
    size = run.mean("train/mismatch/effective_sample_size")
    if not run.setting("model.max_staleness", 0) or not size < 0.8:
        return None
    return f"train/mismatch/effective_sample_size is {size:.3g} (1: all tokens count alike)"


def still(run: Run) -> Evidence:
    """See weights that do not move: the policy stays at its rollout to the rounding."""
    moved, rounding = run.values("train/approx_kl_old"), run.mean("train/mismatch/k3_kl", 0.0)
    rate = statistics.median(run.values("train/learning_rate") or [1.0])
    if rate < 1e-8:
        return f"train/learning_rate is {rate:.2g} in half of the iterations"
    rows = [run.setting(f"data.rollout.{k}", 0) for k in ("prompts_per_iteration", "group_size")]
    epochs = run.setting("model.num_inner_epochs", 1)
    is_one_update = math.prod(rows) * epochs <= run.setting("model.train_batch_size", 64)
    if run.setting("model.correction") or is_one_update:  # before an update there is no distance
        return None
    if run.mean("train/groups/mixed") > 0.1 and moved and statistics.median(moved) < rounding / 2:
        seen = f"train/approx_kl_old is {statistics.median(moved):.2g}"
        return f"{seen}, and rounding alone makes {rounding:.2g}"
    return None


def broken(run: Run) -> Evidence:
    """See accuracy or form that falls to less than half."""
    for key in (ACCURACY, "train/reward/format"):
        if run.start(key) > 0.1 and run.end(key) < 0.5 * run.start(key):
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
    """See responses that grow without becoming better."""
    key = "train/length/mean"
    better = run.end(ACCURACY) - run.start(ACCURACY)
    if run.end(key) > 1.5 * run.start(key) and better < 0.02:
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


def plain_answer(text: str) -> str:
    """Return an answer without spaces, signs of multiplication alike, and a gold after ``=``."""
    text = re.sub(r"\\(?:boxed|text|mathrm|left|right)|[{}$\s,]", "", text)
    return text.replace("×", "*").replace("\\times", "*").rstrip(".").lower()


def refused(run: Run) -> Evidence:
    r"""See responses that hold the gold answer where an answer stands, and are not right.

    This second verifier knows no mathematics: it looks for the gold answer, to the character but
    for spaces, in ``<answer>``, in ``\boxed{}`` or at the end.
    """
    wrong = [x for x in run.responses if x.get("status") in ("wrong", "unparsed") and x["answer"]]
    equal = []
    for line in wrong:
        text, gold = line["response"], plain_answer(str(line["answer"]))
        ends = re.findall(r"<answer>(.*?)</answer>|\\boxed\{([^{}]*)\}", text, re.DOTALL)
        last = "".join(ends[-1]) if ends else text.strip().splitlines()[-1] if text.strip() else ""
        equal.append(plain_answer(last) == gold)
    if sum(equal) < 3 or statistics.fmean(equal) < 0.05:
        return None
    return f"{sum(equal)} of {len(equal)} refused responses hold the gold answer as theirs"


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
    Rule("truncated", above("train/length/truncated", 0.2),
         "responses end before their answer", "raise model.sampling.max_tokens"),
    Rule("temperature", cold, "the responses of a group are alike, so nothing is compared",
         "model.sampling.temperature: 1.0"),
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
         "model.rewards: lower the weight of what rises"),
    Rule("kl_strong", kl_strong, "the penalty holds the policy at the reference",
         "model.objective.beta: 0.001 to 0.04"),
    Rule("mismatch", mismatch, "the rollout's log-probs are not the policy's: ratios are wrong",
         "model.engine's weights, temperature and precision; or a model.correction"),
    Rule("stale", stale, "rollouts are too old for these updates",
         "less model.max_staleness, a model.correction, or objective.off_policy_threshold"),
    Rule("learning_rate_low", still, "updates do not move the policy",
         "raise model.optimizer's lr, or lengthen model.lr_scheduler"),
    Rule("learning_rate_high", broken, "updates destroy what the policy could do",
         "lower model.optimizer's lr, or model.max_grad_norm"),
    Rule("far_from_rollout", above("train/approx_kl_old", 0.05),
         "the updates of an iteration run away from its rollout",
         "fewer model.num_inner_epochs, a larger train_batch_size, or a lower lr"),
    Rule("clip", above("train/clip_fraction", 0.2), "the clip drops much of the gradient",
         "a wider model.objective.epsilon, fewer updates an iteration, or a lower lr"),
    Rule("entropy_collapse", collapse, "the policy has stopped exploring",
         "a lower lr, model.objective.epsilon_high, or objective KLCov"),
    Rule("incoherent", incoherent, "the policy falls apart",
         "a lower lr, or model.objective.beta above 0"),
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
