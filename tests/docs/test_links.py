"""Links between the pages lead somewhere in the repository too, not on the site alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
]
LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_of_a_page_leads_to_a_file(page):
    targets = [link["target"] for link in LINK.finditer(CODE.sub("", page.read_text()))]
    inside = [t.partition("#")[0] for t in targets if not re.match(r"[a-z]+:|#", t)]
    assert [target for target in inside if not (page.parent / target).exists()] == []
