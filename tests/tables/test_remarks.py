"""What every run of a table would remark is said once."""

from __future__ import annotations

import logging

import pytest

from maqee.tables.do_work import each_said_once


def test_a_remark_on_classes_is_made_once_a_process(caplog: pytest.LogCaptureFixture) -> None:
    remarks = logging.getLogger("maqee.data.classes")
    for _ in range(3):
        with each_said_once():
            remarks.warning("%s: matched by number in test_remarks", "digits")
            remarks.warning("other classes in test_remarks")
    assert caplog.messages == ["digits: matched by number in test_remarks", "other classes in test_remarks"]
    remarks.warning("other classes in test_remarks")  # elsewhere nothing is held back
    assert len(caplog.messages) == 3
