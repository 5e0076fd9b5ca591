"""Settings for every test."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# Kernels compile on their first call, which no deadline should judge; speed is measured in bench/.
settings.register_profile("widerow", deadline=None, print_blob=True)
settings.load_profile("widerow")

# Real Cassandra and Bigtable, for the tests that ask for them.
pytest_plugins = ("servers.fixtures",)


@pytest.fixture
def bigtable_host(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """BIGTABLE_EMULATOR_HOST names an emulator: the one that it named already, or the one of this run."""
    if "BIGTABLE_EMULATOR_HOST" not in os.environ:
        monkeypatch.setenv("BIGTABLE_EMULATOR_HOST", request.getfixturevalue("bigtable_server").address)
