"""One model's engines, gateway and users, by row: the columns and what changes their size.

Two owners use it. ``Pool`` feeds it request by request and uses the rows of requests again; ``ModelService.of`` gives
it all traffic at once, and the result of each request is read from the columns at the end.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING, Any, Final

from wva.sim.fleet import gateway, handover, observed
from wva.sim.fleet.columns import (
    DRAINING,
    GONE,
    LIST_GATEWAY_LENGTH,
    LIST_UPCOMING_FIRST,
    LIST_UPCOMING_LAST,
    NONE,
    READY,
    ROLE_ALL,
    RULE_ATTEMPTS,
    RULE_CHANGE,
    RULE_GATEWAY_LIMIT,
    RULE_LEAST_PROMPT,
    RULE_NOW,
    RULE_PATIENCE,
    RULE_PREFIX_WEIGHT,
    RULE_RETRY_DELAY,
    RULE_ROUTING,
    RULE_TRANSFER_DELAY,
    RULE_TRANSFER_TOKEN,
    RULE_VIEW_SECONDS,
    SHAPE_PODS,
    STARTING,
    Columns,
    build,
    clear_engine,
    handle,
    more_engines,
    more_requests,
    more_variants,
)
from wva.sim.fleet.compiled import column_of, floats
from wva.sim.fleet.counters import ITL_BOUNDS, TTFT_BOUNDS
from wva.sim.fleet.parameters import EngineParameters
from wva.sim.fleet.users import GatewaySettings

if TYPE_CHECKING:
    from wva.sim.traffic.requests import Traffic

_ENGINES: Final = 16
"""By how many rows of engines the columns grow."""
SIGNALS: Final = 21
"""Numbers that a scrape of an engine gives."""


class ModelService:
    """One model. An engine is a row from ``add`` until it has ended; then the row is used again."""

    def __init__(
        self, settings: GatewaySettings, *, groups: int = 0, requests: int = 0, start_seconds: float = 0.0
    ) -> None:
        """Start without engines; ``groups``: how many prompt prefixes, ``requests``: how many rows to begin with."""
        self.now_seconds = float(start_seconds)
        self._ranks: dict[int, tuple[Any, ...]] = {}
        self._free: list[int] = []
        self._added = 0
        self._values = floats(SIGNALS)
        self._transfer = settings.transfer
        self._buckets = (0, 0)
        """How many buckets hold the requests in time, by their first token and by the time between tokens."""
        columns = build(groups=groups, requests=requests)
        for rule, value in (
            (RULE_NOW, start_seconds),
            (RULE_GATEWAY_LIMIT, settings.queue_limit),
            (RULE_ROUTING, settings.routing),
            (RULE_VIEW_SECONDS, settings.view_seconds),
            (RULE_PREFIX_WEIGHT, settings.prefix_weight),
            (RULE_PATIENCE, settings.patience_seconds),
            (RULE_ATTEMPTS, settings.attempts),
            (RULE_RETRY_DELAY, settings.retry_seconds),
        ):
            columns.rules[rule] = float(value)
        if settings.transfer is not None:
            columns.rules[RULE_LEAST_PROMPT] = float(settings.transfer.least_prompt_tokens)
            columns.rules[RULE_TRANSFER_TOKEN] = float(settings.transfer.token_seconds)
            columns.rules[RULE_TRANSFER_DELAY] = float(settings.transfer.delay_seconds)
        self._replace(columns)

    @classmethod
    def of(
        cls,
        traffic: Traffic,
        variants: Iterable[EngineParameters],
        settings: GatewaySettings,
        roles: Iterable[int] | None = None,
    ) -> ModelService:
        """Return a service at time 0 that will get all these requests; variants are rows in this order.

        ``roles`` has the role of each variant; by default all compute the whole of a request. Where there are roles,
        the rows after those of the requests are for their prompts.

        Raises:
            ValueError: there are roles and no transfer between them, or prompts that begin alike.

        """
        import numpy as np  # noqa: PLC0415 - traffic is made of it; the emulator does without

        count = traffic.count
        service, resident = cls(settings, groups=traffic.groups), traffic.resident_tokens
        kinds = list(variants)
        variant_roles = [ROLE_ALL] * len(kinds) if roles is None else list(roles)
        for parameters, role in zip(kinds, variant_roles, strict=True):
            capacity = parameters.concurrent_sequences(tokens_per_sequence=resident)
            service.add_variant(parameters, capacity=capacity, role=role)
        request_columns = {
            "arrival": traffic.arrival_seconds,
            "prompt": traffic.prompt_tokens,
            "output": traffic.output_tokens,
            "group": traffic.group,
            "prefix": traffic.prefix_tokens,
            "leaves": traffic.shared_tokens.clip(max=traffic.prompt_tokens),
            "draw": traffic.draw,
        }
        columns = more_requests(service.columns, count)
        if count:
            columns = columns._replace(
                **{name: column_of(values) for name, values in request_columns.items()},
                number=column_of(np.arange(count)),
                after=column_of(np.append(np.arange(1, count), NONE)),
                before=column_of(np.arange(NONE, count - 1)),
            )
            columns.lists[LIST_UPCOMING_FIRST], columns.lists[LIST_UPCOMING_LAST] = 0, count - 1
        if settings.transfer is not None:
            if traffic.groups:
                raise ValueError("prompts begin alike: where pods have roles there is no prefix cache")
            columns = more_requests(columns, count)
            columns = columns._replace(twin=column_of(np.append(np.arange(count, 2 * count), np.arange(count))))
        service._replace(columns)
        return service

    # -- variants and engines ---------------------------------------------------------------------------------------

    def add_variant(self, parameters: EngineParameters, *, capacity: float, role: int = ROLE_ALL) -> int:
        """Make a kind of engine known and return its row; ``capacity``: sequences at once that the router expects.

        Raises:
            ValueError: it has a role, and there is no transfer from prefill to decode.

        """
        if role != ROLE_ALL and self._transfer is None:
            raise ValueError("a variant has a role, and the gateway has no transfer from prefill to decode")
        self._replace(more_variants(self.columns, parameters, role))
        row = len(self.columns.capacity) - 1
        self.columns.capacity[row] = capacity
        return row

    def add(self, variant: int, *, ready_at_seconds: float, rank: tuple[Any, ...] | None = None) -> int:
        """Add an engine that becomes Ready at a time, and return its row.

        Of equally loaded engines the router takes the one with the lowest ``rank``: by default that of the variant
        with the lowest row, and of those the oldest.
        """
        if not self._free:
            count = len(self.columns.phase)
            self._replace(more_engines(self.columns, _ENGINES))
            self._free = list(range(count + _ENGINES - 1, count - 1, -1))
        row = self._free.pop()
        self._added += 1
        self._ranks[row] = (variant, self._added) if rank is None else rank
        clear_engine(self.columns, row, variant=variant, at_seconds=self.now_seconds)
        self.start(row, ready_at_seconds=ready_at_seconds)
        self._reorder()
        return row

    def start(self, row: int, *, ready_at_seconds: float) -> None:
        """Let an engine become Ready at another time, also one that is being terminated."""
        self.columns.phase[row] = STARTING
        self._end_phase(row, max(ready_at_seconds, self.now_seconds))

    def terminate(self, row: int, *, grace_seconds: float) -> None:
        """Let an engine take nothing new from now on; what it has not finished after the grace period is broken.

        One that has nothing to finish ends at once.
        """
        idle = self.load(row) + int(self.columns.kept[row]) == 0
        self.columns.phase[row] = GONE if idle else DRAINING
        self._end_phase(row, inf if idle else self.now_seconds + grace_seconds)

    def settle(self) -> None:
        """Let what is due at this very moment happen now, instead of with the next ``advance``."""
        if self._transfer is None:
            gateway.change(self.handle, self.now_seconds)
        else:
            handover.change_roles(self.handle, self.now_seconds)

    def forget(self, row: int) -> None:
        """Give back the row of an engine that has ended."""
        del self._ranks[row]
        self._free.append(row)
        self._reorder()

    def judge(self, *, ttft_seconds: float, itl_seconds: float) -> None:
        """Let scrapes count the requests in time: up to the highest bound that is not above the objective."""
        self._buckets = bisect_right(TTFT_BOUNDS, ttft_seconds), bisect_right(ITL_BOUNDS, itl_seconds)

    # -- time and state ---------------------------------------------------------------------------------------------

    def advance(self, until_seconds: float) -> None:
        """Let time pass; events at ``until_seconds`` itself are still to come."""
        self.now_seconds = float(until_seconds)
        if self._transfer is None:
            gateway.run(self.handle, self.now_seconds)
        else:
            handover.run_roles(self.handle, self.now_seconds)

    def phase(self, row: int) -> int:
        """Return the phase of an engine."""
        return int(self.columns.phase[row])

    def load(self, row: int) -> int:
        """Return the requests in an engine, and those on their way to it from a prefill engine."""
        return int(self.columns.running[row] + self.columns.waiting[row] + self.columns.expected[row])

    def kv_cache_usage(self, row: int) -> float:
        """Return the share of KV blocks in use."""
        used, blocks = observed.used_now(self.handle, row), self.columns.blocks[self.columns.variant[row]]
        return int(used) / int(blocks)

    def ended_seconds(self, row: int) -> float:
        """Return when an engine that has ended had nothing more to do."""
        return float(self.columns.segment_start[row])

    def scrape(self, row: int) -> tuple[float, ...]:
        """Return what the page of an engine says now: the numbers of ``stage.view.Signal``, in that order."""
        observed.signals(self.handle, row, *self._buckets, self._values)
        return tuple(map(float, self._values))

    @property
    def at_gateway(self) -> int:
        """Requests that wait because no replica is Ready."""
        return int(self.columns.lists[LIST_GATEWAY_LENGTH])

    @property
    def ready(self) -> int:
        """Engines that take requests."""
        return sum(self.columns.phase[row] == READY for row in self._ranks)

    @property
    def waiting(self) -> int:
        """Requests that wait, at the gateway and in the engines."""
        c = self.columns
        return self.at_gateway + sum(
            int(c.waiting[row] + c.deferred[row]) for row in self._ranks if c.phase[row] != GONE
        )

    def _end_phase(self, row: int, at_seconds: float) -> None:
        """Let the phase of an engine end by itself at a time. The gateway looks at the earliest of them, or earlier."""
        self.columns.due[row] = float(at_seconds)
        self.columns.rules[RULE_CHANGE] = min(self.columns.rules[RULE_CHANGE], at_seconds)

    def _reorder(self) -> None:
        ordered = sorted(self._ranks, key=self._ranks.__getitem__)
        for index, row in enumerate(ordered):
            self.columns.order[index] = row
        self.columns.shape[SHAPE_PODS] = len(ordered)

    def _replace(self, columns: Columns) -> None:
        """Take columns of another size."""
        self.columns = columns
        self.handle = handle(columns)

    def more_requests(self, count: int) -> None:
        """Add rows for requests."""
        self._replace(more_requests(self.columns, count))
