"""The documentation builds as a site without a warning."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_asks_no_other_site(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", ROOT / "docs", tmp_path]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    for page in (ROOT / "docs").rglob("*.md"):
        html = (tmp_path / page.relative_to(ROOT / "docs")).with_suffix(".html").read_text(encoding="utf-8")
        assert '<script src="http' not in html
        assert '<link rel="stylesheet" href="http' not in html
    assert "<math" in (tmp_path / "methods" / "ipseg.html").read_text(encoding="utf-8")
