"""Objectives are built from YAML by class_path, as the command line builds them."""

import pytest
import yaml
from jsonargparse import ArgumentParser, Namespace

import r1lit.objectives as objectives
from r1lit.objectives import (
    CISPO,
    DAPO,
    DPPO,
    GAE,
    GMPO,
    GRPO,
    GSPO,
    PPO,
    RLOO,
    SAPO,
    ClipCov,
    DrGRPO,
    EntropyBonus,
    GRPOSequence,
    GSPOToken,
    KLCov,
    Objective,
    PolicyGradient,
    PositiveNLL,
    Whitened,
)

CASES = {
    "GRPO": (
        "{epsilon: 10, beta: 0.001, kl: k2, "
        "advantage: {class_path: r1lit.objectives.GroupCentered}}",
        GRPO,
        {"epsilon": 10.0, "epsilon_high": 10.0, "beta": 0.001, "kl": "k2"},
        "GroupCentered",
    ),
    "GRPO by its defaults": ("{}", GRPO, {"epsilon": 0.2, "beta": 0.0}, "GroupNormalized"),
    "GRPOSequence": ("{epsilon: 10}", GRPOSequence, {"epsilon_low": 10.0}, "GroupNormalized"),
    "DrGRPO": ("{max_tokens: 64}", DrGRPO, {"max_tokens": 64}, "GroupCentered"),
    "DAPO": (
        "{epsilon_high: 0.3, advantage: {class_path: r1lit.objectives.GroupNormalized, "
        "init_args: {std: sample, std_epsilon: 0.0001}}}",
        DAPO,
        {"epsilon_low": 0.2, "epsilon_high": 0.3},
        "GroupNormalized",
    ),
    "GSPO": ("{}", GSPO, {"epsilon_low": 3e-4, "epsilon_high": 4e-4}, "GroupNormalized"),
    "CISPO": (
        "{epsilon_low: null, advantage: {class_path: r1lit.objectives.LeaveOneOut}}",
        CISPO,
        {"epsilon_low": None, "epsilon_high": 4.0},
        "LeaveOneOut",
    ),
    "PPO": ("{}", PPO, {"epsilon": 0.2, "terms": []}, "GAE"),
    "ClipCov": ("{}", ClipCov, {"selected_share": 2e-4, "epsilon_low": 0.2}, "GroupNormalized"),
    "KLCov": ("{kl_weight: 0.5}", KLCov, {"kl_weight": 0.5, "beta": 0.0}, "GroupNormalized"),
    "PolicyGradient": (
        "{advantage: {class_path: r1lit.objectives.NoBaseline}}",
        PolicyGradient,
        {"beta": 0.0},
        "NoBaseline",
    ),
    "GSPOToken": ("{}", GSPOToken, {"epsilon_low": 3e-4}, "GroupNormalized"),
    "GMPO": (
        "{epsilon_high: 0.5}",
        GMPO,
        {"epsilon_low": 0.4, "epsilon_high": 0.5},
        "GroupNormalized",
    ),
    "SAPO": (
        "{advantage: {class_path: r1lit.objectives.NormalizedPerReward, "
        "init_args: {weights: {format: 0.1}}}}",
        SAPO,
        {"tau_positive": 1.0, "tau_negative": 1.05},
        "NormalizedPerReward",
    ),
    "DPPO": (
        "{divergence: kl, advantage: {class_path: r1lit.objectives.MeanNormalized}}",
        DPPO,
        {"divergence": "kl", "threshold": 0.2},
        "MeanNormalized",
    ),
    "RLOO": ("{beta: 0.1}", RLOO, {"beta": 0.1}, "LeaveOneOut"),
}


@pytest.fixture(params=["argument", "subclass"])
def parser(request) -> ArgumentParser:
    parser = ArgumentParser(exit_on_error=False)
    if request.param == "argument":
        parser.add_argument("--objective", type=Objective)
    else:
        parser.add_subclass_arguments(Objective, "objective")
    return parser


def build(parser: ArgumentParser, class_path: str, init_args: str) -> Objective:
    text = f"objective: {{class_path: {class_path}, init_args: {init_args}}}"
    config: Namespace = parser.parse_object(yaml.safe_load(text))
    return parser.instantiate_classes(config).objective


@pytest.mark.parametrize("case", CASES)
def test_built_by_class_path(parser, case):
    init_args, cls, attributes, advantage = CASES[case]
    objective = build(parser, f"r1lit.objectives.{cls.__name__}", init_args)
    assert type(objective) is cls
    assert {name: getattr(objective, name) for name in attributes} == attributes
    assert type(objective.advantage).__name__ == advantage


def test_nested_init_args_arrive(parser):
    objective = build(parser, "r1lit.objectives.DAPO", CASES["DAPO"][0])
    assert vars(objective.advantage) == {"std": "sample", "std_epsilon": 0.0001}


def test_terms_and_whitening_arrive(parser):
    objective = build(
        parser,
        "r1lit.objectives.PPO",
        "{terms: [{class_path: r1lit.objectives.PositiveNLL, init_args: {weight: 0.2}},"
        " {class_path: r1lit.objectives.EntropyBonus, init_args: {target: 0.3}}],"
        " advantage: {class_path: r1lit.objectives.Whitened, init_args:"
        " {estimator: {class_path: r1lit.objectives.GAE, init_args: {alpha: 0.05}}}}}",
    )
    nll, bonus = objective.terms
    assert isinstance(nll, PositiveNLL) and nll.weight == 0.2
    assert isinstance(bonus, EntropyBonus) and bonus.target == 0.3
    assert isinstance(objective.advantage, Whitened)
    gae = objective.advantage.unscaled
    assert isinstance(gae, GAE) and gae.alpha == 0.05


@pytest.mark.parametrize("init_args", ["{epsilonn: 0.2}", "{kl: k4}", "{beta: much}"])
def test_mistakes_in_yaml_are_errors(parser, init_args):
    with pytest.raises(Exception, match=r"epsilonn|k4|much"):
        build(parser, "r1lit.objectives.GRPO", init_args)


def test_dr_grpo_asks_for_its_budget(parser):
    with pytest.raises(Exception, match="max_tokens"):
        build(parser, "r1lit.objectives.DrGRPO", "{}")


def test_every_public_objective_has_a_case():
    concrete = {
        name
        for name in objectives.__all__
        if isinstance(value := getattr(objectives, name), type)
        and issubclass(value, Objective)
        and not value.__abstractmethods__
    } - {"ClippedObjective", "SymmetricClip"}  # bases without a ratio
    assert concrete == {cls.__name__ for _, cls, _, _ in CASES.values()}
