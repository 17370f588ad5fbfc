"""Decimals of every size: what is expected is met by what is near it, and by nothing else."""

import re

import pytest

from r1lit.sandbox.grading import difference

SIZES = (
    "1e-400", "1e-300", "2.5", "1e5", "1e300", "1e308", "1e309", "1e400", "-1e400", "9.5e4000",
    "1" * 310 + ".5", "7" * 5000 + ".25", "-" + "3" * 400 + ".0",
)  # fmt: skip
OTHERS = ("1e310", "0", "1", "1e308", "-1e308", "1e-5", "1e401", "2e400", "nan", "inf", "-inf")


@pytest.mark.parametrize("want", SIZES)
def test_a_decimal_is_met_at_any_size(want: str):
    assert difference(want, want, 1e-6) == ""
    near = want.replace("e", "00000001e") if "." in want else want.replace("e", ".00000001e")
    assert difference(near if "e" in want else want + "0000001", want, 1e-6) == ""


@pytest.mark.parametrize("want", [size for size in SIZES if len(size) > 300 or "e4" in size])
@pytest.mark.parametrize("other", OTHERS)
def test_a_decimal_beyond_floats_is_met_by_no_other(want: str, other: str):
    assert difference(other, want, 1e-6) != "" or other == want
    changed = re.sub(r"\d", lambda digit: str(int(digit[0]) % 9 + 1), want, count=1)
    assert difference(changed, want, 1e-6) != ""
    assert difference(want.lstrip("-") if want[0] == "-" else "-" + want, want, 1e-6) != ""
