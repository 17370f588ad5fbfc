"""What r1lit brings with it is found by name, from any folder."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

import r1lit
from r1lit.cli import composition
from r1lit.cli.composition import compose, read

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = sorted((ROOT / "configs").rglob("*.yaml"))


@pytest.mark.long
def test_every_shipped_config_is_read_by_name_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(CONFIGS) > 40
    for path in CONFIGS:
        by_name = read(f"r1lit:{path.relative_to(ROOT / 'configs').as_posix()}")
        text = yaml.dump(by_name)
        assert not re.search(r"\bmodels/mini", text.replace(str(ROOT), "")) or str(ROOT) in text
        # it differs from the file in the places of models alone
        found = yaml.dump(read(str(path))).replace(": models/", f": {ROOT}/models/")
        assert yaml.safe_load(text) == yaml.safe_load(found), path


def test_names_are_paths_in_files_and_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("model: {init_args: {policy: 'r1lit:models/mini_student'}}\n")
    args = ["fit", "-c", "r1lit:mini/r1_zero.yaml", "-c", "mine.yaml"]
    _, flag, made = compose(args)
    config = yaml.safe_load(made)
    assert flag == "--config" and config["run"] == "runs/r1_zero"
    assert config["model"]["init_args"]["policy"] == str(ROOT / "models/mini_student")
    for given in (["--model.init_args.policy=r1lit:models/mini"],
                  ["--model.init_args.policy", "r1lit:models/mini"]):  # fmt: skip
        changed = yaml.safe_load(compose([*args, *given])[2])
        assert changed["model"]["init_args"]["policy"] == str(ROOT / "models/mini")
    # what a user's file calls models/mini is the user's
    Path("own.yaml").write_text("model: {init_args: {policy: models/mini}}\n")
    assert read("own.yaml") == {"model": {"init_args": {"policy": "models/mini"}}}


@pytest.mark.parametrize("name", ["mini/none.yaml", "models/none", "../pyproject.toml", "", "/etc"])
def test_an_unknown_name_is_an_error_that_lists_the_known(name):
    with pytest.raises(ValueError, match=r"ships nothing .* r1lit:mini/r1_zero.yaml") as error:
        read(f"r1lit:{name}")
    assert "\n" not in str(error.value) and "r1lit:models/mini" in str(error.value)


def test_a_name_that_is_nearly_one_or_a_path_of_the_checkout_gets_the_right_one(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"name; did you mean r1lit:mini/r1_zero\.yaml\? there"):
        read("r1lit:mini/r1_zro.yaml")
    with pytest.raises(ValueError, match=r"directory in .*\); r1lit ships r1lit:sft\.yaml$"):
        read("configs/sft.yaml")


def test_an_installed_copy_goes_before_a_checkout(tmp_path, monkeypatch):
    package = tmp_path / "site-packages/r1lit"
    shutil.copytree(ROOT / "configs/mini", package / "shipped/configs/mini")
    monkeypatch.setattr(composition, "__file__", str(package / "cli" / "composition.py"))
    assert composition.find("r1lit:mini/r1_zero.yaml").is_relative_to(package)


def test_one_version_everywhere_and_a_semantic_one():
    number = r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?"
    assert re.fullmatch(number, r1lit.__version__)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == r1lit.__version__.partition("-")[0]
    released = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert released[0] == "Unreleased" or released[0] == r1lit.__version__
    assert all(re.fullmatch(number, name.strip("[]")) for name in released[1:])
