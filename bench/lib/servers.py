"""The real servers of the tests, for benchmarks that need one. Everything about them is in `tests/servers`."""

from __future__ import annotations

import sys

from bench.lib.figures import ROOT

sys.path.append(str(ROOT / "tests"))

from servers.bigtable import Bigtable
from servers.cassandra import Cassandra
from servers.kafka import Kafka
from servers.mosquitto import Mosquitto
from servers.process import Server as RealServer
from servers.process import free_ports
from servers.toolchain import java, maven_jars

__all__ = ["Bigtable", "Cassandra", "Kafka", "Mosquitto", "RealServer", "free_ports", "java", "maven_jars"]
