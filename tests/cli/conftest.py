"""What the tests of the command line share."""

from __future__ import annotations

import pytest

from .asking import Ask


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    """The command line, asked inside this process."""
    return Ask(capsys)
