"""What callbacks write to a run folder, and when they act."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import lightning.pytorch as pl
import pytest
import torch
import yaml
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny import data, save_policy
from tiny_run import TinyModule, response, rollout_of, trainer_of

from r1lit.callbacks import (
    CurveWriter,
    EvaluateFirst,
    ExportHuggingFace,
    GroupHealth,
    MajorityVoteEvaluation,
    ReferenceRefresh,
    ReflectionWords,
    ResponseLength,
    ResponseTable,
    figures,
)
from r1lit.callbacks.checkpoints import save_in
from r1lit.callbacks.curves import evaluation_record, finite
from r1lit.callbacks.figures import plot_curves, plot_losses
from r1lit.cli import main
from r1lit.evaluation.compare import compare_runs
from r1lit.evaluation.records import by_problem, read_evaluation, summarise
from r1lit.files import read_records
from r1lit.policy import ModelSource, load_config, load_policy


def full_run(folder: Path, num_train: int = 5, **named) -> pl.Trainer:
    callbacks = [
        CurveWriter(str(folder), **named),
        EvaluateFirst(),
        ReflectionWords(window=1, min_rate=0.01),
        ResponseLength(),
        MajorityVoteEvaluation(),
        GroupHealth(),
    ]
    trainer = trainer_of(folder, callbacks)
    trainer.fit(TinyModule(num_train=num_train))
    return trainer


@pytest.mark.long
def test_curve_writer_keeps_what_was_logged(tmp_path):
    trainer = full_run(tmp_path)
    logged = trainer.logger.by_step()
    lines = read_records(tmp_path / "metrics.jsonl")
    assert [line["iteration"] for line in lines] == [0, 1, 2, 3, 4]
    for line in lines:
        names = set(line) - {"iteration", "seconds"}
        assert "train/length/mean" in names and "train/groups/mixed" in names
        assert not any(name.startswith("val/") for name in names)
        for name in names:
            assert line[name] == pytest.approx(logged[line["iteration"], name], rel=1e-6)
    evaluations = json.loads((tmp_path / "summary.json").read_text())
    assert [e["iteration"] for e in evaluations] == [0, 2, 4, 5]
    for evaluation, step in zip(evaluations, (0, 1, 3, 4), strict=True):
        assert evaluation["cons_at_4"] == pytest.approx(logged[step, "val/cons_at_4"], rel=1e-6)
        assert evaluation["format"] == logged[step, "val/reward/format"] == 1.0
        assert set(evaluation["pass_at_1_by_source"]) == {"countdown", "arithmetic"}
        assert (evaluation["num_problems"], evaluation["num_samples"]) == (4, 4)
    assert evaluations[0]["onset"] == {} and evaluations[-1]["onset"]["wait"] in range(1, 4)
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "curves.pdf").read_bytes().startswith(b"%PDF")


def test_a_figure_is_drawn_once_for_the_same_numbers(tmp_path, monkeypatch):
    drawn = []

    def note(figure, path, draw=figures.save_figure):
        drawn.append((path.name, len(read_records(tmp_path / "metrics.jsonl"))))
        draw(figure, path)

    monkeypatch.setattr(figures, "save_figure", note)
    writer = CurveWriter(str(tmp_path), draw_every_n_iterations=3)
    callbacks = [EvaluateFirst(), writer, ResponseLength(), GroupHealth()]
    trainer_of(tmp_path, callbacks).fit(TinyModule(num_train=5))
    png, pdf = "curves.png", "curves.pdf"
    assert drawn == [(png, 2), (png, 3), (png, 4), (png, 5), (pdf, 5)]  # none before an iteration


def test_responses_of_a_validation_give_the_report_that_its_curves_show(tmp_path, capsys):
    """One path: the lines of ``responses.jsonl`` hold what ``summary.json`` was computed from."""
    for name in ("a", "b"):
        callbacks = [
            CurveWriter(str(tmp_path / name), draw_every_n_iterations=0),
            MajorityVoteEvaluation(),
            ResponseLength(),
            ResponseTable(str(tmp_path / name), every_n_iterations=1),
        ]
        trainer_of(tmp_path / name, callbacks).fit(TinyModule(num_train=4))
    shown = json.loads((tmp_path / "a/summary.json").read_text())[-1]
    records = read_evaluation(tmp_path / "a/responses.jsonl")
    assert {(r["split"], r["iteration"]) for r in records} == {("val", 4)}
    report = summarise(by_problem(records), settings={})
    assert (report["num_problems"], report["num_samples"]) == (4, 4)
    length = report["response_length"]
    for key, value in (
        ("pass_at_1", report["pass_at_1"]["value"]),
        ("pass_at_1_stderr", report["pass_at_1"]["stderr"]),
        ("cons_at_4", report["cons_at_k"]["4"]["value"]),
        ("response_length_tokens", length["mean"]),
        ("response_length_right", length["right"]),
        ("response_length_wrong", length["wrong"]),
        ("truncated", report["truncated"]),
    ):
        assert shown[key] == pytest.approx(value, rel=1e-6), key
    assert 0 < shown["pass_at_1"] < 1 and shown["pass_at_1"] != shown["cons_at_4"]
    assert compare_runs(tmp_path / "a", tmp_path / "b").mean == 0.0


def test_cons_k_names_the_key(tmp_path):
    full_run(tmp_path, num_train=2, cons_k=2, draw_every_n_iterations=0)
    evaluation = json.loads((tmp_path / "summary.json").read_text())[-1]
    assert [key for key in evaluation if key.startswith("cons_at_")] == ["cons_at_2"]


def test_seconds_leave_evaluations_out(tmp_path, monkeypatch):
    now = 0.0
    monkeypatch.setattr("r1lit.callbacks.curves.time.monotonic", lambda: now)

    class Slow(TinyModule):
        def training_step(self, batch, batch_idx):
            nonlocal now
            now += 10.0
            return super().training_step(batch, batch_idx)

        def validation_step(self, batch, batch_idx):
            nonlocal now
            now += 1000.0
            return super().validation_step(batch, batch_idx)

    writer = CurveWriter(str(tmp_path), draw_every_n_iterations=0)
    callbacks = [writer, EvaluateFirst(), MajorityVoteEvaluation()]
    trainer_of(tmp_path, callbacks).fit(Slow(num_train=4))
    lines = read_records(tmp_path / "metrics.jsonl")
    assert [line["seconds"] for line in lines] == [10, 20, 30, 40]
    evaluations = json.loads((tmp_path / "summary.json").read_text())
    assert [(e["iteration"], e["seconds"]) for e in evaluations] == [(0, 0), (2, 20), (4, 40)]


def test_an_evaluation_has_every_key_whatever_was_logged():
    empty = evaluation_record(3, 1.5, {}, cons_k=16)
    named = "iteration pass_at_1 cons_at_16 response_length_tokens format seconds"
    assert set(named.split()) | {"reflection_words_per_response"} <= set(empty)
    assert empty["pass_at_1"] is None and empty["onset"] == {}
    assert finite({"a": float("nan"), "b": torch.tensor(0.1)}) == {"b": 0.1}


def test_the_figure_shows_every_series():
    evaluations = [
        evaluation_record(
            i,
            1.0,
            {
                "val/pass_at_1": 0.1 * i,
                "val/pass_at_1_stderr": 0.01,
                "val/cons_at_16": 0.2 * i,
                "val/length/mean": 10.0 * i,
                "val/length/right": 9.0 * i,
                "val/reward/format": 1.0,
                "val/length/truncated": 0.0,
                "val/reflection/per_response": 0.5 * i,
                "val/reflection/word/wait": 0.5 * i,
                "val/reflection/word/but": 0.0,
            },
            16,
        )
        for i in range(4)
    ]
    iterations = [{"iteration": i, "train/length/mean": 1.0 + i} for i in range(3)]
    axes = plot_curves(evaluations, iterations).axes
    labels = [ax.get_legend_handles_labels()[1] for ax in axes]
    assert labels[0] == ["pass@1 (± 1 s.e.)", "cons@16"]
    assert labels[1] == ["training rollouts", "evaluation", "right answers"]
    assert labels[2] == ["all ten, evaluation", "“wait”"]
    assert labels[3] == ["well-formed", "truncated"]
    assert axes[1].lines[0].get_ydata().tolist() == [1.0, 2.0, 3.0]
    assert all(ax.get_xlabel() == "iteration" and ax.get_ylabel() for ax in axes)
    assert len(plot_curves([], []).axes) == 4


@pytest.mark.parametrize("draw", [plot_curves, plot_losses])
def test_a_run_that_is_known_is_named_below_its_figure(draw):
    evaluations = [{"iteration": 0, "num_problems": 4, "num_samples": 16}]
    said = draw(evaluations, [], "models/mini, seed 0").get_supxlabel()
    assert said.startswith("models/mini, seed 0")
    assert ("4 held-out problems × 16 responses" in said) == (draw is plot_curves)
    assert draw([], []).get_supxlabel() == ""


def test_evaluate_first_reaches_tensorboard_at_step_0_and_leaves_no_trace(tmp_path):
    class States(pl.Callback):
        """Notes the trainer's state at the first training batch."""

        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            if batch_idx == 0:
                self.noted = (trainer.training, pl_module.training, torch.is_grad_enabled())
                self.progress = trainer.fit_loop.epoch_loop.val_loop.batch_progress.total.ready

    states = States()
    callbacks = [EvaluateFirst(), MajorityVoteEvaluation(), states]
    trainer = trainer_of(tmp_path, callbacks, logger=TensorBoardLogger(tmp_path, name="tb"))
    trainer.fit(TinyModule(num_train=4))
    events = EventAccumulator(trainer.logger.log_dir).Reload()
    assert [e.step for e in events.Scalars("val/pass_at_1")] == [0, 1, 3]
    assert [e.step for e in events.Scalars("train/loss")] == [0, 1, 2, 3]
    assert states.noted == (True, True, True)
    assert states.progress == 0


def test_evaluate_first_does_nothing_without_validation(tmp_path):
    trainer = trainer_of(tmp_path, [EvaluateFirst()], limit_val_batches=0)
    trainer.fit(TinyModule(num_train=2))
    assert not any(key.startswith("val/") for _, key in trainer.logger.by_step())


def test_response_table(tmp_path):
    table = ResponseTable(str(tmp_path), every_n_iterations=2, num_responses=3, num_problems=3)
    logger = TensorBoardLogger(tmp_path, name="tb")
    trainer_of(tmp_path, [table], logger=logger).fit(TinyModule(num_train=4))
    lines = read_records(tmp_path / "responses.jsonl")
    counts: dict[tuple[str, int], int] = {}
    for line in lines:
        key = (line["split"], line["iteration"])
        counts[key] = counts.get(key, 0) + 1
    assert counts == {("train", 0): 3, ("train", 2): 3, ("val", 2): 12, ("val", 4): 12}
    first = lines[0]
    assert first["uid"] == "train0-0" and first["source"] == "countdown"
    assert first["question"] == "train0-0: 3 + 4 = ?" and first["answer"] == "7"
    assert first["response"].startswith("<think> but")
    assert first["rewards"] == {"accuracy": float(first["status"] == "right"), "format": 1.0}
    assert first["canonical"] in ("7", "8") and first["finished"] in (True, False)
    events = EventAccumulator(logger.log_dir).Reload()
    assert [e.step for e in events.Tensors("train/responses/text_summary")] == [0, 2]
    assert [e.step for e in events.Tensors("val/responses/text_summary")] == [2, 4]


def test_reference_refresh_follows_the_interval(tmp_path):
    trainer = trainer_of(tmp_path, [ReferenceRefresh(every_n_iterations=3)])
    module = TinyModule(num_train=7)
    trainer.fit(module)
    kl = [v for (_, key), v in sorted(trainer.logger.by_step().items()) if "kl_reference" in key]
    weights = [v for (_, key), v in sorted(trainer.logger.by_step().items()) if "loss" in key]
    references = [0.5] * 3 + [weights[2]] * 3 + [weights[5]]
    expected = [abs(w - r) for w, r in zip(weights, references, strict=True)]
    assert kl == pytest.approx(expected, abs=1e-6)
    assert float(module.reference) == pytest.approx(weights[5])


def test_reference_refresh_says_what_is_missing(tmp_path):
    class Without(TinyModule):
        refresh_reference = None

    class NoReference(TinyModule):
        def __init__(self):
            super().__init__()
            self.reference = None

        def training_step(self, batch, batch_idx):
            self.reference = torch.tensor(0.0)  # what the double's step reads
            outputs = super().training_step(batch, batch_idx)
            self.reference = None
            return outputs

        def refresh_reference(self):
            raise AssertionError("there is none to refresh")

    with pytest.raises(ValueError, match="has none"):
        trainer_of(tmp_path, [ReferenceRefresh()]).fit(Without())
    with pytest.warns(UserWarning, match="does nothing: objective.beta: 0"):
        trainer_of(tmp_path, [ReferenceRefresh(1)]).fit(NoReference())
    with pytest.raises(ValueError, match="every_n_iterations: 0 is not at least 1"):
        ReferenceRefresh(0)


class Saved:
    """Stands in for a policy or a tokenizer."""

    def __init__(self, name: str, module: TinyModule) -> None:
        self.name, self.module, self.fails_at = name, module, -1

    def save_pretrained(self, path: Path, weights: object = None) -> None:
        (Path(path) / self.name).write_text(str(int(self.module.iteration)))
        if int(self.module.iteration) == self.fails_at:
            raise OSError("disk full")


def exported(folder: Path, fails_at: int, **named) -> None:
    module = TinyModule(num_train=5)
    tokenizer = Saved("tokenizer", module)
    tokenizer.fails_at = fails_at
    module.policy, module.tokenizer = Saved("policy", module), tokenizer
    trainer_of(folder, [ExportHuggingFace(str(folder / "hf" / "policy"), **named)]).fit(module)


def test_export_at_the_end(tmp_path):
    exported(tmp_path, fails_at=-1)
    files = {p.name: p.read_text() for p in (tmp_path / "hf").rglob("*") if p.is_file()}
    assert files == {"policy": "5", "tokenizer": "5"}


def test_an_export_in_the_dtype_that_the_policy_came_in(tmp_path, caplog):
    folder = str(save_policy(tmp_path / "float32"))
    save_in(torch.bfloat16, load_policy(folder), tmp_path / "bfloat16", None)
    policy, config = load_policy(folder), load_config(str(tmp_path / "bfloat16"))
    again = dict(
        load_policy(ModelSource(str(tmp_path / "bfloat16"), dtype="bfloat16")).named_weights()
    )
    for name, weight in policy.named_weights():
        torch.testing.assert_close(again[name], weight.bfloat16(), rtol=0, atol=0)
    assert str(config.dtype).endswith("bfloat16")
    size = (tmp_path / "bfloat16" / "model.safetensors").stat().st_size
    assert size < 0.6 * (tmp_path / "float32" / "model.safetensors").stat().st_size

    module = SimpleNamespace(policy=policy, policy_config=config)
    line = "read from bfloat16 and is trained and exported in float32"
    with caplog.at_level(logging.INFO):
        ExportHuggingFace(dtype="bfloat16").on_fit_start(None, module)
        module.policy_config = load_config(folder)
        ExportHuggingFace().on_fit_start(None, module)
        assert line not in caplog.text
        module.policy_config = config
        ExportHuggingFace().on_fit_start(None, module)
    assert line in caplog.text


def test_a_module_with_nothing_to_export_is_refused_before_it_trains(tmp_path):
    class Bare(LightningModule):
        """Trains something of its own."""

    with pytest.raises(
        ValueError, match=r"ExportHuggingFace needs a module with exported\(\); Bare"
    ):
        ExportHuggingFace(str(tmp_path)).setup(Trainer(logger=False), Bare(), "fit")


def test_a_failed_export_leaves_the_last_good_one(tmp_path):
    with pytest.raises(ValueError, match="disk full"):
        exported(tmp_path, fails_at=4, every_n_iterations=2)
    target = tmp_path / "hf" / "policy"
    assert {p.name: p.read_text() for p in target.iterdir()} == {"policy": "2", "tokenizer": "2"}
    exported(tmp_path, fails_at=-1, every_n_iterations=2)  # what the failure left is no obstacle
    assert {p.name: p.read_text() for p in target.iterdir()} == {"policy": "5", "tokenizer": "5"}
    assert [p.name for p in target.parent.iterdir()] == ["policy"]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["validate", "test"])
def test_an_evaluation_of_a_run_folder_has_a_summary_and_replaces_its_own_responses_alone(
    fit, tmp_path, command
):
    fit("run", data(num_iterations=2))
    run, path = tmp_path / "run", tmp_path / "run.yaml"
    history = (run / "summary.json").read_bytes()
    of_the_fit = (run / "responses.jsonl").read_text()
    config = yaml.safe_load(path.read_text())
    config["data"]["init_args"]["test"] = config["data"]["init_args"]["validation"]
    path.write_text(yaml.safe_dump(config))
    for _ in range(2):
        main([command, "-c", str(path)])
        record = json.loads((run / f"{command}.json").read_text())
        written = (run / "responses.jsonl").read_text()
        assert written.startswith(of_the_fit)
        found = [json.loads(line) for line in written.removeprefix(of_the_fit).splitlines()]
        assert all(x["split"] == command and x["iteration"] == 0 for x in found)
        assert len(found) == 12 and record["num_problems"] == 3
        right = sum(line["status"] == "right" for line in found)
        assert record["pass_at_1"] == pytest.approx(right / 12)
    assert (run / "summary.json").read_bytes() == history


def test_a_run_that_rolls_nothing_out_has_a_figure_of_its_losses() -> None:
    iterations = [
        {"iteration": i, "train/loss": 2.0 - i, "train/grad_norm": 1.0, "train/learning_rate": 1e-6}
        for i in range(3)
    ]
    evaluations = [{"iteration": i, "loss": 2.5 - i} for i in (0, 3)]
    figure = plot_losses(evaluations, iterations)
    loss, norm, rate = figure.axes
    figure.canvas.draw()
    assert rate.yaxis.get_offset_text().get_text() == ""  # it would cover the legend
    drawn = {line.get_label(): list(line.get_ydata()) for line in loss.lines}
    assert drawn == {"training": [2.0, 1.0, 0.0], "held out": [2.5, -0.5]}
    assert all(len(axes.lines) == 1 for axes in (norm, rate))


@pytest.mark.long
def test_a_run_without_validation_is_drawn_to_its_end(tmp_path) -> None:
    callbacks = [CurveWriter(str(tmp_path)), ResponseLength(), GroupHealth()]
    trainer_of(tmp_path, callbacks, limit_val_batches=0).fit(TinyModule(num_train=3))
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    iterations = read_records(tmp_path / "metrics.jsonl")
    accuracy, length = plot_curves([], iterations).axes[:2]
    assert [len(line.get_xdata()) for line in (*accuracy.lines, *length.lines)] == [3, 3]


@pytest.mark.parametrize(("spread", "warned"), [(0.0, True), (0.5, False)])
def test_equal_rewards_of_several_iterations_are_warned_of(recwarn, spread, warned) -> None:
    health = GroupHealth()
    for iteration in range(6):
        rollout = rollout_of([response("4", False), response("5", False)], 2, iteration)
        rollout.reward_PG[:, 0] = spread
        health.summarise(health.rows(rollout), "train")
    said = [str(w.message) for w in recwarn if "so nothing is learned" in str(w.message)]
    assert len(said) == warned


class Unread(TinyModule):
    """A verifier reads an answer in ``num_read`` of its 16 first responses, and in none later."""

    def __init__(self, num_read: int) -> None:
        super().__init__()
        self.left = num_read

    def answer(self, stage, index, num_prompts):
        rollout = super().answer(stage, index, num_prompts)
        responses = []
        for own in rollout.responses:
            reads, self.left = self.left > 0, self.left - (stage == "val")
            verdict = replace(own.verdict, value=0.0, status="wrong" if reads else "unparsed")
            responses.append(replace(own, verdict=replace(verdict, reason="no box")))
        return replace(rollout, responses=tuple(responses))


@pytest.mark.parametrize("num_read", [0, 1])
def test_a_first_evaluation_in_which_no_answer_was_read_says_so_once(tmp_path, recwarn, num_read):
    trainer_of(tmp_path, [EvaluateFirst()]).fit(Unread(num_read))
    said = [str(w.message) for w in recwarn if "verifiers read an answer" in str(w.message)]
    assert len(said) == (num_read == 0)
    assert all("in 0 of 16 responses before training (16 times: no box)" in text for text in said)
