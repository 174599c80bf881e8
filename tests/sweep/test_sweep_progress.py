"""How far runs are, where their files are not what they should be."""

from __future__ import annotations

import pytest

from ipseg.sweep.progress import Progress, read_progress


@pytest.mark.parametrize("text", ["", '{"version": 2, "mi', "[]", '{"version": 2, "miou": 3}', "\udcff"], ids=repr)
def test_a_step_whose_measurements_cannot_be_read_is_finished_and_nothing_is_known_of_it(tmp_path, text):
    (tmp_path / "step_00").mkdir()
    (tmp_path / "step_00" / "step.json").write_text(text, encoding="utf-8", errors="surrogateescape")
    assert read_progress(tmp_path) == Progress(finished=1)
