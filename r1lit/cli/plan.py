"""``r1lit plan``: forecast memory, tokens and time of a fit, before anything is trained.

    r1lit plan -c configs/data/gsm8k.yaml -c configs/r1_zero.yaml -c configs/hardware/one_gpu.yaml
    r1lit plan -c configs/mini/aha.yaml --measure 3

It takes the files and keys of ``r1lit fit``. Memory and tokens come from the configuration, the
time on GPUs from the arithmetic and from published rates. ``--measure N`` trains N iterations on
this machine, in a temporary folder, and says what all of them would take. All is a forecast.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from r1lit.cli import hub_is_out_of_reach
from r1lit.cli.composition import as_mapping, compose, merge
from r1lit.cli.forecast import Config, duration, forecast, parser_of_plan
from r1lit.errors import check_above, check_at_least, did_you_mean
from r1lit.files import read_records

NEEDS_NO_MEASURING = ("EvaluateFirst", "IterationCheckpoint", "ExportHuggingFace", "ResponseTable",
                      "CurveWriter", "R1ProgressBar", "LastLines", "StartChecks")  # fmt: skip


def main(args: Sequence[str] | None = None) -> int:
    """Print the forecast; return 1 if it does not fit the GPU, else 0."""
    if "huggingface_hub" not in sys.modules and hub_is_out_of_reach():
        os.environ.setdefault("HF_HUB_OFFLINE", "1")  # or each file is requested six times
    parser = parser_of_plan(__doc__)
    given, rest = parser.parse_known_args(args)
    for key in ("measure", "mean_tokens", "prompt_tokens", "iterations", "gpus"):
        check_at_least(key, getattr(given, key), 1)
    for key in ("mfu", "mbu", "price"):
        check_above(key, getattr(given, key), 0)
    composed = compose(["fit", *rest])
    config = in_full(as_mapping(composed))
    missing = [key for key in ("model", "data") if key not in config]
    if missing:
        raise ValueError(f"{', '.join(missing)}: not given; name a configuration by -c")
    refuse_wrong_keys(composed, parser)
    print(f"A forecast, not a measurement{': nothing is trained' if not given.measure else ''}.")
    lines, fits = forecast(config, given)
    for line in lines:
        print(line)
    if given.measure:
        for line in measured(config, given.measure, given.iterations):
            print(line)
    return 0 if fits else 1


def refuse_wrong_keys(composed: Sequence[str], parser: argparse.ArgumentParser) -> None:
    """Raise a ValueError for the first key that is neither the plan's nor ``r1lit fit``'s."""
    from r1lit.cli.command import ParsedCLI, run_command

    try:
        run_command(composed, ParsedCLI)
    except ValueError as error:
        key, _, words = str(error).partition(": ")
        meant = did_you_mean(key, [action.dest for action in parser._actions])
        if meant and words.startswith("there is no such key"):
            raise ValueError(f"{key}: there is no such key{meant}") from None
        raise


CLASS = ("class_path", "init_args", "dict_kwargs")


def in_full(node: Any) -> Any:
    """Return a configuration with a class's arguments under ``init_args``, and texts as numbers.

    A key of the command line may leave ``init_args`` out, and its value is a text.

    >>> in_full({"class_path": "A", "init_args": {"a": 1, "b": 2}, "b": "3"})
    {'class_path': 'A', 'init_args': {'a': 1, 'b': 3}}
    """
    if isinstance(node, str):
        return number_in(node)
    if isinstance(node, list):
        return [in_full(item) for item in node]
    if not isinstance(node, dict):
        return node
    if "class_path" in node:
        given = {key: value for key, value in node.items() if key not in CLASS}
        kept = {key: value for key, value in node.items() if key in CLASS}
        node = merge(kept, {"init_args": given}) if given else kept
    return {key: in_full(value) for key, value in node.items()}


def number_in(text: str) -> Any:
    """Return the number that a text is, else the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def measured(config: Config, num_iterations: int, planned: int | None) -> Iterator[str]:
    """Train some iterations in a temporary folder, and yield what the whole run would take.

    Raises:
        ValueError: with the last line that the training wrote, if it ends in an error.
    """
    with tempfile.TemporaryDirectory(prefix="r1lit-plan-") as folder:
        short = shortened(config, num_iterations, folder)
        path = Path(folder) / "plan.yaml"
        path.write_text(yaml.safe_dump(short))
        command = [sys.executable, "-m", "r1lit.cli", "fit", "-c", str(path)]
        print(f"measuring {num_iterations} iterations …", file=sys.stderr, flush=True)
        ended = subprocess.run(command, capture_output=True, text=True)
        if ended.returncode:
            last = (ended.stderr.strip() or "it wrote nothing").splitlines()[-1]
            raise ValueError(f"measure: the {num_iterations} iterations failed: {last}")
        records = read_records(Path(folder) / "run" / "metrics.jsonl")
    ends = [float(record["seconds"]) for record in records]
    each = [end - start for start, end in zip([0.0, *ends], ends, strict=False)]
    later = each[1:] or each
    mean = sum(later) / len(later)
    yield f"measured {len(each)} iterations here: {', '.join(f'{s:.1f}' for s in each)} s" \
          f"{'; the first one also warms up' if len(each) > 1 else ''}"  # fmt: skip
    if peak := max((record.get("memory/host_peak_gib") or 0 for record in records), default=0):
        yield f"         peak memory of the process {peak * 2**30 / 1e9:.1f} GB"
    total = planned or ((config["data"] or {}).get("init_args") or {}).get("num_iterations")
    if total:
        yield f"         {total:,} iterations like these: {duration(total * mean)}"
    if (length := records[-1].get("train/length/mean")) is not None:
        limit = ((config["model"].get("init_args") or {}).get("sampling") or {}).get("max_tokens")
        yield (
            f"         responses had {length:.0f} tokens on average, of at most {limit}; an"
            " iteration takes longer as they grow"
        )


def shortened(config: Config, num_iterations: int, folder: str) -> dict[str, Any]:
    """Return a configuration of the first iterations alone: no evaluation, nothing kept."""
    data, trainer = dict(config["data"]), dict(config.get("trainer") or {})
    data["init_args"] = {**(data.get("init_args") or {}), "num_iterations": num_iterations}
    kept = [
        each for each in trainer.get("callbacks") or []
        if str(each["class_path"]).rsplit(".", 1)[-1] not in NEEDS_NO_MEASURING
    ]  # fmt: skip
    writer = {"class_path": "r1lit.callbacks.CurveWriter"}
    trainer["callbacks"] = [*kept, {**writer, "init_args": {"draw_every_n_iterations": 0}}]
    trainer |= {"limit_val_batches": 0, "max_epochs": 1, "logger": False}
    trainer |= {"enable_checkpointing": False, "default_root_dir": f"{folder}/run"}
    whole = {key: value for key, value in config.items() if key not in ("run", "ckpt_path")}
    return {**whole, "data": data, "trainer": trainer, "run": f"{folder}/run"}
