"""Keys and classes of earlier versions: a line names what stands in the place of each."""

from __future__ import annotations

CRITIC = "r1lit.steps.Critic"
PROCESS = "r1lit.steps.ProcessModel"

MOVED_KEYS = {
    "model.dynamic_sampling": "model.collector: r1lit.collect.DynamicSampling",
    "model.max_staleness": "model.collector: {class_path: r1lit.collect.Ahead, init_args:"
    " {max_staleness: 1}}",
    "model.mask_truncated": "a step, model.steps+: [r1lit.steps.MaskTruncated]",
    "model.kl_in_reward": "a step, model.steps+: [{class_path: r1lit.steps.KLInReward, init_args:"
    " {beta: 0.02}}]",
    "model.correction": "a step, model.steps+: [{class_path: r1lit.steps.Correction, init_args:"
    " {weighting: r1lit.objectives.TruncatedImportanceSampling}}]",
    "model.whiten_advantages": "model.objective.advantage: {class_path: r1lit.objectives.Whitened,"
    " init_args: {estimator: r1lit.objectives.GroupNormalized}}",
    "model.objective.top_entropy": "a step, model.steps+: [{class_path: r1lit.steps.TopEntropy,"
    " init_args: {share: 0.2}}]",
    "model.objective.positive_nll": "model.objective.terms+: [{class_path:"
    " r1lit.objectives.PositiveNLL, init_args: {weight: 0.1}}]",
    "model.objective.entropy": "model.objective.terms+: [{class_path:"
    " r1lit.objectives.EntropyBonus, init_args: {weight: 1.0e-3}}]",
    **{
        f"model.{old}": f"{new} of the step {CRITIC} in model.steps"
        for old, new in {
            "critic": "model",
            "value_objective": "objective",
            "critic_optimizer": "optimizer",
            "critic_lr_scheduler": "lr_scheduler",
            "critic_max_grad_norm": "max_grad_norm",
            "critic_warmup": "warmup",
            "critic_epochs": "epochs",
            "value_truth": "truth",
        }.items()
    },
    **{
        f"model.process_{key}": f"{key} of the step {PROCESS} in model.steps"
        for key in ("beta", "optimizer", "max_grad_norm")
    },
}
"""The key as an error names it -> what it is now, with the YAML of it."""

MOVED_CLASSES = {
    "r1lit.modules.PPOModule": f"r1lit.modules.GRPOModule with model.steps: [{CRITIC}] and"
    " r1lit.objectives.PPO",
    "r1lit.modules.PRIMEModule": f"r1lit.modules.GRPOModule with model.steps: [{PROCESS}] and the"
    " advantage r1lit.objectives.ImplicitProcess",
    "r1lit.objectives.Kept": "r1lit.objectives.OnlyKept",
    "r1lit.objectives.RewardsApart": "r1lit.objectives.NormalizedPerReward",
}
"""The class path -> what is now written in its place."""


def moved(path: str) -> str | None:
    """Return the present form of a moved key, or of a key below it; None if it never was one.

    >>> moved("model.dynamic_sampling")
    'model.collector: r1lit.collect.DynamicSampling'
    """
    parts = path.split(".")
    heads = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((MOVED_KEYS[head] for head in heads if head in MOVED_KEYS), None)


def moved_class(path: str) -> str | None:
    """Return the present form of a moved class, by path or bare name; None if it never was one.

    >>> moved_class("Kept")
    'r1lit.objectives.OnlyKept'
    """
    by_name = {whole.rpartition(".")[2]: now for whole, now in MOVED_CLASSES.items()}
    return MOVED_CLASSES.get(path, by_name.get(path))
