"""The state of one model's replicas and requests, as columns: one array per property. The compiled functions use it.

A request is a row of the request columns, an engine a row of the engine columns, a variant a row of the variant
columns; rows are named ``i``, ``e`` and ``v`` throughout. ``NONE`` stands for no row. A request is in at most one list
at a time, which ``after`` and ``before`` link: upcoming, gateway, retrying, an engine's queue, an engine's batch, done.

Times are virtual seconds. Lengths are tokens, sizes of the KV cache are blocks.
"""

from __future__ import annotations

from math import inf
from typing import Any, Final, NamedTuple, TypeAlias

from wva.model.roles import DECODE, PREFILL
from wva.sim.fleet.compiled import COMPILED, column, entry, extended, floats, ints
from wva.sim.fleet.counters import COUNTS, HISTOGRAMS, bucket_bounds
from wva.sim.fleet.parameters import EngineParameters

NONE: Final = -1

if COMPILED:
    from numba import types
    from numba.experimental import structref

    _structref: Any = structref

WATERMARK: Final = 0.01
"""Share of the KV blocks that admission leaves free."""
LONGEST_MODEL: Final = 1_000_000_000
"""Token histograms have buckets up to here; a page shows those within the length of the engine's own model."""

Ints: TypeAlias = list[int]
"""A list of ints; where functions are compiled, a numpy array of int64."""
Floats: TypeAlias = list[float]
"""A list of floats; where functions are compiled, a numpy array of float64."""


# Where a request is.
UPCOMING: Final = 0
"""Its user has not sent it yet."""
GATEWAY: Final = 1
"""It waits for a replica to become Ready."""
WAITING: Final = 2
"""It is in the queue of an engine."""
RUNNING: Final = 3
SERVED: Final = 4
RETRYING: Final = 5
"""Its user will send it again in a moment."""
TIMED_OUT: Final = 6
"""Its user has given up."""
REFUSED: Final = 7
"""The gateway had no room for it, or its prompt is too long."""
BROKEN: Final = 8
"""Its replica went away."""
PROMPTING: Final = 9
"""Its prompt is at a prefill engine, in the row ``twin``."""
STAGED: Final = 10
"""Its prompt has been computed and waits until its decode engine has blocks for it."""
RECEIVING: Final = 11
"""Its KV cache is on the way, and its decode engine has taken the blocks for it."""
KEPT: Final = 12
"""A prompt that has been computed: the prefill engine keeps its blocks until they have been transferred."""


# Life of an engine's pod as the gateway sees it.
GONE: Final = 0
"""The row is free."""
STARTING: Final = 1
READY: Final = 2
DRAINING: Final = 3
"""It is being terminated: it finishes what it has and takes nothing new."""


class Columns(NamedTuple):
    """All columns. Functions change what is in them; only their owner replaces a column, to make it longer."""

    # -- requests: what their users ask for ---------------------------------------------------------------------------
    number: Ints
    """Its number in the load; a row is used again, a number is not."""
    arrival: Floats
    """When the gateway first received it; latencies that a user sees count from here."""
    prompt: Ints
    output: Ints
    """Length of the answer."""
    limited: Ints
    """1 if the answer would be longer than ``output``: its user has it cut there."""
    group: Ints
    """Prompts of one group begin alike; NONE for a prompt like no other."""
    prefix: Ints
    """Leading tokens of the prompt that the group's earlier requests may have left in a prefix cache."""
    leaves: Ints
    """Leading tokens of the prompt that the group's later requests begin with."""
    draw: Floats
    """A random number in [0, 1), for a router that chooses by chance."""
    # -- requests: what became of them --------------------------------------------------------------------------------
    state: Ints
    attempts: Ints
    engine: Ints
    after: Ints
    before: Ints
    deadline: Floats
    """When its user gives up unless there is a first token; infinite unless it is in the list of deadlines."""
    deadline_after: Ints
    """The request whose deadline is the next one."""
    deadline_before: Ints
    again: Floats
    """When its user sends it again."""
    queued: Floats
    admitted: Floats
    """When it was first put into the batch; infinite before."""
    first: Floats
    """When its first token came; infinite before."""
    last: Floats
    """When its last token before a preemption came: the gap to the next one is an inter-token gap."""
    finish: Floats
    length: Ints
    """Tokens that the answer will have: ``output``, cut at the longest sequence of the model."""
    generated: Ints
    """Tokens generated up to ``start_step``."""
    context: Ints
    """Tokens in the KV cache after the current prefill: the prompt, after a preemption the answer so far too."""
    left: Ints
    """Prompt tokens still to be computed."""
    chunk: Ints
    """Prompt tokens that the current step computes."""
    prefill_after: Ints
    prefill_before: Ints
    start_step: Ints
    """Step of the engine that produced the token ``generated``; each later one adds a token. NONE: no decoding."""
    ends: Ints
    """Step of the engine that gives it its last token, while it decodes."""
    place: Ints
    """Where it is in the engine's heap of completions."""
    shared: Ints
    """Blocks of its prompt that are counted with its group."""
    found: Ints
    """Tokens of its prompt that were in the prefix cache when it was first admitted."""
    preempted: Ints
    """How often it was preempted."""
    cancelled: Ints
    twin: Ints
    """Where there are roles: the row in which a prefill engine has its prompt; for that row, the user's row."""
    transferred: Ints
    """Tokens of its prompt whose KV cache came from a prefill engine."""
    arrives: Floats
    """When its KV cache has been transferred."""
    # -- engines ------------------------------------------------------------------------------------------------------
    phase: Ints
    due: Floats
    """When the phase ends by itself: STARTING in READY, DRAINING in GONE."""
    variant: Ints
    now: Floats
    next_event: Floats
    """End of the current segment; infinite while idle."""
    segment_start: Floats
    segment_steps: Ints
    step_seconds: Floats
    """Length of the segment's first step."""
    step_growth: Floats
    """By how much each step of the segment is longer than the one before."""
    step: Ints
    """Steps ended."""
    running: Ints
    waiting: Ints
    decoding: Ints
    resident: Ints
    """Tokens that a decode step reads from the KV cache."""
    used: Ints
    """Blocks of the sequences in the batch."""
    idle: Ints
    """Blocks that only the prefix cache holds: they are given up when blocks are needed."""
    queue_first: Ints
    queue_last: Ints
    batch_first: Ints
    batch_last: Ints
    prefill_first: Ints
    prefill_last: Ints
    order: Ints
    """The rows of all engines, first those of pods that exist, in the order in which the router looks at them."""
    leaving: Ints
    """Sequences of the batch whose users have gone; they leave with the end of the step."""
    completions: Ints
    """How many sequences are in the heap."""
    heap: Ints
    """``max_sequences`` rows per engine: the decoding sequences, the one that ends first on top."""
    remainders: Ints
    """``max_block_size`` rows per engine: decoding sequences by the remainder that decides when they need a block."""
    viewed_load: Floats
    """The load that a router with a stale view believes."""
    counts: Ints
    """The counters of ``counters.COUNTS`` of each engine."""
    sums: Floats
    buckets: Ints
    cached: Ints
    """A row per engine and group: blocks of the prefix of the group in the cache."""
    users: Ints
    """Sequences in the batch that use these blocks."""
    used_at: Ints
    """When these blocks were used last, as a running number."""
    expected: Ints
    """Requests that a decode engine was chosen for, and that it does not have in its queue or batch yet."""
    deferred: Ints
    """Those of the expected ones that it knows: ``STAGED`` and ``RECEIVING``."""
    receiving: Ints
    """Those of the expected ones whose KV cache is on the way."""
    staged_first: Ints
    staged_last: Ints
    kept: Ints
    """Prompts whose blocks a prefill engine keeps."""
    backlog: Ints
    """Tokens of the prompts that were sent to a prefill engine and have not been computed."""
    # -- variants -----------------------------------------------------------------------------------------------------
    alpha: Floats
    beta: Floats
    kv_read: Floats
    prefill: Floats
    attention: Floats
    blocks: Ints
    watermark: Ints
    block_size: Ints
    max_num_seqs: Ints
    max_num_batched_tokens: Ints
    max_model_len: Ints
    role: Ints
    """What its engines compute of a request: see ``ROLE_...``."""
    capacity: Floats
    """Sequences at once, by which the router weighs load."""
    # -- the pool -----------------------------------------------------------------------------------------------------
    shape: Ints
    """Sizes: see ``SHAPE_...``."""
    totals: Ints
    """Counts of the pool: see ``TOTAL_...``."""
    lists: Ints
    """Ends of the pool's lists: see ``LIST_...``."""
    rules: Floats
    """Numbers that hold for the pool: see ``RULE_...``."""
    bounds: Floats
    """Upper bounds of the histograms' buckets, one histogram after the other: the same for all engines."""
    bounds_at: Ints
    """Where the bounds of each histogram begin; the last entry is the end of all."""


# Rows of ``shape``.
SHAPE_ENGINES: Final = 0
SHAPE_SEQUENCES: Final = 1
"""Rows of ``heap`` for each engine."""
SHAPE_BLOCK: Final = 2
"""Rows of ``remainders`` for each engine."""
SHAPE_GROUPS: Final = 3
SHAPE_PODS: Final = 4
"""Rows of ``order`` that count: engines of pods that exist."""


# Rows of ``totals``.
TOTAL_ARRIVED: Final = 0
TOTAL_REFUSED: Final = 1
TOTAL_BROKEN: Final = 2
"""Attempts whose replica went away."""
TOTAL_RETRIED: Final = 3
TOTAL_TIMED_OUT: Final = 4
"""Attempts whose user gave up."""
TOTAL_CACHE_USES: Final = 5
"""A running number: orders the uses of prefix caches."""
TOTALS: Final = 6


# Rows of ``lists``.
LIST_UPCOMING_FIRST: Final = 0
LIST_UPCOMING_LAST: Final = 1
LIST_GATEWAY_FIRST: Final = 2
LIST_GATEWAY_LAST: Final = 3
LIST_GATEWAY_LENGTH: Final = 4
LIST_RETRY_FIRST: Final = 5
LIST_RETRY_LAST: Final = 6
LIST_DEADLINE_FIRST: Final = 7
LIST_DEADLINE_LAST: Final = 8
LIST_DONE_FIRST: Final = 9
LIST_DONE_LAST: Final = 10
LIST_TRANSFER_FIRST: Final = 11
"""The transfers, in the order in which they end."""
LISTS: Final = 12


# Rows of ``rules``.
RULE_NOW: Final = 0
RULE_PATIENCE: Final = 1
"""How long a user waits for the first token, in seconds."""
RULE_ATTEMPTS: Final = 2
"""How often a user sends a request at most."""
RULE_RETRY_DELAY: Final = 3
RULE_GATEWAY_LIMIT: Final = 4
"""Most requests that wait at the gateway."""
RULE_ROUTING: Final = 5
"""How the router chooses: see ``ROUTING_...``."""
RULE_VIEW_SECONDS: Final = 6
"""How long a stale view stays as it is."""
RULE_VIEWED: Final = 7
"""When it was taken."""
RULE_PREFIX_WEIGHT: Final = 8
"""How much less load a prompt wholly in the cache is worth."""
RULE_CHANGE: Final = 9
"""When the next phase of an engine ends by itself."""
RULE_LEAST_PROMPT: Final = 10
"""Tokens of the shortest prompt that goes to a prefill engine."""
RULE_TRANSFER_TOKEN: Final = 11
"""Seconds that the KV cache of one token takes from engine to engine."""
RULE_TRANSFER_DELAY: Final = 12
"""Seconds that each transfer takes beside."""


# What the engines of a variant compute of a request.
ROLE_ALL: Final = 0
ROLE_PREFILL: Final = 1
ROLE_DECODE: Final = 2
ROLES: Final = {"": ROLE_ALL, PREFILL: ROLE_PREFILL, DECODE: ROLE_DECODE}
"""By role of ``wva.model.roles``; other roles are not simulated."""


# How the router chooses among Ready engines.
ROUTING_LEAST: Final = 0
"""The engine that will be least loaded with the request, as of now."""
ROUTING_RANDOM: Final = 1
ROUTING_STALE: Final = 2
"""The engine that was least loaded when the view was taken; of several a random one."""
ROUTING_PREFIX: Final = 3
"""As ``LEAST``, but an engine that has the prompt's prefix counts as less loaded."""


_REQUEST_FLOATS: Final = {
    "arrival": 0.0, "draw": 0.0, "deadline": inf, "again": inf, "queued": 0.0, "admitted": inf, "first": inf,
    "last": 0.0, "finish": inf, "arrives": inf,
}  # fmt: skip
_REQUEST_INTS: Final = {
    "number": 0, "prompt": 1, "output": 1, "limited": 0, "group": NONE, "prefix": 0, "leaves": 0, "state": UPCOMING,
    "attempts": 0,
    "engine": NONE, "after": NONE, "before": NONE, "deadline_after": NONE, "deadline_before": NONE, "length": 0,
    "generated": 0, "context": 0, "left": 0, "chunk": 0, "prefill_after": NONE, "prefill_before": NONE,
    "start_step": NONE, "ends": 0, "place": NONE, "shared": 0, "found": 0,
    "preempted": 0, "cancelled": 0, "twin": NONE, "transferred": 0,
}  # fmt: skip
_ENGINE_FLOATS: Final = {
    "due": inf, "now": 0.0, "next_event": inf, "segment_start": 0.0, "step_seconds": 0.0, "step_growth": 0.0,
    "viewed_load": 0.0,
}  # fmt: skip
_ENGINE_INTS: Final = {
    "phase": GONE, "variant": 0, "segment_steps": 0, "step": 0, "running": 0, "waiting": 0, "decoding": 0,
    "resident": 0, "used": 0, "idle": 0, "queue_first": NONE, "queue_last": NONE, "batch_first": NONE,
    "batch_last": NONE, "prefill_first": NONE, "prefill_last": NONE, "leaving": 0, "completions": 0,
    "expected": 0, "deferred": 0, "receiving": 0, "staged_first": NONE, "staged_last": NONE, "kept": 0, "backlog": 0,
}  # fmt: skip


_FLOATS: Final = frozenset(name for name, kind in Columns.__annotations__.items() if "Floats" in str(kind))
"""The columns of real numbers."""


if COMPILED:

    @_structref.register
    class ColumnsType(types.StructRef):
        """The type of the columns in compiled functions."""

    class _Handle(structref.StructRefProxy):
        """All columns as one pointer: with a tuple each call would pass hundreds of arguments."""

    Handle: Any = _Handle
    _structref.define_boxing(ColumnsType, Handle)
    _structref.define_constructor(Handle, ColumnsType, Columns._fields)
    _structref.define_attributes(ColumnsType)


@entry
def pointer(*columns: Any) -> Any:
    """Return a handle of columns in order, where functions are compiled."""
    return Handle(*columns)


class _Slots:
    """All columns as the interpreter reads them fastest."""

    __slots__ = Columns._fields

    def __init__(self, c: Columns) -> None:
        """Take all columns."""
        for name, values in zip(Columns._fields, c, strict=True):
            setattr(self, name, values)


def handle(c: Columns) -> Any:
    """Return the columns as compiled functions take them. It is made anew when a column has been replaced."""
    return pointer(*c) if COMPILED else _Slots(c)


def build(*, groups: int = 0, requests: int = 0) -> Columns:
    """Return columns for a pool at virtual time 0, without variants and engines.

    ``groups`` is the number of prompt prefixes, ``requests`` the number of rows to begin with.
    """
    bounds, starts = bucket_bounds(LONGEST_MODEL)
    empty = {name: (floats if name in _FLOATS else ints)(0) for name in Columns._fields}
    columns = Columns(**empty)._replace(
        shape=column([0, 1, 1, groups, 0]),
        totals=ints(TOTALS),
        lists=ints(LISTS, NONE),
        rules=column([0.0, inf, 1.0, 0.0, 1000.0, float(ROUTING_LEAST), 0.0, -inf, 0.0, inf, 0.0, 0.0, 0.0]),
        bounds=column(list(bounds)),
        bounds_at=column(list(starts)),
    )
    columns.lists[LIST_GATEWAY_LENGTH] = 0
    return more_requests(columns, requests)


def more_variants(c: Columns, parameters: EngineParameters, role: int = ROLE_ALL) -> Columns:
    """Return the columns with one more kind of engine; the router takes its capacity to be one sequence."""
    values: dict[str, Any] = {
        "alpha": parameters.alpha_seconds,
        "beta": parameters.beta_seconds_per_sequence,
        "kv_read": parameters.kv_read_seconds_per_token,
        "prefill": parameters.prefill_seconds_per_token,
        "attention": parameters.attention_seconds_per_token_pair,
        "capacity": 1.0,
        "blocks": parameters.num_gpu_blocks,
        "watermark": int(parameters.num_gpu_blocks * WATERMARK),
        "block_size": parameters.block_size,
        "max_num_seqs": parameters.max_num_seqs,
        "max_num_batched_tokens": parameters.max_num_batched_tokens,
        "max_model_len": parameters.max_model_len,
        "role": role,
    }
    longer = {
        name: extended(getattr(c, name), floats(1, float(value)) if name in _FLOATS else ints(1, value))
        for name, value in values.items()
    }
    wider = {
        "heap": _wider(c, "heap", SHAPE_SEQUENCES, parameters.max_num_seqs),
        "remainders": _wider(c, "remainders", SHAPE_BLOCK, parameters.block_size),
    }
    return c._replace(**longer, **wider)


def _wider(c: Columns, name: str, size: int, rows: int) -> Any:
    """Return a column with at least ``rows`` rows per engine, and note their number in that entry of ``shape``."""
    values, old = getattr(c, name), int(c.shape[size])
    if rows <= old:
        return values
    engines = int(c.shape[SHAPE_ENGINES])
    wide = ints(engines * rows)
    for e in range(engines):
        wide[e * rows : e * rows + old] = values[e * old : (e + 1) * old]
    c.shape[size] = rows
    return wide


def more_requests(c: Columns, count: int) -> Columns:
    """Return the columns with ``count`` more rows for requests."""
    longer = {name: extended(getattr(c, name), floats(count, value)) for name, value in _REQUEST_FLOATS.items()}
    longer |= {name: extended(getattr(c, name), ints(count, value)) for name, value in _REQUEST_INTS.items()}
    return c._replace(**longer)


def more_engines(c: Columns, count: int) -> Columns:
    """Return the columns with ``count`` more rows for engines."""
    sequences, block, groups = (int(c.shape[row]) for row in (SHAPE_SEQUENCES, SHAPE_BLOCK, SHAPE_GROUPS))
    buckets = len(c.bounds) + HISTOGRAMS
    longer = {name: extended(getattr(c, name), floats(count, value)) for name, value in _ENGINE_FLOATS.items()}
    longer |= {name: extended(getattr(c, name), ints(count, value)) for name, value in _ENGINE_INTS.items()}
    per_engine = {
        "heap": sequences, "remainders": block, "counts": COUNTS, "buckets": buckets, "cached": groups,
        "users": groups, "used_at": groups,
    }  # fmt: skip
    longer |= {name: extended(getattr(c, name), ints(count * rows)) for name, rows in per_engine.items()}
    longer["order"] = extended(c.order, ints(count))
    longer["sums"] = extended(c.sums, floats(count * HISTOGRAMS))
    c.shape[SHAPE_ENGINES] += count
    return c._replace(**longer)


def clear_engine(c: Columns, e: int, *, variant: int, at_seconds: float) -> None:
    """Make row ``e`` a new engine of a variant: idle, with nothing counted and nothing in its prefix cache."""
    for name, value in (*_ENGINE_FLOATS.items(), *_ENGINE_INTS.items()):
        getattr(c, name)[e] = value
    c.variant[e] = variant
    c.now[e] = c.segment_start[e] = at_seconds
    for name in ("heap", "remainders", "counts", "buckets", "cached", "users", "used_at", "sums"):
        values = getattr(c, name)
        rows = len(values) // int(c.shape[SHAPE_ENGINES])
        for row in range(e * rows, (e + 1) * rows):
            values[row] = 0
