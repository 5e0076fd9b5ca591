"""Setting up compiles what the path of a report needs, so that no request waits for a compiler."""

from __future__ import annotations

import subprocess
import sys

import pytest

ASK = """
from widerow import warm
from widerow.admit import heat
warm.warm_up()
print(len(heat._add.signatures))
"""


@pytest.mark.rest
def test_reports_of_a_busy_tenant_are_counted_by_device_without_a_compiler() -> None:
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 0
