"""What the site of docs/ has beyond its pages: README as its beginning, files that pages link to, the public API."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
PAGES = {"README.md": "index.md", **{name: name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")}}
"""Pages at the root, and their names in the site."""
NAMES = ("Client", "AsyncClient", "Delivery", "Outcome", "Repeat", "Worker", "Retry", "Reject", "BodyError", "open")
"""The public API, in the order of its page: see ``tarry.__all__``."""
_LINK = re.compile(r"(\]\()([^)#\s:]+)(#[^)\s]*)?(\))")
_ROLE = re.compile(r":(?:class|meth|func|attr|data|mod|exc):<code>~?([^<]+)</code>")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root, and one of the API."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text()))
    api = "\n\n".join(f"::: tarry.{name}" for name in NAMES)
    files.append(File.generated(config, "reference-python.md", content=f"# The Python API\n\n{api}\n"))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Have each link lead to a page of the site, or to a copy of the file."""
    source = page.file.src_uri
    directory = "." if source in PAGES.values() else posixpath.dirname(posixpath.join("docs", source))

    def led(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(directory, match[2]))
        if not (ROOT / target).exists():
            return match[0]
        where = PAGES.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else None)
        if where is None:
            where = _copied(target, config, files)
        return f"{match[1]}{posixpath.relpath(where, posixpath.dirname(source) or '.')}{match[3] or ''}{match[4]}"

    return _LINK.sub(led, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Show the roles of docstrings as the names that they are."""
    return _ROLE.sub(r"<code>\1</code>", html)


def _copied(target: str, config: MkDocsConfig, files: Files) -> str:
    """Add a file of the project to the site, as text; of a directory, its README."""
    path = ROOT / target
    if path.is_dir():
        target, path = f"{target}/README.md", path / "README.md"
    where = f"files/{target}.txt"
    if files.get_file_from_path(where) is None:
        files.append(File.generated(config, where, content=path.read_text() if path.exists() else target))
    return where
