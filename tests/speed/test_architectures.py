"""No architecture of transformers is silently wrong; docs/MODEL_FAMILIES.md says what each is."""

from __future__ import annotations

import pytest
import transformers

from benchmarks.architectures import PAGE, cases, faults, measure, page, survey

FP32 = ("logp_fp32", "padded_fp32", "gradient_fp32", "leak", "mismatch_fp32")
RIGHT = {
    "name": "a",
    "path": "packed",
    "why": "",
    "way": "shared",
    "generate": "same",
    "argmax": True,
    **dict.fromkeys(FP32, 1e-6),
    **dict.fromkeys(("logp_bf16_ours", "logp_bf16_plain", "gradient_bf16_ours"), 0.03),
    **{"gradient_bf16_plain": 0.03, "mismatch_bf16": 0.01},
}


def columns(text: str) -> dict[str, tuple[str, str]]:
    """Path and way of decoding by architecture: what does not depend on the machine."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {row[0]: (row[1], row[7]) for row in rows if len(row) == 11}


@pytest.mark.long
def test_llama_is_right_and_its_line_says_so():
    case = next(case for case in cases() if case.name == "llama")
    line = measure(case)
    assert (line["path"], line["way"], line["generate"]) == ("packed", "shared", "same")
    assert faults(line) == []
    assert columns(page([line]))["llama"] == columns(PAGE.read_text())["llama"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *((key, 0.01) for key in FP32),
        *(("logp_bf16_ours", 0.5), ("gradient_bf16_ours", 0.5), ("mismatch_bf16", 0.5)),
        ("argmax", False),
    ],
)
def test_each_figure_counts(key, value):
    assert faults(RIGHT) == []
    assert len(faults(RIGHT | {key: value})) == 1


@pytest.mark.slow
def test_none_is_silently_wrong_and_the_page_is_up_to_date():
    lines = list(survey())
    assert {line["name"]: faults(line) for line in lines if faults(line)} == {}
    paths = [line["path"] for line in lines]
    assert paths.count("packed") >= 45 and paths.count("padded") >= 45
    assert paths.count("refused") >= 2 and paths.count("not made") < 10
    text = PAGE.read_text()
    if f"transformers {transformers.__version__} " in text:
        assert columns(page(lines)) == columns(text)
