"""MkDocs hook: links in CONTRIBUTING.md start at the top of the repository, those of the site in docs/."""

from pathlib import Path
from typing import Any


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    if page.file.src_uri == "contributing.md":
        return Path("CONTRIBUTING.md").read_text(encoding="utf-8").replace("](docs/", "](")
    return markdown
