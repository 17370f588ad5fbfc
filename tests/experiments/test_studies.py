"""Shipped studies: what their variants differ in, and each run on a tiny policy."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny_sweep import ROOT, TINY, in_process, study_file, tiny_of

from experiments.__main__ import main, studies
from experiments.compose import merge, move_paths
from experiments.curves import draw, read_curves
from experiments.pipeline import Pipeline, read_pipeline
from experiments.ppo_vs_grpo import values
from experiments.report import as_table
from experiments.search.training.report import as_table as training_table
from experiments.study import make, read_study
from experiments.sweep import Sweep, read_config, read_configs, read_sweep, run_sweep
from experiments.variants import pipeline_of
from r1lit import cli
from r1lit.curation.pairs import parser as pairs_parser
from r1lit.files import Record, held, read_records


@pytest.fixture(autouse=True)
def from_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def grids() -> list[tuple[str, str | None]]:
    """Return every grid of the shipped studies: the study and its step."""
    found: list[tuple[str, str | None]] = []
    for name, path in studies().items():
        if path.name == "study.yaml":
            content = yaml.safe_load(path.read_text())
            steps = [content] if "grid" in content else content["steps"]
            found += [(name, step.get("name")) for step in steps if "grid" in step]
    return found


def pipelines() -> list[Path]:
    """Return every file of steps: studies, variants of R1's pipeline, and R1's own."""
    return [path for path in studies().values() if path.suffix == ".yaml"] + [
        ROOT / "experiments/r1" / f"{name}.yaml"
        for name in ("pipeline", "reasoning", "small_real", "full")
    ]


def pipelines_of(path: Path, folder: Path) -> list[Pipeline]:
    content = yaml.safe_load(path.read_text())
    if "variants" in content:
        return [pipeline_of(content, folder, variant, 0) for variant in content["variants"]]
    values = dict.fromkeys(content.get("arguments", {}), "models/mini")
    return [read_pipeline(path, 0, values=values)] if "run" in content else []


@pytest.mark.long
@pytest.mark.parametrize("path", pipelines(), ids=lambda path: "/".join(path.parts[-2:]))
def test_the_configuration_of_every_step_is_read(path: Path, tmp_path: Path) -> None:
    """A study is not run after each change of a key."""
    seen = set()
    for pipeline in pipelines_of(path, tmp_path):
        for step in pipeline.steps:
            where = f"{path}: {pipeline.run.name}: {step.name}"
            changed = json.dumps([step.command, step.configs], default=str)
            if step.command is not None and changed not in seen:
                read_configs(step.command, step.configs, where, step.arguments)
            elif step.module == "r1lit.curation.pairs":
                pairs_parser().parse_args(step.arguments)
            seen.add(changed)


def options(sweep: Sweep, variant: str) -> dict[str, Any]:
    return sweep.point(variant, 0).config["model"]["init_args"]


@pytest.mark.long
@pytest.mark.parametrize(("name", "step"), grids())
def test_every_point_of_every_shipped_grid_is_a_valid_config(name, step):
    arguments = yaml.safe_load(study_file(name).read_text()).get("arguments", {})
    sweep = read_sweep(study_file(name), step, dict.fromkeys(arguments, "models/mini"))
    for point in sweep.points(sweep.seeds[:1]):
        printed = read_config(point)
        init_args = printed["model"]["init_args"]
        if point.command == "test":
            assert init_args["dirpath"] == str(point.folder)
            continue
        assert printed["trainer"]["default_root_dir"] == str(point.folder)
        if init_args.get("objective", {}).get("class_path", "").endswith("DrGRPO"):
            budget = init_args["objective"]["init_args"]["max_tokens"]
            later = (init_args.get("max_tokens_from") or {}).values()
            assert budget >= max([init_args["sampling"]["max_tokens"], *later])


def test_studies_are_listed_with_what_they_ask(capsys):
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(studies()) >= 24
    assert [line.split()[0] for line in lines] == list(studies())
    assert all(len(line.split()) > 2 for line in lines)
    page = (ROOT / "experiments" / "README.md").read_text()
    assert sorted(re.findall(r"\]\(([\w/]+)/README\.md\)", page)) == sorted(studies())
    assert main(["no_such_study"]) == 2
    assert "no study is called so; those are aha_long, " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "words", "says"),
    [
        ("reward_models", [], "pairs: it is not given; say pairs=VALUE, a table of chosen"),
        ("late_onset", ["pairs=x"], "pairs: experiments/late_onset/study.yaml has no such"),
        ("late_onset", ["--seeds", "0,x"], "--seeds: '0,x' is not integers from 0"),
        ("scaling", ["--report", "--also", "x"], "--also: this study's records do not say"),
        ("rlhf", ["--report", "--output", "runs/none"], "nothing is finished there yet"),
        ("scaling", ["--report", "--output", "runs/none"], "no point is finished yet"),
    ],
)
def test_a_study_that_cannot_be_made_is_a_line(name, words, says, capsys, monkeypatch):
    monkeypatch.setattr("experiments.study.HERE", Path("experiments"))
    monkeypatch.setattr("experiments.__main__.HERE", Path("experiments"))
    assert main([name, *words]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.long
def test_a_dry_run_of_steps_says_what_would_be_made(tmp_path, capsys):
    assert main(["what_rl_adds", "--seeds=1", "--dry-run", f"--output={tmp_path}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    made = [line.split(maxsplit=1)[1] for line in lines]
    assert made[0] == "runs/what_rl_adds_controls/recipe/seed-1"
    assert f"{tmp_path}/seed-1 sft" in made and f"{tmp_path}/seed-0 small" in made
    assert made.index(f"{tmp_path}/seed-0 small") < made.index(
        "runs/what_rl_adds_pages/small/seed-0"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_a_page_is_made_of_other_machines_runs_where_none_is_here(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("configs", "experiments", "models"):
        (tmp_path / name).symlink_to(ROOT / name)
    page = ROOT / "experiments/late_onset"
    (tmp_path / "README.md").write_text((page / "README.md").read_text())
    words = ["late_onset", "--report", "--readme", str(tmp_path)]
    assert main(words) == 2
    assert "nothing is finished there yet" in capsys.readouterr().err
    assert main([*words, "--also", str(page / "results.jsonl")]) == 0
    assert (tmp_path / "README.md").read_text() == (page / "README.md").read_text()


# What the variants of a study differ in


def test_algorithms_draw_and_update_alike():
    shipped = read_sweep(study_file("algorithms"))
    assert len(shipped.variants) == 8 and len(shipped.seeds) == 5
    configs = [shipped.point(variant, 0).config for variant in shipped.variants]
    for key in ("sampling", "train_batch_size", "max_grad_norm", "optimizer", "lr_scheduler"):
        values = [config["model"]["init_args"][key] for config in configs]
        assert all(value == values[0] for value in values), key
    paid = [[r["class_path"] for r in c["model"]["init_args"]["rewards"]] for c in configs]
    assert all(names == paid[0] for names in paid)
    assert all(config["data"] == configs[0]["data"] for config in configs)


NLL = "r1lit.objectives.PositiveNLL"


def test_critics_differ_in_what_their_names_say():
    shipped = read_sweep(study_file("ppo_vs_grpo"))
    assert len(shipped.variants) == 8 and len(shipped.seeds) >= 3
    configs = {name: shipped.point(name, 0).config for name in shipped.variants}
    assert all(config["data"] == configs["grpo"]["data"] for config in configs.values())
    own = {name: config["model"]["init_args"] for name, config in configs.items()}
    for key in ("sampling", "train_batch_size", "max_grad_norm", "optimizer", "lr_scheduler"):
        assert all(value[key] == own["grpo"][key] for value in own.values()), key
    paid = {name: [r["class_path"] for r in value["rewards"]] for name, value in own.items()}
    assert all(names == paid["grpo"] for names in paid.values())
    scaled = {
        name: value["objective"]["init_args"]["advantage"]
        for name, value in own.items()
        if name != "grpo"
    }
    assert {a["class_path"] for a in scaled.values()} == {"r1lit.objectives.Whitened"}
    gae = {name: a["init_args"]["estimator"]["init_args"] for name, a in scaled.items()}
    lambdas = {name: (a["lambda_policy"], a["lambda_critic"]) for name, a in gae.items()}
    assert lambdas["ppo-1.0"] == (1.0, 1.0) and lambdas["ppo-0.95"] == (0.95, 0.95)
    assert {name for name, a in gae.items() if a.get("alpha")} == {
        "vapo", "vapo-no-warmup", "vapo-one-lambda", "vapo-no-nll"
    }  # fmt: skip
    assert lambdas["vapo-fixed-lambda"] == (0.95, 1.0) and lambdas["vapo-one-lambda"][1] == 0.95
    steps = {name: value["steps"] for name, value in own.items()}
    assert steps.pop("grpo") == []
    assert all([s["class_path"] for s in of] == ["r1lit.steps.Critic"] for of in steps.values())
    critics = {name: {**of[0]["init_args"]} for name, of in steps.items()}
    warm = {name: critic.pop("warmup") for name, critic in critics.items()}
    assert warm.pop("vapo-no-warmup") == 0 and set(warm.values()) == {3}
    assert all(critic == critics["ppo-1.0"] for critic in critics.values()), "but for the warm-up"
    terms = {n: own[n]["objective"]["init_args"]["terms"] for n in gae}
    nll = {n: [t["init_args"]["weight"] for t in of if NLL in t["class_path"]]
           for n, of in terms.items()}  # fmt: skip
    assert {name for name, weights in nll.items() if weights == [0.1]} == {
        "vapo", "vapo-no-warmup", "vapo-one-lambda", "vapo-fixed-lambda"
    }  # fmt: skip
    assert all(weights in ([], [0.1]) for weights in nll.values())


LANGUAGE = ("language_reward", "third_language", "language_reward/code")


@pytest.mark.parametrize("name", LANGUAGE)
def test_the_language_reward_differs_in_its_weight_alone(name):
    shipped = read_sweep(study_file(name))
    both = [shipped.point(variant, 0).config for variant in ("with", "without")]
    rewards = [config["model"]["init_args"].pop("rewards") for config in both]
    without = [reward["init_args"].pop("weight") for reward in rewards[1]]
    assert [reward["init_args"].pop("weight") for reward in rewards[0]] == [1.0, 1.0, 1.0]
    assert without == [1.0, 0.0, 1.0] and rewards[0] == rewards[1]
    texts = [json.dumps(config).replace("without", "with") for config in both]
    assert texts[0] == texts[1]


def test_onsets_differ_in_their_bases_and_those_in_how_much_is_checked():
    runs, bases = (read_sweep(study_file("late_onset"), step).points() for step in ("rl", "pages"))
    policies = {p.variant: p.config["model"]["init_args"].pop("policy") for p in runs}
    assert policies == {b.variant: f"{b.folder}/policy" for b in bases}
    documents = [b.config["data"]["init_args"]["documents"][0]["init_args"] for b in bases]
    assert [own.pop("check") for own in documents] == [0.25, 0.05]
    for points in (runs, bases):
        first, *others = [{k: v for k, v in p.config.items() if k != "run"} for p in points]
        same = [o for o in others if o["seed_everything"] == first["seed_everything"]]
        assert same and all(o == first for o in same)


def test_schedules_differ_in_when_requests_come_and_in_beta():
    shipped = read_sweep(study_file("reward_hacking"))
    late, early, free = (shipped.point(name, 0).config for name in shipped.variants)
    inits = [config["model"]["init_args"] for config in (late, early, free)]
    begins = [[r["init_args"].pop("from_iteration", 0) for r in i["rewards"]] for i in inits]
    assert begins == [[0, 0, 0, 60, 60, 0, 0], [0] * 7, [0] * 7]
    assert inits[0]["rewards"] == inits[1]["rewards"] == inits[2]["rewards"]
    assert [i["objective"]["init_args"].pop("beta") for i in inits] == [0.05, 0.05, 0.001]
    assert inits[0] == inits[1] == inits[2]
    *problems, requests = late["data"]["init_args"]["train"]
    begin = requests["init_args"]["from_iteration"]
    assert begin == 60 == 3 * late["data"]["init_args"]["num_iterations"] / 4
    for config in (early, free):
        assert config["data"]["init_args"]["train"] == [*problems, requests["init_args"]["source"]]
    # the reward models and their weights are those of make r1
    preset = json.dumps(shipped.base["model"]["init_args"]["rewards"])
    for reward in inits[0]["rewards"][3:5]:
        assert json.dumps(reward["init_args"]["reward"]) in preset


def test_controls_change_what_they_say():
    sweep = read_sweep(study_file("what_rl_adds"), "controls")
    weights = {
        name: {r["class_path"].split(".")[-1]: r["init_args"]["weight"] for r in own["rewards"]}
        for name in ("format-only", "random-reward")
        for own in [options(sweep, name)]
    }
    assert weights["format-only"] == {"Accuracy": 0.0, "Format": 1.0}
    assert weights["random-reward"] == {"Accuracy": 0.0, "Coin": 1.0, "Format": 1.0}
    objective = options(sweep, "r1-objective")["objective"]
    assert objective["init_args"] == {"epsilon": 10.0, "beta": 0.001}
    assert options(sweep, "recipe")["objective"]["class_path"].endswith("DrGRPO")


def test_recipes_differ_in_their_objectives():
    sweep = read_sweep(study_file("scaling"))
    objectives = {
        name: options(sweep, name)["objective"]["class_path"].split(".")[-1]
        for name in sweep.variants
    }
    assert objectives == {"mini": "DrGRPO", "r1": "GRPO", "scale-rl": "CISPO"}


def test_every_prompt_asks_the_same_problems_and_shows_none_of_them():
    sweep = read_sweep(study_file("prompts"))
    assert len(sweep.variants) == 28 and "base+system" not in sweep.variants
    asked = []
    for variant in sweep.variants:
        init_args = sweep.point(variant, 0).config["data"]["init_args"]
        for source in init_args["test"]:
            source["init_args"].pop("chinese", None)
        asked.append(init_args["test"])
        for source in init_args.get("shots", {}).get("init_args", {}).get("problems", []):
            assert source["init_args"]["split"] == "train"
    assert all(test == asked[0] for test in asked)
    gsm8k = read_study(ROOT / "experiments/prompts/gsm8k.yaml").sweep()
    assert len(gsm8k.variants) == 11 and "base+system" not in gsm8k.variants


# Each study's shortest version


def lines_of(sweep: Sweep, variant: str) -> list[Record]:
    return read_records(sweep.output / variant / "seed-0" / "metrics.jsonl")


def of_policy(policy: Path, **init_args: Any) -> dict[str, Any]:
    own = {"policy": {"path": str(policy), "from_scratch": False}, **init_args}
    return merge(TINY, {"model": {"init_args": own}})


def over_variants(sweep: Sweep, change: Callable[[str], dict[str, Any]]) -> Sweep:
    for name, fragments in sweep.variants.items():
        fragments.append(change(name))
    return sweep


def finished(sweep: Sweep) -> list[Record]:
    assert run_sweep(sweep, launch=in_process) == []
    results = sweep.results()
    assert [result["variant"] for result in results] == list(sweep.variants)
    return results


DIGITS = [{"class_path": "tiny.DigitShare"}]
"""A reward in which groups of a random policy differ."""


@pytest.mark.slow
def test_algorithms(tmp_path, policy):
    tiny = of_policy(policy, rewards=DIGITS)
    sweep = tiny_of("algorithms", tiny, tmp_path)
    sweep = over_variants(sweep, lambda name: {"model": tiny["model"]})
    results = finished(sweep)
    assert all(name in as_table(results) for name in sweep.variants)
    logged = {name: lines_of(sweep, name)[0] for name in sweep.variants}
    assert len({line["train/reward"] for line in logged.values()}) == 1, "one first rollout"
    penalised = {n for n, line in logged.items() if "train/kl_in_reward" in line}
    assert penalised == {"rloo", "reinforce-pp"}
    assert {n for n, line in logged.items() if "train/num_pairs" in line} == {"dpo"}


@pytest.mark.slow
def test_ranks_of_adapters(tmp_path, policy):
    sweep = tiny_of("lora_ranks", of_policy(policy), tmp_path)
    finished(sweep)
    full_rate = lines_of(sweep, "all")[0]["train/learning_rate"]
    for variant in [name for name in sweep.variants if name != "all"]:
        exported = sweep.output / variant / "seed-0" / "policy"
        settings = json.loads((exported / "adapter_config.json").read_text())
        assert settings["r"] == int(variant.removeprefix("rank-"))
        assert settings["lora_alpha"] == 32 and len(settings["target_modules"]) == 2 * 7
        rate = lines_of(sweep, variant)[0]["train/learning_rate"]
        assert rate == pytest.approx(10 * full_rate)


@pytest.mark.slow
def test_rollouts_are_as_stale_as_named(tmp_path, policy):
    updates = 2  # of an iteration: 2 x 4 rows in minibatches of 4
    tiny = merge(of_policy(policy, train_batch_size=4), {
        "data": {"init_args": {"num_iterations": 6}}, "trainer": {"val_check_interval": 6},
    })  # fmt: skip
    sweep = tiny_of("staleness", tiny, tmp_path)
    assert len(finished(sweep)) == 8
    rewards = {}
    for variant in sweep.variants:
        k = int(variant[1])
        lines = lines_of(sweep, variant)
        ages = [line.get("train/staleness/max") for line in lines]
        assert ages == [updates * min(i, k) if k else None for i in range(6)]
        rewards[variant] = [line["train/reward"] for line in lines]
    for correction in ("as-drawn", "corrected"):
        first = {tuple(rewards[f"k{k}+{correction}"][:1]) for k in (0, 1, 2, 4)}
        assert len(first) == 1, "all begin with the base's rollout"


@pytest.mark.slow
def test_critics_are_reported(tmp_path, policy):
    truth = {"every_n_iterations": 1, "num_prefixes": 4, "num_completions": 2}
    tiny = of_policy(policy, rewards=DIGITS)
    sweep = tiny_of("ppo_vs_grpo", {key: TINY[key] for key in ("data", "trainer")}, tmp_path)

    def change(name: str) -> dict[str, Any]:
        if name == "grpo":
            return {"model": tiny["model"]}
        [critic] = sweep.point(name, 0).config["model"]["init_args"]["steps"]
        warm = {"warmup": int(name != "vapo-no-warmup"), "truth": truth}
        steps = [merge(critic, {"init_args": warm})]
        return {"model": merge(tiny["model"], {"init_args": {"steps": steps}})}

    sweep = over_variants(sweep, change)
    finished(sweep)
    for name in sweep.variants:
        first, last = lines_of(sweep, name)
        assert "train/loss" in last
        assert ("train/loss" in first) == (name in ("grpo", "vapo-no-warmup"))
        assert ("train/value_loss" in last) == (name != "grpo")
    rows = values.as_table(values.count(sweep)).splitlines()[2:]
    assert [row.split(" | ")[0].strip("| ") for row in rows] == list(sweep.variants)[1:]
    assert all(row.count("–") == 0 for row in rows), rows


def tiny_language(policy: Path) -> dict[str, Any]:
    world = "r1lit.worlds.WorldCountdown"
    return merge(of_policy(policy, sampling={"max_tokens": 12}, train_batch_size=4), {
        "data": {"init_args": {
            "train": [{"class_path": world, "init_args": {"num_problems": 4}}],
            "prompts": {"template": "r1_zero"},  # the tiny policy has no chat template
            "rollout": {"group_size": 2},
        }},
    })  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", LANGUAGE[:2])
def test_consistency_is_measured_in_both_and_paid_for_in_one(name, tmp_path, policy):
    sweep = tiny_of(name, tiny_language(policy), tmp_path / "out")
    results = finished(sweep)
    assert list(sweep.variants) == ["with", "without"]
    for result, weight in zip(results, (1.0, 0.0), strict=True):
        for line in lines_of(sweep, result["variant"]):
            parts = [line[f"train/reward/{name}"] for name in ("accuracy", "format")]
            paid = weight * line["train/reward/language_consistency"]
            assert line["train/reward"] == pytest.approx(sum(parts) + paid, abs=1e-5)
        assert all("language_consistency" in e["rewards"] for e in result["evaluations"])
        assert len(result["evaluations"]) == 3
    header, _, *rows = as_table(results).splitlines()
    column = header.split(" | ").index("language consistency")
    for row, result in zip(rows, results, strict=True):
        first, last = (result["evaluations"][i]["rewards"]["language_consistency"] for i in (0, -1))
        assert row.split(" | ")[column] == f"{first:.3f} → {last:.3f}"
    axes = draw(results).axes
    assert axes[0].get_ylabel() == "words in the question's language"
    assert len(axes) == 4 and len(axes[0].lines) == 2


@pytest.mark.slow
def test_from_russian_pages_to_the_table(tmp_path: Path):
    few = tmp_path / "few.yaml"
    pages = {"class_path": "r1lit.worlds.WorldCorpus", "init_args": {"num_documents": 40}}
    russian = merge(pages, {"init_args": {"russian": 0.5}})
    config = {
        "data": {"init_args": {"num_iterations": 2, "documents": [russian],
                               "validation_documents": [pages]}},
        "trainer": {"val_check_interval": 2},
    }  # fmt: skip
    few.write_text(yaml.safe_dump(config))
    read = ["configs/mini/pretrain.yaml", "experiments/third_language/pretrain.yaml", str(few)]
    run = str(tmp_path / "pretrain")
    cli.main(["fit", *(word for path in read for word in ("-c", path)), "--run", run])

    sweep = tiny_of("third_language", {}, tmp_path / "out")
    tiny = of_policy(Path(run) / "policy")
    asked = sweep.point("with", 0).config["data"]["init_args"]
    for split in ("train", "validation"):  # in all three languages, and few
        source = merge(asked[split][0], {"init_args": {"num_problems": 8}})
        tiny["data"]["init_args"][split] = [source]
    for result in finished(over_variants(sweep, lambda name: tiny)):
        assert "language_consistency" in result["final"]["rewards"]


@pytest.mark.slow
def test_every_schedule_of_preference_rewards(tmp_path):
    """From the shipped base, with a random reward model, for two short iterations."""
    from tiny_reward import save_critic

    from experiments import by_source
    from experiments.reward_hacking.report import MEASURES

    critic = save_critic(tmp_path)
    config = critic / "config.json"  # says what a reward model's export says
    said = {"reward_template": "plain", "reward_score_on": "response"}
    said |= {"reward_mean": 0.0, "reward_std": 1.0}
    config.write_text(json.dumps(json.loads(config.read_text()) | said))

    def few(split: str) -> list[dict]:
        return [
            {"class_path": f"r1lit.worlds.{name}", "init_args": {"split": split, **more}}
            for name, more in (
                ("WorldCountdown", {"num_problems": 2}),
                ("WorldRequests", {"num_problems": 2, "families": ["harm"]}),
                ("WorldRequests", {"num_problems": 2, "families": ["how"]}),
            )
        ]

    short = {
        "model": {"init_args": {
            "policy": "models/mini", "sampling": {"max_tokens": 12},
            "validation_sampling": {"max_tokens": 12}, "train_batch_size": 4,
        }},
        "data": {"init_args": {
            "train": few("train"), "validation": few("held_out"), "num_iterations": 2,
            "rollout": {"prompts_per_iteration": 2, "group_size": 2},
            "evaluation": {"num_samples": 2},
        }},
        "trainer": {"val_check_interval": 1},
    }  # fmt: skip
    sweep = tiny_of("reward_hacking", short, tmp_path / "out")
    for name, fragments in sweep.variants.items():
        for model in ("helpful_rm", "safety_rm"):
            fragments = move_paths(fragments, Path(f"runs/r1/{model}/policy"), critic)
        sweep.variants[name] = [*fragments, short]
    finished(sweep)
    results = by_source.read(sweep, MEASURES)
    assert [result["variant"] for result in results] == ["late", "early", "early-free"]
    for result in results:
        assert [i for i, _ in result["curves"]["helpful RM"]] == [0, 1, 2]
    first = [result["curves"]["helpful RM"][0] for result in results]
    assert first[0] == first[1] == first[2], "all schedules begin with the same policy"
    assert lines_of(sweep, "late")[0]["train/reward/helpful_rm"] == 0, "not before its time"


@pytest.mark.slow
def test_policy_and_critic_learn_from_what_searches_find(tmp_path, policy):
    tiny = merge(of_policy(policy, train_batch_size=4), {
        "model": {"init_args": {
            "collector": {"init_args": {
                "search": {"init_args": {"num_simulations": 3, "step": {"max_tokens": 3}}},
            }},
        }},
        "data": {"init_args": {"rollout": {"group_size": 2}, "num_iterations": 3}},
    })  # fmt: skip
    sweep = tiny_of("search/training", tiny, tmp_path)
    own = {"model": {"init_args": {"policy": str(policy)}}}
    short = merge(own, {"model": {"init_args": {"sampling": {"max_tokens": 8}}},
                        "data": {"init_args": {"num_iterations": 3}}})  # fmt: skip
    short["model"]["init_args"]["train_batch_size"] = 8
    over_variants(sweep, lambda name: short if name == "grpo" else own)
    finished(sweep)
    results = {result["variant"]: result for result in read_curves(sweep)}
    assert list(results) == ["mcts", "mcts-narrow", "mcts-oracle", "best-of-n", "grpo"]
    for name, result in results.items():
        sampled, _, searched = result["lines"]  # the first two are the critic's warm-up
        assert ("train/loss" in sampled) == (name == "grpo") and "train/loss" in searched
        if name != "grpo":
            assert sampled["train/search/num_tokens"] == sampled["train/num_tokens"]
            assert searched["train/search/num_tokens"] > searched["train/num_tokens"]
            assert 0.5 <= searched["train/search/share_distinct"] <= 1
            assert searched["train/mismatch/max_abs"] < 1e-3
    assert "| mcts-oracle | 1 |" in training_table(list(results.values()))


# The order of a study's steps


@pytest.mark.long
def test_steps_are_made_in_order_each_for_its_seeds_and_once(tmp_path, sweep_file, capsys):
    """Steps that copy a file, and between them a grid whose runs only write their summary."""
    (tmp_path / "in.json").write_text("{}")
    grid = yaml.safe_load(sweep_file(seeds=[7]).read_text())
    copy = {"module": "json.tool", "stage": "copy"}

    def step(name: str, source: str, target: str, **more: object) -> dict[str, object]:
        own = {"arguments": [source, target], "reads": [source], "writes": [target]}
        return {"name": name, **copy, **own, **more}

    run, made = f"{tmp_path}/run", tmp_path / "made.json"
    content = {
        "run": run, "seeds": [1, 2],
        "steps": [
            step("once", f"{tmp_path}/in.json", str(made), seeds=[0]),
            {"name": "grid", **grid},
            step("last", str(made), f"{run}/last.json"),
        ],
    }  # fmt: skip
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(content))
    launched = []

    def launch(arguments: list[str], log: Path) -> int:
        launched.append(Path(arguments[2]).parent)
        assert made.exists() and not (tmp_path / "run/seed-1/last.json").exists()
        summary = [{"iteration": 0, "seconds": 1.0, "pass_at_1": 0.5}]
        (launched[-1] / "summary.json").write_text(json.dumps(summary))
        return 0

    study = read_study(path)
    assert make(study, launch) == 0
    assert [folder.name for folder in launched] == ["seed-7", "seed-7"], "the step's own seeds"
    assert {folder.parent.name for folder in launched} == {"grpo", "dr"}
    assert all((tmp_path / f"run/seed-{seed}/last.json").exists() for seed in (1, 2))
    assert len(study.sweep("grid").results()) == 2
    logs = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("logs/*.log")}
    assert make(study, launch) == 0 and len(launched) == 2
    assert logs == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("logs/*.log")}

    made.unlink()
    capsys.readouterr()
    with held(tmp_path / "run/seed-1/.runner.lock"):  # of another process
        assert make(read_study(path, seeds=[1]), launch) == 0
    assert "seed 1  left to another process" in capsys.readouterr().out and made.exists()

    late = {"name": "late", "command": "fit", "config": ["configs/mini/r1_zero.yaml"]}
    content["steps"] += [{**late, "set": {"model": {"init_args": {"max_grad_nrm": 1.0}}}}]
    content["run"] = f"{tmp_path}/other"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(ValueError, match=r"step late: .*max_grad_nrm"):
        make(read_study(path), launch)
    assert not (tmp_path / "other").exists(), "it is refused before the steps ahead of it are made"
