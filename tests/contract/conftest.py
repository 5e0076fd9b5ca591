"""The contract lives in the package, where pytest would not explain a failed assert without being asked to."""

import pytest

pytest.register_assert_rewrite("widerow.engine.contract")
