"""The site: every page is in it, and no link, anchor or picture is broken."""

from __future__ import annotations

import importlib.util
import re
from urllib.parse import unquote

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from tiny import ROOT


def load_hooks():
    spec = importlib.util.spec_from_file_location("pages_of_the_site", ROOT / "docs/site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


hooks = load_hooks()
KNOWN = frozenset({"docs/A.md", "docs/b.py", "docs/c.jsonl", "data/x.json", "studies/README.md"})


@pytest.mark.long
def test_it_builds_and_nothing_is_broken(tmp_path):
    """A broken link or anchor is a warning, and strict makes a warning an error."""
    (tmp_path / "site").mkdir()
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path / "site"), strict=True))
    pages = list((tmp_path / "site").rglob("index.html"))
    assert len(pages) > len(hooks.pages_of(hooks.tracked()))
    pictures = 0
    for page in pages:
        for source in re.findall(r'<img [^>]*src="([^":]+)"', page.read_text()):
            assert (page.parent / unquote(source)).is_file(), (page, source)
            pictures += 1
    assert pictures >= 40
    start = (tmp_path / "site/index.html").read_text()
    for group in hooks.GROUPS:
        assert re.search(rf">\s*{group}\s*<", start), group
    recipes = (tmp_path / "site/docs/RECIPES/index.html").read_text()  # blocks have file names
    own = re.findall(r"^## ", (ROOT / "docs/RECIPES.md").read_text(), re.MULTILINE)
    assert recipes.count("<h2 id=") == len(own)
    assert 'class="filename">my_reward.py' in recipes
    assert "data:image/png" in (tmp_path / "site/notebooks/aha_moment/index.html").read_text()
    assert (tmp_path / "site/search/search_index.json").stat().st_size > 100_000


def test_every_page_has_a_group_and_an_unknown_one_the_last():
    pages = hooks.pages_of(hooks.tracked())
    new = ["docs/NEW.md", "experiments/new/README.md", "notebooks/new.ipynb"]
    new.append("notebooks/course/5_new.ipynb")
    groups = hooks.grouped([*pages, *new])
    assert sorted(p for listed in groups.values() for p in listed) == sorted([*pages, *new])
    assert new[0] in groups[hooks.OTHERS]
    assert new[1] in groups["Studies"] and new[2] in groups["Notebooks"]
    assert groups["Course"][-1] == new[3] and new[3] not in groups["Notebooks"]


@pytest.mark.parametrize(
    ("link", "moved", "found"),
    [
        ("[a](docs/A.md#x)", "[a](docs/A.md#x)", ["docs/A.md"]),
        ("[a](studies)", "[a](studies/README.md)", ["studies/README.md"]),
        ("[a](data)", "[a](data/README.md)", ["data"]),
        ("[a](docs/c.jsonl)", "[a](docs/c.jsonl)", ["docs/c.jsonl"]),
        ("[a](docs/none.md)", "[a](docs/none.md)", []),
        ("[a](https://x.org/docs/A.md)", "[a](https://x.org/docs/A.md)", []),
        ("```\n[a](studies)\n```", "```\n[a](studies)\n```", []),
    ],
)
def test_links_lead_to_where_files_are_on_the_site(link, moved, found):
    assert hooks.relinked(link, "README.md", KNOWN) == (moved, found)


def test_a_source_file_is_a_page_with_its_text():
    name = "experiments/one_file/grpo.py"
    text, _ = hooks.content_of(name, hooks.tracked())
    assert text.startswith("# grpo.py\n") and (ROOT / name).read_text() in text
    moved, _ = hooks.relinked(f"[all]({name})", "README.md", hooks.tracked())
    assert moved == f"[all]({name}.md)"


def test_lists_are_read_as_github_reads_them():
    text = "Two:\n- one\n  - below\n- two"
    assert hooks.as_python_markdown(text) == "Two:\n\n- one\n    - below\n- two"
