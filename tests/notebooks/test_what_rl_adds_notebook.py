"""The notebook of what RL adds runs on results that are made by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_notebooks import num_images, outputs_on, texts


def evaluation(iteration: int, accuracy: float) -> dict:
    return {
        "iteration": iteration,
        "num_problems": 64,
        "num_samples": 16,
        "pass_at_1": accuracy,
        "pass_at_1_stderr": 0.02,
        "response_length_tokens": 60 + 100 * accuracy,
        "reflection_words_per_response": accuracy,
        "format_rate": 0.95,
    }


def known_results() -> list[dict]:
    found: list[dict] = []
    ways = {"as_needed": 0.5, "fewer": 0.2, "guessed": 0.3}
    for seed in (0, 1):
        for variant, last in (("recipe", 0.8), ("random-reward", 0.3)):
            evaluations = [evaluation(0, 0.3), evaluation(2, last + 0.02 * seed)]
            found.append(
                {"part": "controls", "variant": variant, "seed": seed, "seconds": 1.0,
                 "evaluations": evaluations, "final": evaluations[-1], "entropies": [0.5, 0.4]}
            )  # fmt: skip
        for policy, values in (("base", (0.3, 0.5, 0.8, 0.9, 1.0)), ("rl", (0.8, 0.9, 1, 1, 1))):
            by_k = dict(zip(("1", "4", "16", "64", "256"), values, strict=True))
            found.append({"part": "samples", "run": f"seed-{seed}", "policy": policy,
                          "pass_at_k": by_k, "tokens": 60.0,
                          "found_at_k": {"attempts 1-2": by_k}, **ways})  # fmt: skip
        kinds = {"go on": {"decisions": 20.0, "base": -8.0, "policy": -2.0}}
        found.append({"part": "decisions", "run": f"seed-{seed}", "kinds": kinds})
        evaluations = [evaluation(0, 0.1), evaluation(2, 0.2 + 0.1 * seed)]
        dose = {"variant": "patient-5", "seed": seed, "evaluations": evaluations}
        found.append({"part": "doses", **dose})
    return found


@pytest.mark.slow
def test_notebook_answers_from_the_results(tmp_path: Path) -> None:
    lines = [json.dumps(result) + "\n" for result in known_results()]
    (tmp_path / "results.jsonl").write_text("".join(lines))
    outputs = outputs_on("what_rl_adds.ipynb", tmp_path)
    read = "\n".join(texts(outputs))
    assert "4 controls, 4 samples, 2 decisions, 2 doses" in read
    assert "worth 16.0 ± 0.0 of the base's" in read
    assert "pass@1: RL less base +0.500 ± 0.000" in read
    assert "patient-5: pass@1 +0.150 ± 0.050" in read
    assert "| RL | 0.800 ± 0.000; 1.000 ± 0.000 |" in read
    assert "0.670 ± 0.000 → 0.905 ± 0.000 | 6.0 ± 0.0 | 1.00 ± 0.00" in read
    assert num_images(outputs) == 2
