"""How console scripts end on bad input."""

from __future__ import annotations

import warnings

import pytest

from r1lit.console import root_fault, run_script, tracing_user_code
from r1lit.errors import check_at_least
from r1lit.user_code import OwnCodeError, user_code


def bad():
    raise ValueError("key: 7 is not 8")


def test_bad_input_is_one_line_and_status_2(capsys, monkeypatch):
    monkeypatch.delenv("R1LIT_TRACEBACK", raising=False)
    with pytest.raises(SystemExit) as ended:
        run_script("r1lit-x", bad)
    assert ended.value.code == 2
    assert capsys.readouterr().err == "r1lit-x: error: key: 7 is not 8\n"


def test_the_traceback_is_shown_on_request(monkeypatch):
    monkeypatch.setenv("R1LIT_TRACEBACK", "1")
    with pytest.raises(ValueError, match="key: 7"):
        run_script("r1lit-x", bad)


def test_a_crash_of_own_code_keeps_its_traceback(capsys):
    def crash():
        with user_code("reward function 'mine'", test_console):
            bad()

    def test_console(): ...

    with pytest.raises(SystemExit):
        run_script("r1lit-x", crash)
    first, *below = capsys.readouterr().err.splitlines()
    assert first.startswith("r1lit-x: error: reward function 'mine' crashed with ValueError: key")
    assert first.endswith(f"({__file__}, line {bad.__code__.co_firstlineno + 1})")
    assert all(line.startswith("  ") for line in below)
    assert any('raise ValueError("key: 7 is not 8")' in line for line in below)


def test_ctrl_c_is_one_line(capsys):
    def press():
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as ended:
        run_script("r1lit-x", press)
    assert ended.value.code == 130
    assert capsys.readouterr().err == "r1lit-x: interrupted\n"


def test_a_warning_is_one_line(capsys, recwarn):
    run_script("r1lit-x", lambda: print(warnings.formatwarning("slow", UserWarning, "a.py", 1)))
    assert capsys.readouterr().out == "r1lit-x: warning: slow\n\n"


def raising(file: str, code: str):
    """A function of a file of that name, which calls ``inner`` and may wrap what it raises."""
    names: dict = {}
    exec(compile(f"def call(inner):\n{code}", file, "exec"), names)
    return names["call"]


WRAPS = "    try: inner()\n    except ValueError as error: raise ValueError('a dump') from error"
CHECKOUTS = ("/home/me/r1lit", "/home/me/lightning/r1lit", "/srv/jsonargparse")


@pytest.mark.parametrize("checkout", CHECKOUTS)
def test_a_library_in_a_folder_of_any_name_is_no_code_of_ours(checkout):
    """A checkout has its .venv in it, so that its name stands in each library's path."""
    place = f"{checkout}/.venv/lib/python3.11/site-packages/jsonargparse/_core.py"
    with pytest.raises(ValueError) as caught:
        raising(place, WRAPS)(lambda: check_at_least("model.x", 0, 1))
    assert str(root_fault(caught.value)) == "model.x: 0 is not at least 1"


@pytest.mark.parametrize("checkout", CHECKOUTS)
def test_own_code_in_a_folder_of_any_name_is_named(checkout):
    mine = raising(f"{checkout}/mine.py", "    return {}['key']")
    said = f"call crashed with KeyError: 'key' .{checkout}/mine.py, line 2"
    with pytest.raises(OwnCodeError, match=said), tracing_user_code():
        mine(None)
    library = raising(f"{checkout}/.venv/lib/python3.11/site-packages/x.py", "    return {}['key']")
    with pytest.raises(OwnCodeError, match="test_errors"), tracing_user_code():
        library(None)  # called by this test, whose fault it is then
