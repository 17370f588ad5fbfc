# ruff: noqa: E501 - a mistake a line
"""Sixty and more mistakes: each ends in one line and status 2, and the line says what to do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import yaml
from lightning.pytorch import Callback
from tiny import ROOT, data, grpo_config, merge, model
from tiny_evaluation import evaluation_config

from r1lit.batches import Problem, Response, Verdict
from r1lit.cli import main
from r1lit.console import run_script
from r1lit.rewards import RewardFunction
from r1lit.verifiers import Verifier

LIGHTNING = "lightning.pytorch."
BARE: dict[str, Any] = {
    "trainer": {"callbacks": [], "logger": False, "limit_val_batches": 0, "val_check_interval": 1,
                "enable_checkpointing": False, "enable_progress_bar": False},
    "data": {"init_args": {"num_iterations": 1}},
}  # fmt: skip


SFT = {"class_path": "r1lit.modules.SFTModule"}


class Broken(RewardFunction):
    """Divides by the number of digits, of which there may be none."""

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        return [1 / sum(c == "☃" for c in r.text) for r in responses]


class TooFew(RewardFunction):
    """Forgets a response."""

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        return [1.0] * (len(responses) - 1)


class BrokenVerifier(Verifier):
    """Looks a key up that problems do not have."""

    needs_answer = False

    def verify(self, response: str, problem: Problem) -> Verdict:
        raise KeyError("solution")


def takes_nothing() -> list[float]:
    return []


def brevity(responses: Sequence[Response], limit: int = 100) -> list[float]:
    return [max(0.0, 1 - response.num_tokens / limit) for response in responses]


class Wordy(Verifier):
    """Returns a text in the place of a verdict."""

    needs_answer = False

    def verify(self, response: str, problem: Problem) -> Verdict:
        return "right"  # type: ignore[return-value]


class Clumsy(Callback):
    """Divides by zero when a batch begins."""

    def on_train_batch_start(self, *_: Any) -> None:
        self.share = 1 / 0


class Silent(Verifier):
    """Never comes to a verdict, as a judge whose server answers nonsense."""

    def verify(self, response: str, problem: Problem) -> Verdict:
        return Verdict(value=0.0, status="error", canonical=None, reason="no verdict in the reply")


def trainer(**named: Any) -> dict[str, Any]:
    return {"trainer": named}


def callback(name: str, **init_args: Any) -> dict[str, Any]:
    return trainer(callbacks=[{"class_path": f"r1lit.callbacks.{name}", "init_args": init_args}])


def table(**init_args: Any) -> dict[str, Any]:
    return data(train=[{"class_path": "r1lit.data.TableProblems", "init_args": init_args}])


def objective(name: str, **init_args: Any) -> dict[str, Any]:
    return model(objective={"class_path": f"r1lit.objectives.{name}", "init_args": init_args})


def reward(name: str, **init_args: Any) -> dict[str, Any]:
    return model(rewards=[{"class_path": name, "init_args": init_args}])


class Mistake(NamedTuple):
    """What is wrong, and the words that the one line must have: key, value, what is right."""

    change: dict[str, Any]
    words: tuple[str, ...]
    args: tuple[str, ...] = ()
    base: str = "fit"


def said(*args: str, words: tuple[str, ...], base: str = "fit") -> Mistake:
    return Mistake({}, words, args, base)


MISTAKES: dict[str, Mistake] = {
    "no model": said("fit", words=("model", "-c r1lit:mini"), base="none"),
    "a key without a class": said("fit", "--model.policy", "x", words=("model", "no class", "policy", "-c r1lit:mini"), base="none"),
    "weights as a config": said("fit", "-c", "weights.safetensors", words=("config", "weights.safetensors", "is not YAML"), base="none"),
    "no command": said("train", "-c", "x.yaml", words=("'train' is no command; did you mean fit?",), base="none"),
    "a slip in a command": said("validat", "-c", "x.yaml", words=("did you mean validate?",), base="none"),
    "a slip in another program's key": said("--model.lerning_rate", "1e-5", words=("model.lerning_rate: GRPOModule has no such key; did you mean model.optimizer.init_args.lr?",)),
    "another program's key": said("--learning_rate", "1e-5", words=("learning_rate: there is no such key; did you mean model.optimizer.init_args.lr?",)),
    "a number in a list": said("--model.rewards.1.weight", "2", words=("model.rewards.1.weight: elements of a list have no numbers", "model.rewards.weight is the key of the last one, DigitShare")),
    "a key of the policy": said("--model.adapter", "x", words=("model.adapter: GRPOModule has no such key; did you mean model.policy.adapter?",)),
    "a stray argument": said("foo", words=("unrecognized arguments: foo",)),
    "a stray argument after a model": said("--model.policy.path", "x", "foo", words=("unrecognized arguments: foo",)),
    "no such file": said("fit", "-c", "no.yaml", words=("config", "no.yaml", "No such file", "{cwd}"), base="none"),
    "not yaml": said("fit", "-c", "a: [1\n", words=("config", "is not YAML", "line"), base="none"),
    "a list of keys": said("fit", "-c", "- 1\n", words=("config", "list", "keys"), base="none"),
    "unknown key": said("--model.rate", "1", words=("model.rate", "GRPOModule", "did you mean")),
    "unknown top key": said("--models.policy", "x", words=("models.policy", "model")),
    "unknown key in yaml": Mistake(model(train_batch_sizes=8), ("model.train_batch_sizes", "train_batch_size?")),
    "unknown section in yaml": Mistake({"trainr": {"x": 1}}, ("trainr", "trainer")),
    "unknown trainer key": Mistake(trainer(max_epoch=1), ("trainer.max_epoch", "max_epochs")),
    "unknown model class": Mistake({"model": {"class_path": "r1lit.modules.GRPO"}}, ("model", "r1lit.modules.GRPO", "did you mean GRPOModule?")),
    "unknown short name": said("--model.objective", "DAPOO", words=("objective", "DAPOO", "DAPO")),
    "unknown objective": Mistake(objective("GRPOO"), ("objective", "GRPOO", "GRPO")),
    "unknown module": Mistake(reward("my_reward.Brevity"), ("rewards", "my_reward", "PYTHONPATH")),
    "unknown optimizer": Mistake(model(optimizer={"class_path": "torch.optim.AdamX"}), ("model.optimizer", "AdamX", "Adam?")),
    "text for a number": said("--model.train_batch_size", "many", words=("train_batch_size", "many", "int")),
    "text for a rate": said("--model.optimizer.lr", "fast", words=("lr", "fast", "float")),
    "negative rate": said("--model.optimizer.lr=-1", words=("optimizer.lr", "-1", "at least 0")),
    "null for keys of the data": Mistake(data(packing=None), ("data.packing: null is not a mapping", "leave it out")),
    "null for keys of the model": Mistake(model(sampling=None), ("model.sampling: null is not a mapping", "leave it out")),
    "no iterations": Mistake(data(num_iterations=0), ("data.num_iterations", "0", "at least 1")),
    "group of one": Mistake(data(rollout={"group_size": 1}), ("group_size", "1", "2")),
    "no prompts": Mistake(data(rollout={"prompts_per_iteration": 0}), ("prompts_per_iteration", "0", "1")),
    "batch that does not divide": Mistake(model(train_batch_size=6), ("train_batch_size", "6", "16 rows")),
    "no micro-batch": Mistake(model(micro_batch_tokens=0), ("micro_batch_tokens", "0", "at least 1")),
    "negative norm": Mistake(model(max_grad_norm=-1), ("max_grad_norm", "-1", "0 switches clipping off")),
    "accumulated batches": Mistake(trainer(accumulate_grad_batches=2), ("trainer.accumulate_grad_batches", "2", "micro_batch_tokens")),
    "text for iterations": said("--trainer.max_epochs", "abc", words=("trainer.max_epochs", "abc", "int")),
    "unknown key of a group": Mistake(data(rollout={"group_sizes": 4}), ("data.rollout.group_sizes", "no such key", "group_size?")),
    "unknown key of a group on the command line": said("--model.sampling.temprature", "1", words=("model.sampling.temprature", "GRPOModule", "temperature?")),
    "an unknown group": said("--data.rollouts.group_size", "4", words=("data.rollouts.group_size", "R1DataModule", "rollout.group_size?")),
    "a key of an engine that is not named": said("--model.engine.max_rows", "8", words=("model.engine", "no class", "InProcessEngine")),
    "rows and documents of an update": Mistake(data(packing={"train_batch_size": 1, "documents_per_update": 8}), ("data.packing.train_batch_size", "1", "documents_per_update: 8", "null")),
    "an own reward's unknown key": Mistake(reward("cli.test_mistakes.brevity", limits=5), ("rewards", "cli.test_mistakes.brevity", "limits")),
    "a config of the checkout": said("fit", "-c", "configs/sft.yaml", words=("config", "configs/sft.yaml", "r1lit:sft.yaml"), base="none"),
    "clipped by the trainer": Mistake(trainer(gradient_clip_val=1.0), ("trainer.gradient_clip_val", "1.0", "max_grad_norm")),
    "unknown accelerator": Mistake(trainer(accelerator="tpuu"), ("trainer", "accelerator='tpuu'", "cpu")),
    "missing cuda": Mistake(trainer(accelerator="cuda"), ("trainer", "accelerator: cuda", "CUDA", "['cpu']")),
    "any gpu": Mistake(trainer(accelerator="gpu"), ("trainer.accelerator", "'gpu'", "use auto", "cpu")),
    "devices in words": said("--trainer.devices", "two", words=("trainer", "devices: two", "CPU", "int > 0")),
    "unknown precision": Mistake(trainer(precision="fp8"), ("trainer.precision", "fp8", "bf16-mixed")),
    "unusable precision": Mistake(trainer(precision="bf16-true"), ("precision", "bf16-true", "bf16-mixed")),
    "a strategy that spawns": Mistake(trainer(strategy="ddp_spawn", devices=2), ("trainer.strategy: 'ddp_spawn'", "use ddp")),
    "unknown strategy": Mistake(trainer(strategy="ddpp"), ("trainer", "strategy='ddpp'", "auto, ddp")),
    "never an evaluation": Mistake(trainer(val_check_interval=0, limit_val_batches=1), ("trainer.val_check_interval", "0", "at least 1")),
    "a callback twice": Mistake(trainer(callbacks=[{"class_path": "r1lit.callbacks.CurveWriter"}] * 2), ("trainer", "more than one", "callback", "CurveWriter")),
    "unknown logger": Mistake(trainer(logger={"class_path": LIGHTNING + "loggers.TensorLogger"}), ("trainer.logger", "TensorLogger", "TensorBoardLogger")),
    "unknown short name of a callback": said("--trainer.callbacks+=ResponseLenght", words=("trainer.callbacks", "ResponseLenght", "ResponseLength?")),
    "unknown callback": Mistake(callback("CurveWriters"), ("trainer.callbacks", "CurveWriters", "CurveWriter")),
    "never a checkpoint": Mistake(callback("IterationCheckpoint", every_n_iterations=0), ("every_n_iterations", "0", "at least 1")),
    "checkpoints that do not fit": Mistake(callback("IterationCheckpoint", every_n_iterations=2, keep_every_n_iterations=3), ("keep_every_n_iterations", "3", "multiple")),
    "no cons": Mistake(callback("CurveWriter", cons_k=0), ("cons_k", "0", "at least 1")),
    "two folders": said("--run", "a", "--trainer.default_root_dir", "b", words=("run", "a", "b", "one folder")),
    "a file where runs belong": said("--run", "sums.jsonl/mine/a", words=("run: sums.jsonl/mine/a", "sums.jsonl is a file", "--run")),
    "checkpoint that is not there": said("--ckpt_path", "no.ckpt", words=("ckpt_path", "no.ckpt")),
    "checkpoint by url": said("--ckpt_path", "https://x.org/a.ckpt", words=("ckpt_path", "https://x.org/a.ckpt", "file")),
    "unknown template": Mistake(data(prompts={"template": "chatt"}), ("template", "chatt", "'chat'", "r1_zero", "{question}")),
    "wording without question": Mistake(data(prompts={"wording": "Say it."}), ("wording", "Say it.", "{question}")),
    "long prompts": Mistake(data(prompts={"max_tokens": 20}), ("data.prompts.max_tokens", "20")),
    "negative temperature": Mistake(model(sampling={"temperature": -1.0}), ("temperature", "-1.0", "0 is greedy")),
    "top_p above 1": Mistake(model(sampling={"top_p": 2.0}), ("top_p", "2.0", "at most 1")),
    "no tokens": Mistake(model(sampling={"max_tokens": 0}), ("max_tokens", "0", "at least 1")),
    "too many tokens": Mistake(model(sampling={"max_tokens": 400}), ("max_tokens", "400", "256")),
    "empty stop": Mistake(model(sampling={"stop": [""]}), ("stop", "non-empty")),
    "negative clip": Mistake(objective("GRPO", epsilon=-0.1), ("epsilon", "-0.1", "at least 0")),
    "negative penalty": Mistake(objective("GRPO", beta=-0.1), ("beta", "-0.1")),
    "no policy": Mistake(model(policy="./nope"), ("policy", "./nope", "does not exist", "{cwd}")),
    "misspelt policy folder": Mistake(model(policy="runs/polcy"), ("policy", "runs/polcy", "does not exist", "{cwd}")),
    "policy that is a file": Mistake(model(policy="{table}"), ("policy", "sums.jsonl", "does not exist")),
    "folder without a model": Mistake(model(policy="{folder}"), ("policy", "config.json")),
    "policy by url": Mistake(model(policy="https://x.org/m"), ("policy", "https://x.org/m", "owner/model")),
    "unknown dtype": Mistake(model(policy={"dtype": "float23"}), ("dtype", "float23", "float32 or bfloat16")),
    "unknown attention": Mistake(model(policy={"attention": "flashh"}), ("attention", "flashh", "eager")),
    "no rewards": Mistake(model(rewards=[]), ("rewards", "at least one")),
    "rewards of one name": Mistake(model(rewards=[{"class_path": "r1lit.rewards.Accuracy"}] * 2), ("rewards", "accuracy", "two")),
    "a reward's own refusal": Mistake(reward("r1lit.rewards.RewardModel", model=str(ROOT / "models/mini")), ("model:", "models/mini", "holds a language model, not a reward model")),
    "weight without end": Mistake(reward("r1lit.rewards.Accuracy", weight=float("inf")), ("weight", "inf", "accuracy")),
    "one key of a list's entry": said("--model.steps.min_std", "0.45", words=("model.steps", "min_std", "give it whole, as --model.steps '[")),
    "a key beside class_path": Mistake(model(rewards=[{"class_path": "r1lit.rewards.Format", "weight": 3}]), ("model.rewards", "'weight'", "under init_args")),
    "a key beside a function": Mistake(model(rewards=[{"class_path": "cli.test_mistakes.brevity", "limit": 3}]), ("model.rewards", "'limit'", "under init_args")),
    "misspelt init_args": Mistake(model(objective={"class_path": "r1lit.objectives.GRPO", "init_arg": {"beta": 0.1}}), ("model.objective", "'init_arg'", "did you mean init_args?")),
    "a reward's unknown key": Mistake(reward("r1lit.rewards.Accuracy", wight=1.0), ("rewards.wight", "weight?")),
    "a reward that crashes": Mistake(reward("cli.test_mistakes.Broken"), ("reward function 'broken'", "ZeroDivisionError", "test_mistakes.py")),
    "a misspelt reward function": said("--model.rewards+", "cli.test_mistakes.brevty", words=("model.rewards", "brevty", "did you mean brevity?")),
    "a reward in the place of the list": said("--model.rewards", "cli.test_mistakes.brevity", words=("model.rewards", "is not a list", "--model.rewards+ ONE")),
    "a reward too few": Mistake(reward("cli.test_mistakes.TooFew"), ("too_few", "1 rewards", "2 responses")),
    "a verifier that crashes": Mistake(model(grader={"class_path": "r1lit.verifiers.Grader", "init_args": {"verifiers": {"countdown": {"class_path": "cli.test_mistakes.BrokenVerifier"}, "math": {"class_path": "cli.test_mistakes.BrokenVerifier"}}}}), ("verifier 'countdown'", "KeyError", "solution", "test_mistakes.py")),
    "a verifier without a verdict": Mistake(model(grader={"class_path": "r1lit.verifiers.Grader", "init_args": {"verifiers": {n: {"class_path": "cli.test_mistakes.Wordy"} for n in ("countdown", "math")}}}), ("verifier: 'countdown'", "'right'", "Verdict(")),
    "a callback that crashes": Mistake(trainer(callbacks=[{"class_path": "cli.test_mistakes.Clumsy"}]), ("ZeroDivisionError", "test_mistakes.py, line", "on_train_batch_start")),
    "a key of the other half": Mistake(data(sampling={"max_tokens": 9}), ("data.sampling.max_tokens", "did you mean model.sampling.max_tokens?")),
    "a key cut short": said("--trainer.max_epoch", "1", words=("trainer.max_epoch", "did you mean max_epochs?")),
    "a key of the other half on the command line": said("--model.rollout.group_size", "9", words=("model.rollout.group_size", "did you mean data.rollout.group_size?")),
    "a key without its group": Mistake(data(group_size=9), ("data.group_size", "did you mean data.rollout.group_size?")),
    "a number for a group": said("--model.sampling", "5", words=("model.sampling: '5'", "mapping")),
    "a list on the command line": said("--model.rewards", "[{class_path: r1lit.rewards.Accuracy, init_args: {wight: 1}}]", words=("model.rewards.wight", "weight?")),
    "a key twice": said("fit", "-c", "{run: a, trainer: {max_epochs: 1}, run: b}", words=("config", "'run' is there twice"), base="none"),
    "a run folder without a name": said("--run", "", words=("run: ''", "--run")),
    "a judge that never decides": Mistake(merge(table(path="{table}", verifier="judge"), model(grader={"class_path": "r1lit.verifiers.Grader", "init_args": {"verifiers": {"judge": {"class_path": "cli.test_mistakes.Silent"}}}})) , ("data.train", "verifier 'judge' decided about none", "no verdict in the reply")),
    "no problems": Mistake(data(train=None), ("data.train", "data.documents")),
    "problems that are held out": Mistake(data(train=[{"class_path": "r1lit.worlds.WorldCountdown", "init_args": {"split": "held_out", "num_problems": 3}}]), ("data.validation", "countdown", "allow_overlap: true")),
    "no table": Mistake(table(path="no.jsonl"), ("path", "no.jsonl", "no file")),
    "table of another kind": Mistake(table(path="table.xlsx"), ("path", "table.xlsx", ".jsonl")),
    "beginning of a key": said("--model.sampling.max_token", "9", words=("model.sampling.max_token:", "did you mean max_tokens")),
    "weights as a checkpoint": said("--ckpt_path", str(ROOT / "models/mini"), words=("ckpt_path", "models/mini", "set model.policy to it")),
    "logger whose package is not there": said("--trainer.logger", f"{LIGHTNING}loggers.CometLogger", words=("CometLogger", "comet-ml", "pip install")),
    "configuration without -c": said("my.yaml", words=("my.yaml", "-c my.yaml")),
    "reward that takes nothing": Mistake(model(rewards=["cli.test_mistakes.takes_nothing"]), ("model.rewards", "cli.test_mistakes.takes_nothing", "called with a list of responses")),
    "reward that is a text": Mistake(model(rewards=["cli.test_mistakes.LIGHTNING"]), ("model.rewards", "cli.test_mistakes.LIGHTNING", "neither a function nor a class")),
    "run that cannot be made": said("--run", "/proc/x/y", words=("run: /proc/x/y cannot be made",)),
    "file of data in another folder": Mistake(table(path="my/sums.jsonl"), ("path: there is no file 'my/sums.jsonl'", "{cwd}")),
    "a line of 50 MB": Mistake(table(path="{long}"), ("question: row 2 of", "long.jsonl", "50,000,010 characters", "5,000,000")),
    "column that is not there": Mistake(table(path="{table}", question="problem"), ("question", "problem", "answer")),
    "broken line": Mistake(table(path="{broken}"), ("path", "broken.jsonl", "line 2")),
    "empty table": Mistake(table(path="{empty}"), ("path", "empty.jsonl", "0 rows")),
    "unknown verifier": Mistake(table(path="{table}", verifier="maths"), ("verifier", "maths", "did you mean math?")),
    "pattern that is none": Mistake(table(path="{table}", answer_pattern="("), ("answer_pattern", "(")),
    "pattern that finds nothing": Mistake(table(path="{table}", answer_pattern="####(.*)"), ("answer_pattern", "####")),
    "problems for supervised training": Mistake(data(validation=None), ("SFTModule", "data.documents"), base="sft"),
    "documents for reinforcement learning": Mistake(data(train=None, validation=None, documents=[{"class_path": "r1lit.data.TableDocuments", "init_args": {"path": "{table}", "prompt": "question", "response": "answer"}}]), ("GRPOModule", "data.train", "SFTModule")),
    "key of an older version": Mistake(model(rows_per_update=8), ("model.rows_per_update", "GRPOModule has no such key")),
    "refresh without reference": Mistake(callback("ReferenceRefresh", every_n_iterations=0), ("every_n_iterations", "0", "at least 1")),
    "test without problems": Mistake(data(test=None), ("test", "data.test", "null"), base="test"),
    "prediction that nothing keeps": said(words=("model", "GRPOModule", "EvaluationModule", "responses.jsonl"), base="fit as predict"),
    "validation of nothing": said("--trainer.limit_val_batches", "0", words=("trainer.limit_val_batches", "0", "1.0"), base="fit as validate"),
    "fit of an evaluation": said(words=("model", "EvaluationModule", "test and predict"), base="test as fit"),
    "test of a training module": said(words=("data.test",), base="fit as test"),
    "no samples": Mistake(data(evaluation={"num_samples": 0}), ("num_samples", "0"), base="test"),
    "unknown meta": Mistake(model(by=["levl"]), ("by", "levl", "meta"), base="test"),
    "validate without problems": Mistake(data(validation=None), ("validate", "data.validation"), ("--trainer.limit_val_batches", "1.0"), base="fit as validate"),
    "a key of another engine": Mistake(model(engine={"class_path": "r1lit.rollout.ServerEngine", "init_args": {"max_rows": None}}), ("engine.max_rows", "ServerEngine", "concurrency"), base="test"),
}  # fmt: skip


@pytest.fixture
def command(tmp_path: Path, policy: Path):
    """Write what a mistake is made in; return its command line."""
    row = json.dumps({"question": "What is 1 + 1?", "answer": "2"}) + "\n"
    paths = {name: tmp_path / f"{name}.jsonl" for name in ("table", "broken", "empty")}
    paths["table"] = tmp_path / "sums.jsonl"
    paths["table"].write_text(row * 4)
    paths["broken"].write_text(row + "{question:\n")
    paths["empty"].write_text("")
    paths["folder"] = tmp_path
    (tmp_path / "runs").mkdir()
    (tmp_path / "weights.safetensors").write_bytes(b"\xd0\x00")
    paths["long"] = tmp_path / "long.jsonl"

    def make(mistake: Mistake) -> list[str]:
        if "{long}" in str(mistake.change):
            paths["long"].write_text(row + row.replace("What", "What " * 10_000_000))
        text = yaml.safe_dump(mistake.change)
        for name, path in paths.items():
            text = text.replace("{" + name + "}", str(path))
        change = yaml.safe_load(text)
        if mistake.base == "none":
            return list(mistake.args)
        start, _, command = mistake.base.partition(" as ")
        if start == "test":
            config = evaluation_config(tmp_path, policy, change)
        elif start == "sft":
            config = grpo_config(tmp_path / "run", policy, merge(BARE, change))
            whole = yaml.safe_load(config.read_text())
            whole["model"] = {**SFT, "init_args": {"policy": str(policy)}}
            config.write_text(yaml.safe_dump(whole))
        else:
            config = grpo_config(tmp_path / "run", policy, merge(BARE, change))
        return [command or ("test" if start == "test" else "fit"), "-c", str(config), *mistake.args]

    return make


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_ends_in_one_line(name: str, command, capsys, monkeypatch, tmp_path) -> None:
    mistake = MISTAKES[name]
    if name in ("missing cuda", "any gpu") and torch.accelerator.is_available():
        pytest.skip("it is no mistake on this machine")
    monkeypatch.chdir(tmp_path)
    arguments = command(mistake)
    with pytest.raises(SystemExit) as stop:
        run_script("r1lit", lambda: main(arguments))
    lines = capsys.readouterr().err.strip().splitlines()
    assert stop.value.code == 2, lines
    (line,) = [line for line in lines if line.startswith("r1lit: error: ")]
    assert line == next(text for text in reversed(lines) if not text.startswith("  "))
    words = [word.replace("{cwd}", str(tmp_path)) for word in mistake.words]
    missing = [word for word in words if word not in line]
    assert not missing, line
