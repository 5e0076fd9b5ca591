"""Where Bigtable cuts the tables of a prefix, how large the parts are, and which of them it calls hot. Nothing is changed.

Rule 1: sizes are Bigtable's own estimates of what is stored; it samples row keys at the borders of its tablets, or near.
Rule 2: the emulator has no tablets: it samples rows at random. It has no list of hot tablets either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import grpc
from google.api_core.exceptions import GoogleAPICallError
from google.auth.credentials import Credentials
from google.cloud.bigtable_admin_v2 import BigtableInstanceAdminClient

from widerow.engine.bigtable.connection import BigtableSettings, Connection, admin_failure


@dataclass(frozen=True, slots=True)
class Tablet:
    """The row keys from `start` to before `stop` ("": open)."""

    start: str
    stop: str
    bytes: int


@dataclass(frozen=True, slots=True)
class HotTablet:
    """A tablet that needed much of a node's processor for a minute."""

    table: str
    start: str
    stop: str
    cluster: str
    cpu_share: float
    minute: str


class Tablets:
    """A connection that looks at the tables of one prefix."""

    def __init__(
        self,
        project: str,
        instance: str,
        prefix: str,
        settings: BigtableSettings | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self._connection = Connection(project, instance, settings or BigtableSettings(), credentials)
        self._credentials, self._prefix = credentials, prefix

    def close(self) -> None:
        self._connection.close()

    def tables(self) -> list[str]:
        """By name, without the prefix."""
        try:
            found = self._connection.admin().list_tables(parent=self._connection.instance)
            names = [table.name.rpartition("/")[2] for table in found]
        except GoogleAPICallError as error:
            raise admin_failure(error, self._prefix) from None
        return sorted(name.removeprefix(f"{self._prefix}_") for name in names if name.startswith(f"{self._prefix}_"))

    def of(self, table: str) -> list[Tablet]:
        """The tablets of a table, in the order of their keys."""
        samples = self._connection.sample_row_keys(f"{self._prefix}_{table}")
        borders = [("", 0), *((key.decode(errors="replace"), offset) for key, offset in samples)]
        if len(borders) == 1 or borders[-1][0]:  # a sample without a key is the end of the table
            borders.append(("", borders[-1][1]))
        return [Tablet(start, stop, after - before) for (start, before), (stop, after) in pairwise(borders)]

    def hot(self) -> Sequence[HotTablet] | None:
        """Those of the last days, the hottest first; None: the service has no such list."""
        if self._connection.on_emulator:
            return None
        admin = BigtableInstanceAdminClient(credentials=self._credentials)
        found = []
        try:
            for cluster in admin.list_clusters(parent=self._connection.instance).clusters:
                found += [(cluster.name.rpartition("/")[2], one) for one in admin.list_hot_tablets(parent=cluster.name)]
        except GoogleAPICallError as error:
            if error.grpc_status_code in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.PERMISSION_DENIED):
                return None
            raise admin_failure(error, "hot tablets") from None
        finally:
            admin.transport.close()
        ours = [(c, t) for c, t in found if t.table_name.rpartition("/")[2].startswith(f"{self._prefix}_")]
        return sorted((self._hot(cluster, one) for cluster, one in ours), key=lambda one: -one.cpu_share)

    def _hot(self, cluster: str, one: Any) -> HotTablet:
        name = one.table_name.rpartition("/")[2].removeprefix(f"{self._prefix}_")
        share = one.node_cpu_usage_percent / 100
        return HotTablet(name, one.start_key, one.end_key, cluster, share, one.start_time.isoformat())
