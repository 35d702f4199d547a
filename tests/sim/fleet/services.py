"""A service with given requests, for tests of the gateway, of users and of prefixes."""

from __future__ import annotations

import sys

import numpy as np

from wva.model.records import replace
from wva.sim.fleet.columns import ROLE_DECODE, ROLE_PREFILL
from wva.sim.fleet.parameters import EngineParameters
from wva.sim.fleet.service import ModelService
from wva.sim.fleet.transfer import KvTransfer
from wva.sim.fleet.users import GatewaySettings, Routing
from wva.sim.traffic.requests import Traffic

SMALL = EngineParameters(
    alpha_seconds=0.01,
    beta_seconds_per_sequence=0.0,
    prefill_seconds_per_token=0.001,
    num_gpu_blocks=64,
    block_size=4,
    max_num_seqs=4,
    max_num_batched_tokens=64,
    max_model_len=200,
)
"""A prompt of 20 tokens takes 30 ms, each further token 10 ms."""


def traffic(*requests, prompt=20, output=10, draws=None):
    """Return requests: each is an arrival, or (arrival, more) with differences from the default lengths."""
    rows = [each if isinstance(each, tuple) else (each, {}) for each in requests]

    def whole(name, default):
        return np.array([more.get(name, default) for _, more in rows], dtype=np.int64)

    return Traffic(
        duration_seconds=rows[-1][0] if rows else 0.0,
        arrival_seconds=np.array([at for at, _ in rows], dtype=np.float64),
        prompt_tokens=whole("prompt", prompt),
        output_tokens=whole("output", output),
        group=whole("group", -1),
        prefix_tokens=whole("prefix", 0),
        shared_tokens=whole("shared", 0),
        draw=np.array([more.get("draw", 0.0) for _, more in rows] if draws is None else draws),
    )


def service(*requests, pods=1, variants=(SMALL,), drawn=None, **settings):
    """Return a service with these requests and so many Ready pods of the first variant."""
    made = ModelService.of(traffic(*requests, draws=drawn), variants, GatewaySettings(**settings))
    for _ in range(pods):
        made.add(0, ready_at_seconds=0.0)
    return made


def values(target, name):
    """Return a column of the requests."""
    return np.asarray(getattr(target.columns, name)).tolist()


def fingerprint(routing):
    """Return the end of every request and every engine's page, for busy traffic of all kinds."""
    random = np.random.default_rng(7)
    count = 1500
    lengths = [random.integers(1, longest, count) for longest in (150, 60)]
    shared = random.integers(0, 100, count)
    given = Traffic(
        duration_seconds=60.0,
        arrival_seconds=np.sort(random.uniform(0.0, 60.0, count)),
        prompt_tokens=lengths[0],
        output_tokens=lengths[1],
        group=random.integers(-1, 5, count),
        prefix_tokens=np.minimum(shared, lengths[0]),
        shared_tokens=np.minimum(shared, lengths[0]),
        draw=random.uniform(0.0, 1.0, count),
    )
    costly = replace(SMALL, kv_read_seconds_per_token=1.3e-5, attention_seconds_per_token_pair=2.9e-6)
    other = replace(SMALL, num_gpu_blocks=90, block_size=7, max_num_seqs=6, beta_seconds_per_sequence=0.0013)
    settings = GatewaySettings(
        queue_limit=20, routing=routing, view_seconds=0.7, prefix_weight=0.4, patience_seconds=3.0, attempts=2
    )
    target = ModelService.of(given, (costly, other), settings)
    for at in (0.5, 1.0, 20.0):
        target.add(0, ready_at_seconds=at)
    pages = []
    for at in range(5, 80, 5):
        target.advance(float(at))
        if at == 10:
            target.add(1, ready_at_seconds=14.0)
        if at == 40:
            target.terminate(1, grace_seconds=0.3)
        pages.append([target.scrape(row) for row in range(4)])
    names = ("state", "attempts", "arrival", "first", "finish", "length", "engine", "queued")
    return repr((pages, [values(target, name) for name in names], list(map(int, target.columns.totals))))


def fingerprint_of_roles():
    """Return the same for traffic that goes from prefill to decode engines, of which some end."""
    random = np.random.default_rng(8)
    requests = [
        (float(at), {"prompt": int(random.integers(1, 150)), "output": int(random.integers(1, 60))})
        for at in np.sort(random.uniform(0.0, 40.0, 500))
    ]
    settings = GatewaySettings(
        queue_limit=20, patience_seconds=3.0, attempts=2, transfer=KvTransfer(0.0007, 0.05, least_prompt_tokens=20)
    )
    target = ModelService.of(traffic(*requests), (SMALL, SMALL), settings, (ROLE_PREFILL, ROLE_DECODE))
    for variant, at in ((0, 0.5), (1, 1.0), (0, 10.0), (1, 0.2)):
        target.add(variant, ready_at_seconds=at)
    pages = []
    for at in range(3, 60, 3):
        target.advance(float(at))
        if at in {15, 24}:
            target.terminate(at // 15 - 1, grace_seconds=0.1)
        pages.append([target.scrape(row) for row in range(4)])
    names = ("state", "attempts", "first", "finish", "engine", "queued")
    return repr((pages, [values(target, name) for name in names], list(map(int, target.columns.totals))))


if __name__ == "__main__":
    sys.stdout.write("\n".join([*(fingerprint(routing) for routing in Routing), fingerprint_of_roles()]))
