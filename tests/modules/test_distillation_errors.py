"""What a distillation refuses, before training, and in which words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny import data, save_policy
from tiny_distillation import off_policy, on_policy
from transformers import AutoTokenizer

from r1lit.cli import main


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_policy(tmp_path_factory.mktemp("teacher"), seed=11)


def of(path: Path | str, **init_args: Any) -> dict[str, Any]:
    return {
        "class_path": "r1lit.policy.ModelTeacher",
        "init_args": {"model": str(path), **init_args},
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"logit_weight": 1.0}, "teacher: null, but logit_weight: 1.0 needs"),
        ({"logit_weight": -1.0}, "logit_weight: -1.0 is not at least 0; 1 is usual"),
        ({"sft_weight": 0.0}, "sft_weight and logit_weight are both 0"),
        ({"temperature": 0.0}, "temperature: 0.0 is not above 0"),
        ({"on_policy": 1.5}, "on_policy: 1.5 is not between 0 and 1"),
        ({"on_policy": 0.5}, "logit_weight: 0 leaves nothing to learn"),
        ({"on_policy": 0.5, "logit_weight": 1.0, "t": 1}, "sampling: null, but on_policy: 0.5"),
        ({"logit_weight": 1.0, "t": 1, "on_policy": 1.0, "sampling": {"max_tokens": 8}},
         "data.train: null, but with on_policy: 1.0"),
        ({"logit_weight": 1.0, "t": 1,
          "divergence": {"class_path": "r1lit.objectives.SampledReverseKL"}},
         "SampledReverseKL is right at tokens that the student sampled, not with on_policy: 0.0"),
        ({"logit_weight": 1.0, "t": 1,
          "divergence": {"class_path": "r1lit.objectives.GeneralizedJSD",
                         "init_args": {"beta": 1.0}}}, "beta=1.0"),
        ({"logit_weight": 1.0, "t": "missing"}, "teacher: the directory .* does not exist"),
    ],
)  # fmt: skip
def test_settings(
    tmp_path: Path, policy: Path, teacher: Path, options: dict[str, Any], message: str
) -> None:
    named = options.pop("t", None)
    if named:
        options = {**options, "teacher": of(teacher if named == 1 else tmp_path / "missing")}
    with pytest.raises(ValueError, match=message):
        main(["fit", "-c", str(off_policy(tmp_path / "run", policy, **options))])


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {"on_policy": 0.0}, "data.documents: null, but on_policy: 0 learns"),
        ({}, {"on_policy": 0.5}, "data.rollout.group_size: 4 with on_policy: 0.5"),
        (
            data(rollout={"group_size": 1}),
            {"on_policy": 0.5},
            "holds no text under 'response' in its meta",
        ),
        (data(rollout={"num_reserve_prompts": 4}), {}, "data.rollout.num_reserve_prompts: 4"),
        ({}, {"divergence": {"class_path": "r1lit.objectives.SampledReverseKL"},
              "sampling": {"temperature": 0.7, "max_tokens": 8}}, "temperature 0.7, top_p 1.0"),
        ({}, {"sampling": {"max_tokens": 250}}, "max_tokens: 250 after a prompt"),
    ],
)  # fmt: skip
def test_settings_on_policy(
    tmp_path: Path, policy: Path, teacher: Path, change: dict[str, Any], options: dict[str, Any],
    message: str,
) -> None:  # fmt: skip
    path = on_policy(tmp_path / "run", policy, change, **{"teacher": of(teacher), **options})
    with pytest.raises(ValueError, match=message):
        main(["fit", "-c", str(path)])


def test_another_vocabulary_is_refused_before_weights_are_loaded(
    tmp_path: Path, policy: Path, teacher: Path
) -> None:
    """The teacher's directory has no weights at all."""
    other = tmp_path / "other"
    tokenizer = AutoTokenizer.from_pretrained(teacher)
    tokenizer.add_tokens(["<more>"])
    tokenizer.save_pretrained(other)
    (other / "config.json").write_text((teacher / "config.json").read_text())
    path = off_policy(tmp_path / "run", policy, teacher=of(other), logit_weight=1.0)
    with pytest.raises(ValueError, match=r"teacher: .* has a vocabulary of .*logit_weight: 0"):
        main(["fit", "-c", str(path)])
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_documents_longer_than_the_teachers_context(
    tmp_path: Path, policy: Path, teacher: Path
) -> None:
    short = tmp_path / "short"
    save_policy(short, seed=11)
    config = json.loads((short / "config.json").read_text())
    (short / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 8}))
    path = off_policy(tmp_path / "run", policy, teacher=of(short), logit_weight=1.0)
    with pytest.raises(ValueError, match="attends over 8 tokens, but there may be"):
        main(["fit", "-c", str(path)])
