"""The documentation cannot rot: generated pages are current, every verb, rule and wait class has a page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from enginectl.cli.app import app
from enginectl.knowledge.loader import load
from enginectl.knowledge.schema import WAIT_CLASSES

ROOT = Path(__file__).parents[1]


def test_generated_pages_are_current() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "make_docs.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_verb_is_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    missing = [c.name for c in app.registered_commands if f"enginectl {c.name}" not in readme]
    assert missing == []


def test_every_rule_and_wait_class_has_a_page() -> None:
    pages = {p.name.split("-")[0] for p in (ROOT / "docs" / "rules").glob("EC*.md")}
    assert pages == set(load().rules)
    classes = (ROOT / "docs" / "waits" / "README.md").read_text()
    assert [c for c in WAIT_CLASSES if f"`{c}`" not in classes] == []


def test_explain_prints_the_page() -> None:
    page = next((ROOT / "docs" / "rules").glob("EC401-*.md")).read_text()
    done = subprocess.run(
        [sys.executable, "-m", "enginectl", "explain", "EC401"], capture_output=True, text=True, check=True
    )
    assert done.stdout == page


def test_relative_links_lead_somewhere() -> None:
    broken = []
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            if not target.startswith(("http", "mailto:")) and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert broken == []
