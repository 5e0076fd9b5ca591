"""Where requests are answered that may wait for the store: in threads, by turns that tenants are given fairly.

Rule 1: what waits for its turn has no thread (`admit.turns`). A request has its thread from its first turn to its answer.
Rule 2: nobody waits for ever: a request whose turn does not come is refused, one that is not wanted any more is given up.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from widerow.admit.turns import State, Turn, Turns
from widerow.model.errors import Overloaded
from widerow.server.call import Answer, Call
from widerow.server.table import Handler

_SOON_S = 0.01
_STOPPING = "the server is stopping: send this again to another, or later"


class Desk:
    """Of one application. Called on its event loop."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._threads = ThreadPoolExecutor(turns.settings.most_begun, thread_name_prefix="http")
        self._open: set[Turn] = set()

    async def answer(self, tenant: str, handler: Handler, call: Call) -> Answer:
        """Raises what the handler does; `QueryBusy`, `Overloaded`: it was not begun."""
        answered: Future[Answer] = Future()

        def run(turn: Turn) -> None:
            if not answered.set_running_or_notify_cancel():
                turn.end()
                return
            try:
                answer = handler(replace(call, turn=turn))
            except BaseException as error:  # noqa: BLE001 - it is raised where the answer was asked for
                turn.end()
                answered.set_exception(error)
            else:
                turn.end()
                answered.set_result(answer)

        def start(turn: Turn) -> None:
            try:
                self._threads.submit(run, turn)
            except RuntimeError:  # the threads are gone
                turn.end()
                refuse(turn, Overloaded(_STOPPING))

        def refuse(_turn: Turn, error: Exception) -> None:
            if answered.set_running_or_notify_cancel():
                answered.set_exception(error)

        turn = self._turns.ask(tenant, start, refuse)
        self._open.add(turn)
        loop, late = asyncio.get_running_loop(), None
        if turn.state is State.WAITING:
            late = loop.call_later(self._turns.settings.max_wait_s + _SOON_S, self._turns.expire)
        try:
            return await asyncio.wrap_future(answered)
        except asyncio.CancelledError:
            turn.stop()
            raise
        finally:
            self._open.discard(turn)
            if late is not None:
                late.cancel()

    def close(self) -> None:
        """What is begun is given up at its next read."""
        for turn in list(self._open):
            turn.stop()
        self._threads.shutdown(wait=False, cancel_futures=True)
