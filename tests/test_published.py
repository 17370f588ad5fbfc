"""What the package index shows: metadata, a page whose links work there, pinned versions."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
REPOSITORY = "https://git.example/someone/r1lit"
FILES = (
    "pyproject.toml",
    "setup.py",
    "README.md",
    "LICENSE",
    "r1lit/__init__.py",
    "r1lit/py.typed",
)
METADATA = "from setuptools.build_meta import *; print(prepare_metadata_for_build_wheel('out'))"
LINK = re.compile(r"(!?)\[[^\[\]]*\]\(([^()\s]+)\)")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def metadata(folder: Path, **environment: str) -> Message:
    """Return what an index reads of a wheel that is built in ``environment``."""
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / "out").mkdir()
    command = [sys.executable, "-c", METADATA]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    [file] = (folder / "out").glob("*.dist-info/METADATA")
    return message_from_bytes(file.read_bytes())


def links(page: Message) -> list[tuple[str, str]]:
    text = re.sub(r"^```.*?^```$", "", page.get_payload(), flags=re.MULTILINE | re.DOTALL)
    found = LINK.findall(text)
    assert text.count("](") == len(found)
    return found


@pytest.mark.long
def test_links_of_the_index_page_lead_to_files_of_this_version(tmp_path):
    page = metadata(tmp_path, R1LIT_REPOSITORY=REPOSITORY)
    found = links(page)
    assert len(found) > 20
    for image, link in found:
        kind = "raw" if image else "blob"
        start = f"{REPOSITORY}/{kind}/v{page['Version']}/"
        if link.startswith("https://") and not link.startswith(REPOSITORY):
            continue
        assert link.startswith(start), link
        assert (ROOT / link.removeprefix(start).partition("#")[0]).exists(), link
    urls = dict(line.split(", ") for line in page.get_all("Project-URL"))
    assert urls["Repository"] == REPOSITORY and urls["Issues"] == f"{REPOSITORY}/issues"


@pytest.mark.long
def test_without_a_repository_no_link_of_the_index_page_is_broken(tmp_path):
    page = metadata(tmp_path)
    assert all(link.startswith("https://") and not image for image, link in links(page))
    assert "docs/ARCHITECTURE.md" in page.get_payload()
    assert page.get_all("Project-URL") is None
    assert page["Author"] == "r1lit maintainers"
    assert page["License-Expression"] == "Apache-2.0"
    assert page["Description-Content-Type"] == "text/markdown"
    assert "Operating System :: POSIX" in page.get_all("Classifier")
    assert "Typing :: Typed" in page.get_all("Classifier")


def test_constraints_keep_to_what_the_project_asks_for():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    extras = PROJECT["optional-dependencies"]
    for text in [*PROJECT["dependencies"], *(r for extra in extras.values() for r in extra)]:
        asked = Requirement(text)
        version = pinned.get(canonicalize_name(asked.name))
        assert version is None or asked.specifier.contains(version), text
    assert "torch" not in pinned  # the Makefile's TORCH decides, for a GPU too
    for text in [*PROJECT["dependencies"], *extras["dev"]]:
        name = canonicalize_name(Requirement(text).name)
        assert name in pinned or name == "torch", text


def test_forms_and_workflows_are_what_they_should_be():
    forms = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
    for form in [yaml.safe_load(f.read_text()) for f in forms if f.name != "config.yml"]:
        assert {"name", "description", "body"} <= set(form)
        assert all("label" in field["attributes"] for field in form["body"])
    checks = yaml.safe_load((ROOT / ".github/workflows/checks.yml").read_text())
    steps = [step for job in checks["jobs"].values() for step in job["steps"]]
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = [step["run"] for step in steps if "run" in step]
    assert ".ci/run" in commands
    made = {m for line in commands for m in re.findall(r"\bmake ([a-z-]+)", line)}
    assert made and made <= targets
