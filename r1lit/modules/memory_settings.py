"""What of a run's configuration decides its memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ADAPTER_SHARE = 0.01
PROMPT_TOKENS = 1024  # of the longest prompt, where data.prompts.max_tokens sets no limit
BESIDE = {"PPOModule": "critic_optimizer", "PRIMEModule": "process_optimizer"}
"""Modules that train a second model, and the key of its optimiser."""
WITH_REFERENCE = ("DPOModule", "OnlineDPOModule")
Config = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class MemorySettings:
    """What of a run's configuration decides its memory; ``weight`` and the like are in bytes.

    ``moments``: of the optimiser, for each weight that is trained. ``trained_beside``: of a
    critic or process model, all it needs for each of its weights. ``reward_models``: of all of
    them, for each weight of one. ``teacher``: the path of one in this process. ``micro_batch``:
    tokens of the largest. ``rows_decoded``: at a time in this process, of ``row_tokens`` at most,
    prompt included. ``served_share``: what of the GPU a vLLM takes.
    """

    ranks: int
    is_sharded: bool
    trains: bool
    weight: int
    product: int
    moments: int
    trained_share: float
    reduces_every_pass: bool
    has_reference: bool
    reward_models: int
    teacher_weight: int
    gradient_checkpointing: bool
    micro_batch: int
    rows_decoded: int
    row_tokens: int
    served_share: float
    in_4_bits: bool = False
    trained_beside: int = 0
    teacher: str | None = None


def read_settings(config: Config, ranks: int) -> MemorySettings:
    """Read them from a merged configuration, defaults spelt out or not."""
    model, data = _init_args(config.get("model")), _init_args(config.get("data"))
    trainer = config.get("trainer") or {}
    module = _name(config.get("model"))
    trains = module != "EvaluationModule"
    weight = _bytes(model.get("dtype") or ("float32" if trains else "bfloat16"))
    mixed = trainer.get("precision") == "bf16-mixed"
    longest = most_tokens(model)
    prompt = (data.get("prompts") or {}).get("max_tokens") or PROMPT_TOKENS
    rows = 0
    if longest:
        rollout = {"prompts_per_iteration": 16, "group_size": 16, **(data.get("rollout") or {})}
        rows = max(1, rollout["prompts_per_iteration"] * rollout["group_size"] // ranks)
    lengths = [prompt + longest if longest else 0]
    if data.get("documents"):
        lengths.append((data.get("packing") or {}).get("max_seq_len", 1024))
    if "train_batch_size" in data:  # pairs, or labelled responses
        lengths.append(data.get("max_tokens") or 1024)
    engine = model.get("engine")
    in_process = _name(engine) in ("", "InProcessEngine")
    served = _name(engine) == "VLLMEngine" and bool(_init_args(engine).get("serve"))
    flags = _init_args(engine).get("flags") or {}
    teacher = model.get("teacher") if _name(model.get("teacher")) == "ModelTeacher" else None
    return MemorySettings(
        ranks=ranks,
        is_sharded=_name(trainer.get("strategy")) == "ModelParallelStrategy",
        trains=trains,
        weight=weight,
        product=2 if mixed else weight,
        moments=_moments(model.get("optimizer"), weight),
        trained_share=1.0 if model.get("adapter") is None else ADAPTER_SHARE,
        in_4_bits=bool(model.get("quantization")),
        reduces_every_pass=bool(model.get("reduce_every_pass")),
        has_reference=module in WITH_REFERENCE
        or (_init_args(model.get("objective")).get("beta") or 0) > 0
        or (model.get("kl_in_reward") or 0) > 0,
        trained_beside=_beside(module, model, weight),
        reward_models=sum(
            _bytes(_init_args(each).get("dtype"))
            for each in _all(model.get("rewards"), ("RewardModel", "ProcessReward"))
        ),
        teacher=_init_args(teacher).get("path"),
        teacher_weight=0 if teacher is None else _bytes(_init_args(teacher).get("dtype")),
        gradient_checkpointing=bool(model.get("gradient_checkpointing")),
        micro_batch=max(model.get("micro_batch_tokens") or 4096, *lengths),
        rows_decoded=_init_args(engine).get("max_rows") or rows if in_process and longest else 0,
        row_tokens=prompt + longest,
        served_share=float(flags.get("gpu-memory-utilization", 0.9)) if served else 0.0,
    )


def most_tokens(model: Config) -> int:
    """Return the most tokens of a response that a module's arguments allow; 0 without rollouts.

    An evaluation of data beside supervised training is not counted.
    """
    if not model.get("sampling") or model.get("on_policy", 1.0) == 0:
        return 0
    later = model.get("max_tokens_from") or {}
    return max(model["sampling"].get("max_tokens") or 512, *later.values(), 0)


def _of(given: Any, key: str) -> Any:
    return given.get(key) if isinstance(given, Mapping) else None


def _init_args(given: Any) -> dict[str, Any]:
    return dict(_of(given, "init_args") or {})


def _name(given: Any) -> str:
    """Return a class's own name; "" for none."""
    path = _of(given, "class_path") if isinstance(given, Mapping) else given
    return str(path or "").rpartition(".")[2]


def _all(given: Any, names: Sequence[str]) -> list[Any]:
    """Return every mapping that names one of these classes, wherever it is nested."""
    if isinstance(given, Mapping):
        here = [given] if _name(given) in names and "class_path" in given else []
        return here + [each for value in given.values() for each in _all(value, names)]
    if isinstance(given, list):
        return [each for item in given for each in _all(item, names)]
    return []


def _bytes(dtype: Any) -> int:
    return 2 if dtype in ("bfloat16", "float16") else 4


def _moments(optimizer: Any, weight: int) -> int:
    path = str(_of(optimizer, "class_path") or "")
    if path.endswith("SGD"):
        return weight * bool(_init_args(optimizer).get("momentum"))
    return (3 if path.startswith("optimi.") and weight == 2 else 2) * weight


def _beside(module: str, model: Config, weight: int) -> int:
    """Return the bytes that a second trained model needs for each weight; PRIME's reference too."""
    if module not in BESIDE:
        return 0
    moments = _moments(model.get(BESIDE[module]), weight)
    return (3 if module == "PRIMEModule" else 2) * weight + moments
