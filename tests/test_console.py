"""How console scripts end on bad input."""

from __future__ import annotations

import pytest

from r1lit import console


def bad():
    raise ValueError("key: 7 is not 8")


def test_bad_input_is_one_line_and_status_2(capsys, monkeypatch):
    monkeypatch.delenv("R1LIT_TRACEBACK", raising=False)
    with pytest.raises(SystemExit) as ended:
        console.run("r1lit-x", bad)
    assert ended.value.code == 2
    assert capsys.readouterr().err == "r1lit-x: error: key: 7 is not 8\n"


def test_the_traceback_is_shown_on_request(monkeypatch):
    monkeypatch.setenv("R1LIT_TRACEBACK", "1")
    with pytest.raises(ValueError, match="key: 7"):
        console.run("r1lit-x", bad)


def test_one_line_keeps_keys_and_fault() -> None:
    report = """Parser key "model":
  Does not validate against any of the Union subtypes
  Subtypes: [<class 'X'>, <class 'NoneType'>]
  Errors:
    - Problem with given class_path 'r1lit.modules.GRPOModule':
        Option 'rate' is not accepted
    - Expected a <class 'NoneType'>
  Given value type: <class 'dict'>
  Given value: {'a': 1}"""
    wanted = "model: r1lit.modules.GRPOModule: Option 'rate' is not accepted"
    assert console.one_line(report) == wanted
    assert console.one_line("already one") == "already one"
