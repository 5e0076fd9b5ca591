"""Settings for every test."""

from hypothesis import settings

# Kernels compile on their first call, which no deadline should judge; speed is measured in bench/.
settings.register_profile("widerow", deadline=None, print_blob=True)
settings.load_profile("widerow")

# Real Cassandra and Bigtable, for the tests that ask for them.
pytest_plugins = ("servers.fixtures",)
