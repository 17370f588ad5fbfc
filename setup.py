"""The steps that pyproject.toml cannot say: copies in the wheel, and the index's page.

A wheel holds copies of ``configs`` and ``models``. Its page on the package index is README.md; its
links are paths in the repository, which lead nowhere there. ``R1LIT_REPOSITORY``, such as
``https://github.com/OWNER/r1lit``, makes them links to the files of this version, and the
repository one of the project's links. Without it they become plain text, and images are left out.
"""

import os
import re
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
REPOSITORY = os.environ.get("R1LIT_REPOSITORY", "").rstrip("/")
LINK = re.compile(r"(!?)\[([^\[\]]*)\]\((?![a-z][a-z0-9+.-]*:)([^()\s]*)\)")


class WithConfigsAndModels(build_py):
    """Builds the package, and ``r1lit/shipped`` in it."""

    def run(self) -> None:
        """Copy what `r1lit.cli.composition` finds; an editable install finds it in the checkout."""
        super().run()
        if not self.editable_mode:
            for name in ("configs", "models"):
                there = Path(self.build_lib, "r1lit", "shipped", name)
                shutil.rmtree(there, ignore_errors=True)
                shutil.copytree(HERE / name, there)


def version() -> str:
    """Return ``r1lit.__version__`` without importing r1lit."""
    text = (HERE / "r1lit" / "__init__.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE).group(1)


def page_of_the_index(text: str, repository: str, tag: str) -> str:
    """Return a page whose links work outside the repository; code stays as it is."""

    def elsewhere(link: re.Match) -> str:
        image, words, path = link.groups()
        if path.startswith("#"):
            return link.group()
        if not repository:
            return "" if image else words
        return f"{image}[{words}]({repository}/{'raw' if image else 'blob'}/{tag}/{path})"

    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(p if p.startswith("```") else LINK.sub(elsewhere, p) for p in parts)


def links(repository: str) -> dict[str, str]:
    """Return the project's links, by the names that the package index knows."""
    if not repository:
        return {}
    return {
        "Repository": repository,
        "Issues": f"{repository}/issues",
        "Changelog": f"{repository}/blob/main/CHANGELOG.md",
    }


setup(
    cmdclass={"build_py": WithConfigsAndModels},
    long_description=page_of_the_index(
        (HERE / "README.md").read_text(encoding="utf-8"), REPOSITORY, f"v{version()}"
    ),
    long_description_content_type="text/markdown",
    project_urls=links(REPOSITORY),
)
