"""What every run of a table would remark is said once."""

from __future__ import annotations

import logging

import pytest

from maqee.tables.do_work import each_said_once


@pytest.mark.parametrize("about", ["classes", "seen"])
def test_a_remark_on_data_is_made_once_a_process(about: str, caplog: pytest.LogCaptureFixture) -> None:
    remarks = logging.getLogger(f"maqee.data.{about}")
    for _ in range(3):
        with each_said_once():
            remarks.warning("%s: matched by number (%s)", "digits", about)
            remarks.warning("other %s", about)
    assert caplog.messages == [f"digits: matched by number ({about})", f"other {about}"]
    remarks.warning("other %s", about)  # elsewhere nothing is held back
    assert len(caplog.messages) == 3
