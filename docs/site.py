"""The pages of the site, from where they lie in the repository: hooks of mkdocs.yml.

README.md, docs/, the studies, the notebooks and the other pages keep their paths, so that the same
relative links work in the repository and on the site. What a page links to becomes part of the
site: a notebook as a page, a source file as a page with its text, a folder as a list.
"""

from __future__ import annotations

import base64
import os
import posixpath
import re
import subprocess
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from pymdownx.slugs import slugify

ROOT = Path(__file__).resolve().parents[1]
GROUPS = {
    "Start": (
        "README.md", "docs/INSTALL.md", "docs/CHOOSING.md", "docs/RECIPES.md",
        "docs/FROM_PYTHON.md", "docs/CONFIGURATION.md", "docs/USE_THE_MODEL.md",
        "docs/COMING_FROM.md", "docs/TROUBLESHOOTING.md", "docs/SMALL_WORLD.md",
    ),
    "Course": (),
    "Train": (
        "docs/EQUATIONS.md", "docs/REWARDS.md", "docs/VERIFIERS.md", "docs/REWARD_MODELS.md",
        "docs/PROCESS_REWARDS.md", "docs/DATA_CURATION.md", "docs/DISTILLATION.md", "docs/LORA.md",
        "docs/MODEL_FAMILIES.md", "docs/RESUME.md",
    ),
    "Measure": (
        "docs/EVALUATION.md", "docs/DEVIATIONS.md", "docs/METRICS.md", "docs/LOGGING.md",
        "docs/VIEWING.md", "docs/SEARCH.md",
    ),
    "Scale": (
        "docs/SCALE_OUT.md", "docs/PERFORMANCE.md", "docs/MEMORY.md", "docs/VLLM.md",
        "docs/FSDP2.md", "docs/ASYNCHRONOUS.md", "docs/SEVERAL_NODES.md", "benchmarks/README.md",
    ),
    "Studies": ("experiments/README.md",),
    "Notebooks": (),
    "Project": (
        "docs/ARCHITECTURE.md", "CONTRIBUTING.md", "docs/COMPARED.md", "docs/SCOPE.md",
        "SECURITY.md", "CHANGELOG.md", "LOG.md",
    ),
}  # fmt: skip
"""Groups of the navigation. A page that is in none of them comes last in ``OTHERS``."""
OTHERS = "Project"
FOLDERS = {"experiments/": "Studies", "notebooks/course/": "Course", "notebooks/": "Notebooks"}
LEFT_OUT = ("tests/", "r1lit/", "notebooks/data/", "notebooks/course/data/", ".")
LINK = re.compile(r"(!?\[[^\[\]]*\]\()(?![a-z][a-z0-9+.-]*:|#)([^()\s#]+)((?:#[^()\s]*)?\))")
LANGUAGES = {".py": "python", ".yaml": "yaml", ".json": "json", ".txt": "text", ".sh": "bash"}
LONGEST = 100_000  # bytes of a source file that is shown as a page
_FENCE = re.compile(r"^ *(?:```|~~~).*?^ *(?:```|~~~) *$", re.MULTILINE | re.DOTALL)
_NAMED_BLOCK = re.compile(r"^( *(?:```|~~~)\w+) +([\w./-]+) *$", re.MULTILINE)
_ITEM = re.compile(r"^( *)(?:[-*+]|\d+\.) ")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Make the navigation, GitHub's anchors, and a link to the repository if it is named."""
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")
    if repository := os.environ.get("R1LIT_REPOSITORY"):
        config.repo_url = repository
    config.nav = [
        {group: [menu_entry(page) for page in pages]}
        for group, pages in grouped(pages_of(tracked())).items()
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Return the pages, and everything that they link to."""
    known = tracked()
    themes = [file for file in files if not Path(config.docs_dir, file.src_uri).exists()]
    collected = Files(themes)
    todo = [*pages_of(known), "docs/site.css"]
    seen = set(todo)
    while todo:
        path = todo.pop()
        text, links = content_of(path, known)
        new = [link for link in links if link not in seen]
        seen.update(new)
        todo += new
        name = path if text is None else page_name(path, known)
        source = {"abs_src_path": str(ROOT / path)} if text is None else {"content": text}
        collected.append(File.generated(config, name, **source))
    return collected


def tracked() -> frozenset[str]:
    """Return the files of the repository, without those that it ignores."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return frozenset(line for line in lines.splitlines() if (ROOT / line).is_file())


def pages_of(known: frozenset[str]) -> list[str]:
    """Return the paths of the pages that are in the navigation."""
    return sorted(
        path for path in known if path.endswith((".md", ".ipynb")) and not path.startswith(LEFT_OUT)
    )


def grouped(pages: list[str]) -> dict[str, list[str]]:
    """Return the groups, and in each its pages in the order of the table, then by name."""
    groups = {group: [path for path in listed if path in pages] for group, listed in GROUPS.items()}
    placed = {path for listed in groups.values() for path in listed}
    for page in pages:
        if page not in placed:
            folder = next((f for f in FOLDERS if page.startswith(f)), "")
            groups[FOLDERS.get(folder, OTHERS)].append(page)
    return {group: listed for group, listed in groups.items() if listed}


def menu_entry(page: str) -> str | dict[str, str]:
    """Return an entry of the navigation; a study is named by its folder, others by their title."""
    name = page_name(page, frozenset())
    folder = posixpath.dirname(page).removeprefix("experiments/")
    if page.startswith("experiments/") and page.endswith("/README.md") and folder != "experiments":
        return {folder: name}
    return {"Overview": name} if page == "README.md" else name


def page_name(path: str, known: frozenset[str]) -> str:
    """Return where on the site a file or folder is a page."""
    if path.endswith(".md"):
        return path
    if path.endswith(".ipynb"):
        return path.removesuffix(".ipynb") + ".md"
    return f"{path}.md" if path in known else f"{path}/README.md"


def content_of(path: str, known: frozenset[str]) -> tuple[str | None, list[str]]:
    """Return a page's Markdown and what it links to; None for a file that is copied."""
    suffix = posixpath.splitext(path)[1]
    if path not in known:
        return listing(path, known)
    if suffix == ".md":
        return relinked((ROOT / path).read_text(encoding="utf-8"), path, known)
    if suffix == ".ipynb":
        return relinked(notebook(ROOT / path), path, known)
    if suffix in LANGUAGES and (ROOT / path).stat().st_size < LONGEST:
        text = (ROOT / path).read_text(encoding="utf-8")
        return f"# {posixpath.basename(path)}\n\n````{LANGUAGES[suffix]}\n{text}\n````\n", []
    return None, []


def listing(folder: str, known: frozenset[str]) -> tuple[str, list[str]]:
    """Return a page with the files of a folder, and these files."""
    files = sorted(path for path in known if posixpath.dirname(path) == folder)
    names = [posixpath.basename(path) for path in files]
    text = f"# {folder}\n\n" + "".join(f"- [{name}]({name})\n" for name in names)
    return relinked(text, f"{folder}/README.md", known)


def relinked(text: str, page: str, known: frozenset[str]) -> tuple[str, list[str]]:
    """Return a page with links to where files are on the site, and the files that it links to."""
    found: list[str] = []
    folder = posixpath.dirname(page)

    def moved(match: re.Match[str]) -> str:
        start, link, end = match.groups()
        target = posixpath.normpath(posixpath.join(folder, link))
        is_folder = any(path.startswith(target + "/") for path in known)
        if target not in known and not is_folder:
            return match.group()  # mkdocs says that it is broken
        if is_folder and f"{target}/README.md" in known:
            target = f"{target}/README.md"
        found.append(target)
        shown = page_name(target, known) if content_of_is_page(target, known) else target
        return start + posixpath.relpath(shown, folder or ".") + end

    parts = re.split(rf"({_FENCE.pattern})", text, flags=_FENCE.flags)
    fenced = _FENCE.match
    text = "".join(
        titled(p) if fenced(p) else as_python_markdown(LINK.sub(moved, p)) for p in parts
    )
    return text, found


def content_of_is_page(path: str, known: frozenset[str]) -> bool:
    """Return whether a linked file or folder is shown as a page."""
    suffix = posixpath.splitext(path)[1]
    if path not in known or suffix in (".md", ".ipynb"):
        return True
    return suffix in LANGUAGES and (ROOT / path).stat().st_size < LONGEST


def titled(block: str) -> str:
    """Return a block of code whose file name, after its language, is the block's title."""
    return _NAMED_BLOCK.sub(r'\1 title="\2"', block, count=1)


def as_python_markdown(text: str) -> str:
    """Return lists as Python-Markdown reads them: after a blank line, four blanks a level."""
    lines: list[str] = []
    for line in text.split("\n"):
        item = _ITEM.match(line)
        before = lines[-1] if lines else ""
        if item and before.strip() and not _ITEM.match(before) and not before.startswith(" "):
            lines.append("")
        lines.append(" " * len(item[1]) + line if item else line)
    return "\n".join(lines)


def notebook(path: Path) -> str:
    """Return a notebook as Markdown, with its pictures inside."""
    from nbconvert import MarkdownExporter

    text, resources = MarkdownExporter().from_filename(str(path))
    for name, data in resources["outputs"].items():
        kind = name.rpartition(".")[2].replace("svg", "svg+xml")
        address = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
        text = text.replace(f"({name})", f"({address})")
    return text
