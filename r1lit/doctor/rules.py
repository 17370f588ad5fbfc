"""The table of rules, and what they find in a run."""

from __future__ import annotations

from dataclasses import dataclass

from r1lit.doctor.groups import (
    copies,
    evaluation_sampling,
    few_problems,
    no_mixed_groups,
    sampling,
    small_groups,
    too_easy,
    too_hard,
    tools_unused,
    truncated,
)
from r1lit.doctor.machine import memory_grows
from r1lit.doctor.rewards import format_alone, never_earned, reward_hacked
from r1lit.doctor.rule import Rule, above
from r1lit.doctor.run import Run
from r1lit.doctor.samplers import mismatch, stale
from r1lit.doctor.texts import (
    collapse,
    goes_in_circles,
    incoherent,
    is_one_sign,
    one_sign,
    padded,
    repetition,
    shorter,
)
from r1lit.doctor.trend import apart_at_once, flat
from r1lit.doctor.updates import (
    adapter_rate,
    broken,
    clip,
    clipped,
    critic,
    divisor,
    entropy_bonus,
    far,
    frozen,
    kl_strong,
    still,
    weight_decay,
    wrong_way,
)
from r1lit.doctor.verdicts import (
    TIME_OUT,
    has_no_answer,
    is_refused,
    is_wrong_and_paid,
    refused,
    status_is,
    unread,
    without_verdict,
    wrong_and_paid,
)
from r1lit.files import Record

RULES = (
    Rule("verifier_timeout", without_verdict("timeout", TIME_OUT),
         "the machine decides what is right: a time-out earns what a wrong answer earns",
         "raise timeout_s of the verifier in model.grader, or free a core",
         "The reward depends on how busy the machine is.", status_is("timeout")),
    Rule("verifier_error", without_verdict("error", "traceback|crashed"),
         "verifiers crash or cannot decide, and that earns what a wrong answer earns",
         "read `reason` in responses.jsonl; model.grader, or the source's answers",
         "Good answers earn nothing, and their status is error.", status_is("error")),
    Rule("unread_answers", unread, "the verifier reads another form than the policy writes",
         "data.prompts.template or data.prompts.wording",
         "Responses look sensible, and accuracy is near 0 from the start.", has_no_answer),
    Rule("right_and_refused", refused, "right answers earn nothing",
         "model.grader, the source's verifier, what model.rewards pays, or data.prompts",
         "Some right answers have status wrong.", is_refused),
    Rule("wrong_and_paid", wrong_and_paid, "wrong answers earn what right ones earn",
         "model.grader, or the source's verifier",
         "Accuracy is high, and answers that you read are wrong.", is_wrong_and_paid),
    Rule("groups_left_out", above("train/num_groups_left_out", 0.5),
         "verdicts do not come, and their groups are not trained on",
         "the service or sandbox behind model.grader; its timeout_s",
         "Iterations train on fewer responses than were sampled."),
    Rule("temperature", sampling, "rollouts are nearly greedy, or nearly noise",
         "model.sampling: temperature 1.0, top_p 1.0, top_k 0",
         "All responses to a problem are alike, or none makes sense."),
    Rule("evaluation_sampling", evaluation_sampling,
         "evaluation and training measure different things",
         "model.validation_sampling: temperature 0.6 to 1.0, max_tokens of model.sampling at least",
         "Held-out accuracy and training accuracy disagree."),
    Rule("one_sign", one_sign, "the weights or logits are broken: the same token always wins",
         "trainer.precision (float16 overflows), model.optimizer.lr, or the engine's weights",
         'Responses are "!!!!!!!!" or another sign without end.', is_one_sign),
    Rule("clipped_gradients", clipped, "clipping leaves next to nothing of each gradient",
         "model.max_grad_norm: near the median of train/grad_norm, or 1.0",
         "Rewards differ within groups, and the policy does not move."),
    Rule("frozen", frozen, "most of the model is not trained",
         "model.optimizer gets parameters that need no gradient, or a filter of one's own leaves"
         " them out", "The loss is finite, and accuracy stays where it was."),
    Rule("adapter_rate", adapter_rate, "an adapter is trained at another model's rate",
         "model.optimizer.lr: some ten times that of all weights, 1e-5 to 1e-3",
         "A run with LoRA does nothing, or breaks, at a rate that was right before."),
    Rule("weight_decay", weight_decay, "weights shrink faster than they learn",
         "model.optimizer.weight_decay: 0 to 0.1",
         "Form and accuracy fade from the start, without a jump."),
    Rule("entropy_bonus", entropy_bonus, "the bonus pays for noise, more than rewards for answers",
         "the bonus' weight: 0.001 to 0.01, or a target",
         "Entropy rises without end, and responses become noise."),
    Rule("wrong_way", wrong_way, "updates go the wrong way: what earns less becomes more likely",
         "the sign of the loss or of the advantages in an objective of one's own",
         "The reward falls steadily, by small steps."),
    Rule("truncated", truncated,
         "responses end before their answer", "raise model.sampling.max_tokens",
         "Many responses stop in the middle of a sentence.",
         lambda line: line.get("finished") is False),
    Rule("copies", copies, "the responses of a group are alike, so nothing is compared",
         "model.sampling, or the seeds of model.engine",
         "The responses to a problem are the same text."),
    Rule("few_problems", few_problems, "the policy learns a few answers by heart",
         "more problems in data.train",
         "Training accuracy rises fast, held-out accuracy does not."),
    Rule("too_hard", too_hard, "no problem is solved, or the gold answers are wrong",
         "easier problems in data.train, or check their answers",
         "Accuracy stays near 0 to the end."),
    Rule("too_easy", too_easy, "all is solved before training", "harder problems in data.train",
         "Accuracy is near 1 from the start."),
    Rule("no_mixed_groups", no_mixed_groups, "no advantages: nothing is learnt",
         "problems of another difficulty in data.train, or a larger data.rollout.group_size",
         "The loss is 0 in most iterations."),
    Rule("small_groups", small_groups, "the baseline of a group is mostly noise",
         "data.rollout.group_size: 8 or more",
         "The curve is noise around a flat line."),
    Rule("tools_unused", tools_unused, "the policy has stopped calling tools",
         "first see train/environment/invalid; then data.prompts, or a reward for calls that work",
         "Tool calls disappear as training goes on."),
    Rule("format_alone", format_alone, "the form is learnt and the answer is not",
         "model.rewards: r1lit.rewards.Accuracy with the weight of Format at least",
         "The reward rises at once and then stays where it is."),
    Rule("reward_hacked", reward_hacked, "the reward is earned without right answers",
         "model.rewards: raise the weight of Accuracy, lower that of what is earned instead",
         "The reward rises and accuracy does not."),
    Rule("never_earned", never_earned, "a reward is the same for all, so nothing is learnt from it",
         "compare a response with what the reward looks for; then that reward's arguments in"
         " model.rewards, or data.prompts.template",
         "One of the rewards is 0 in every iteration."),
    Rule("kl_strong", kl_strong, "the penalty holds the policy at the reference",
         "model.objective.beta: 0.001 to 0.04; the beta of r1lit.steps.KLInReward likewise",
         "Everything looks normal, and the policy hardly changes."),
    Rule("stale", stale, "rollouts are too old for these updates",
         "less model.collector.max_staleness, the step r1lit.steps.Correction, or"
         " model.objective.off_policy_threshold",
         "An asynchronous run learns less than a synchronous one."),
    Rule("mismatch", mismatch, "the rollout's log-probs are not the policy's: ratios are wrong",
         "model.engine's weights, temperature and precision; or the step r1lit.steps.Correction",
         "A run learns for a while and then collapses, or never learns."),
    Rule("learning_rate_low", still, "updates do not move the policy",
         "model.optimizer's lr and eps, model.lr_scheduler, model.max_grad_norm",
         "Every number is flat."),
    Rule("learning_rate_high", broken, "updates destroy what the policy could do",
         "lower model.optimizer's lr, or model.max_grad_norm",
         "The reward falls within a few iterations."),
    Rule("apart_at_once", apart_at_once, "the policy is not near its reference when it starts",
         "the reference's weights and precision; or a lower model.optimizer.lr, with a warm-up",
         "The KL to the reference is large in the first iterations."),
    Rule("far_from_rollout", far,
         "the updates of an iteration run away from its rollout",
         "fewer model.num_inner_epochs, a larger train_batch_size, or a lower lr",
         "The reward jumps up and down."),
    Rule("off_policy", above("train/off_policy", 0.2),
         "off-policy masking leaves much of what was sampled out",
         "less model.collector.max_staleness, fewer updates an iteration, or a lower lr",
         "A masked, asynchronous run learns slowly."),
    Rule("clip", clip, "the clip drops much of the gradient",
         "a wider model.objective.epsilon, fewer updates an iteration, or a lower lr",
         "More updates an iteration do not help."),
    Rule("entropy_collapse", collapse, "the policy has stopped exploring",
         "a lower lr, model.objective.epsilon_high, or objective KLCov",
         "Accuracy stops rising, and responses become alike."),
    Rule("incoherent", incoherent, "the policy falls apart",
         "a lower lr, or model.objective.beta above 0",
         "Responses lose their language."),
    Rule("critic", critic, "the values are worse than a constant: advantages are noise",
         "warmup, or the optimizer's lr, of the step r1lit.steps.Critic",
         "PPO learns less than GRPO."),
    Rule("divisor", divisor, "Dr. GRPO's constant scales the gradient by limit / divisor",
         "model.objective.max_tokens: that of model.sampling",
         "The gradient norm is far from that of other runs."),
    Rule("shorter", shorter, "the policy gives up sooner, and is not right more often",
         "objective DrGRPO; or a smaller weight of Format relative to Accuracy",
         "Responses become shorter, accuracy does not rise."),
    Rule("padded", padded, "responses grow by padding or repetition",
         "r1lit.rewards.Repetition, or what pays for length",
         "Responses become longer, accuracy does not rise."),
    Rule("repetition", repetition, "responses run in circles", "r1lit.rewards.Repetition",
         "Responses say the same thing again and again.", goes_in_circles),
    Rule("memory_grows", memory_grows, "something is kept from each iteration",
         "a reward, verifier or callback of one's own that keeps what it is given; else report it",
         "The run is killed after hours, or gets slower."),
    Rule("flat", flat, "nothing was learnt, or less than this run can show",
         "what the findings above name; without any: model.optimizer.lr, more prompts an iteration,"
         " or problems of another difficulty", "The reward is where it was at the start."),
)  # fmt: skip
"""Rules about faults of a run, causes before their effects."""


@dataclass(frozen=True)
class Finding:
    """A rule that applies to a run, what was seen, since when, and in which response first."""

    rule: Rule
    evidence: str
    began: int
    example: Record | None

    @property
    def since(self) -> str:
        """Return since when, and where to look, in words."""
        words = f"from iteration {self.began} on"
        if self.example is None:
            return words
        line = self.example
        where = f"iteration {line.get('iteration')}, {line.get('uid')}"
        return f"{words}; first response: {where}: {excerpt(line['response'])!r}"


def excerpt(text: str, most: int = 60) -> str:
    """Return the end of a text, where answers and circles stand, on one line."""
    text = " ".join(text.split())
    return text if len(text) <= most else f"… {text[-most:]}"


def findings(run: Run) -> list[tuple[Rule, str]]:
    """Return the rules that apply to a run, each with its evidence."""
    seen = ((rule, rule.see(run)) for rule in RULES)
    return [(rule, evidence) for rule, evidence in seen if evidence is not None]


def examined(run: Run) -> list[Finding]:
    """Return the rules that apply to a run, also with their beginning and a first example."""
    return [
        Finding(rule, evidence, began(run, rule), example(run, rule))
        for rule, evidence in findings(run)
    ]


def began(run: Run, rule: Rule) -> int:
    """Return the iteration after which the rule first applied and did so until now.

    Found by halving, so a rule that stops to apply in between may have begun earlier.
    """
    low, high = 0, len(run.metrics)  # applies after `high` iterations, not after `low`
    while high - low > 1:
        middle = (low + high) // 2
        if rule.see(run.until(middle)) is None:
            low = middle
        else:
            high = middle
    return int(run.metrics[high - 1]["iteration"])


def example(run: Run, rule: Rule) -> Record | None:
    """Return the first recorded response that shows what a rule is about."""
    if rule.shows is None:
        return None
    return next((line for line in run.responses if rule.shows(line)), None)


OF_A_FEATURE = ("tools_unused", "off_policy", "critic")
"""Rules of numbers that a run logs with environments, with masking, or with a critic alone."""


def unjudged(run: Run) -> dict[str, list[str]]:
    """Return the rules that could not look, each with what it asked for and the run has not."""
    found = {}
    for rule in RULES:
        if rule.name in OF_A_FEATURE and run.config:
            continue
        blank = run.until(len(run.metrics))
        if rule.see(blank) is None and blank.asked and not any(blank.asked.values()):
            found[rule.name] = sorted(blank.asked)
    return found
