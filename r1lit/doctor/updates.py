"""Updates that move nothing, too far, or the wrong way."""

from __future__ import annotations

import math
import statistics

from r1lit.doctor import settings
from r1lit.doctor.rule import ACCURACY, Evidence, above
from r1lit.doctor.run import Run


def kl_strong(run: Run) -> Evidence:
    """See a KL penalty six times above the published ones."""
    for key, beta in settings.kl_weights(run):
        if beta >= 0.25:
            return f"{key} is {beta:g} (R1: 0.001; DeepSeekMath: 0.04)"
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
    if settings.correction(run) or run.num_updates <= 1:  # no distance before an update
        return None
    if settings.max_staleness(run)[1]:  # the mismatch is that of older weights then
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
        falls = start > 0.1 and end < share * start and start - end > 3 * run.standard_error(key)
        if falls and wrong_way(run) is None:
            seen = f"{run.moved(key)}; train/approx_kl_old is"
            return f"{seen} {run.mean('train/approx_kl_old'):.2g}"
    away = statistics.median(run.values("train/kl_reference") or [0.0])
    if away > 3:
        return f"train/kl_reference is above {away:.2g} nats a token in half of the iterations"
    return not_a_number(run)


def far(run: Run) -> Evidence:
    """See updates that go far from their rollout, or more passes over it than published ones.

    The bound is PPO's usual one: 1.5 times a target of 0.01.
    """
    epochs = run.setting("model.num_inner_epochs", 1)
    if seen := above("train/approx_kl_old", 0.015)(run):
        return f"{seen}, with {run.num_updates} updates an iteration"
    return f"model.num_inner_epochs is {epochs} (published: 1 to 4)" if epochs >= 10 else None


def divisor(run: Run) -> Evidence:
    """See a divisor of Dr. GRPO, or of one's own form of it, that is not the responses' limit."""
    limits = [run.setting("model.sampling.max_tokens", 512)]
    limits += (run.setting("model.max_tokens_from", {}) or {}).values()
    given = run.setting("model.objective.max_tokens")
    if given and not min(limits) / 1.25 <= given <= 1.25 * max(limits):
        return f"model.objective.max_tokens is {given}, and sampling.max_tokens {max(limits)}"
    return None


EPSILONS = ("epsilon", "epsilon_low", "epsilon_high")


def clip(run: Run) -> Evidence:
    """See a clip that takes much of the gradient, or a range in which no update fits.

    At an iteration's first update every ratio is 1, so the mean over k updates is scaled by
    k / (k - 1).
    """
    key, num = "train/clip_fraction", run.num_updates
    if settings.ratio_of_response(run):  # it clips whole responses, healthy runs two thirds of them
        return None
    on_policy = not settings.max_staleness(run)[1]
    share = run.mean(key) * (num / (num - 1) if on_policy and num > 1 else 1.0)
    if share > 0.2:
        return f"{key} is {share:.3g} after an iteration's first update (good: at most 0.2)"
    for name in EPSILONS if settings.ratio_of_token(run) else ():
        epsilon = run.setting(f"model.objective.{name}", 0.2)
        if num > 1 and epsilon < 0.01:
            return f"model.objective.{name} is {epsilon:g} (published: 0.1 to 10)"
    return None


def critic(run: Run) -> Evidence:
    """See a critic that is worse than a constant to the end."""
    key = "train/explained_variance"
    return run.moved(key) if run.end(key) < 0 else None


def clipped(run: Run) -> Evidence:
    """See gradients of which clipping leaves less than a thousandth.

    Adam's steps do not depend on the gradient's scale until it comes near ``eps``: a healthy run of
    ``GRPOSequence`` keeps 0.005 of its gradients.
    """
    norms = run.values("train/grad_norm")
    bound = run.setting("model.max_grad_norm", 1.0 if run.config else 0.0)
    if not norms or not 0 < bound < 1e-3 * statistics.median(norms):
        return None
    seen = f"train/grad_norm is {statistics.median(norms):.2g}, and model.max_grad_norm {bound:g}"
    return f"{seen}: {bound / statistics.median(norms):.2g} of each gradient is left"


def frozen(run: Run) -> Evidence:
    """See matrices that training is meant to move, and that are as they were at the start.

    While a critic learns alone, the policy has no update, and its distance is not logged.
    """
    updated = [
        row["iteration"] for row in run.metrics if row.get("train/approx_kl_old") is not None
    ]
    if not run.measured or not updated or updated[0] > run.measured[-1]["iteration"]:
        return None
    last = run.measured[-1]
    moved, whole = last["num_matrices_moved"], last["num_matrices"]
    if moved >= 0.5 * whole:
        return None
    seen = f"{moved} of {whole} matrices have moved by iteration {last['iteration']}"
    return f"{seen}, and {last['num_others_moved']} of {last['num_others']} norms and biases"


def wrong_way(run: Run) -> Evidence:
    """See updates that lower the log-probs of what earned more, in two of three iterations.

    Chance correlates N tokens by some 1 / sqrt(N); three times that is asked for.
    """
    lines = [line for line in run.measured if line.get("gain") is not None]
    gains = [line["gain"] for line in lines]
    against = sum(gain < 0 for gain in gains)
    if len(gains) < 3 or against < len(gains) * 2 / 3:
        return None
    by_chance = 3 / math.sqrt(sum(line["num_tokens"] for line in lines))
    if statistics.fmean(gains) > -max(0.03, by_chance):
        return None
    seen = f"in {against} of {len(gains)} iterations measured, updates lowered the log-probs of"
    return f"{seen} responses with a positive advantage (correlation {statistics.fmean(gains):.2f})"


COUPLED = ("Adam", "NAdam", "RAdam", "Adamax", "Adagrad", "RMSprop", "SGD", "ASGD")
"""PyTorch's optimizers that add the decay to the gradient, unless they are told to decouple it."""


def weight_decay(run: Run) -> Evidence:
    """See a decay that takes more than a ten-thousandth of each weight at an update.

    That is 10 % in a thousand updates. Published: a rate of 1e-6 with a decay of 0.1. Where it is
    not decoupled, see one that outweighs the gradient.
    """
    rate = max(run.values("train/learning_rate") or [run.setting("model.optimizer.lr", 0.0)])
    decay, kind = run.setting("model.optimizer.weight_decay", 0.0), run.class_of("model.optimizer")
    decoupled = "W" in kind or run.setting("model.optimizer.decoupled_weight_decay", False)
    if not decoupled:  # it is a part of the gradient
        norm = max(run.measured_numbers("weight_norm"), default=0.0)
        pull, gradient = decay * norm, run.mean("train/grad_norm")
        if kind in COUPLED and pull > gradient:
            seen = f"model.optimizer.weight_decay {decay:g} with {kind} adds {pull:.2g} of norm"
            return f"{seen} to gradients of {gradient:.2g}"
        if decay >= 1:
            return f"model.optimizer.weight_decay is {decay:g} with {kind}"
    if rate * decay <= 1e-4:
        return None
    seen = f"model.optimizer.weight_decay {decay:g} at a rate of {rate:.2g}"
    return f"{seen} takes {rate * decay:.2%} of every weight at each update"


def entropy_bonus(run: Run) -> Evidence:
    """See a bonus for entropy five times above the published ones."""
    key, weight = settings.entropy_bonus(run)
    weight = run.mean("train/entropy_weight", weight)
    if weight < 0.05:
        return None
    return f"{key} is {weight:g} (published: 0.001 to 0.01); {run.moved('train/entropy')}"


def adapter_rate(run: Run) -> Evidence:
    """See an adapter at a rate for whole models, or far above its own.

    An adapter takes some ten times the rate of all weights (docs/LORA.md).
    """
    if run.adapter_config is None:
        return None
    rate = max(run.values("train/learning_rate") or [math.nan])
    seen = f"train/learning_rate is {rate:.2g} for an adapter (docs/LORA.md: ten times a model's)"
    if rate > 5e-3:
        return seen
    moved = run.values("train/kl_reference") or run.values("train/approx_kl_old") or [math.nan]
    if rate < 1e-5 and max(moved) < 1e-4:
        return f"{seen}; the policy has moved by {max(moved):.2g} at most"
    return None
