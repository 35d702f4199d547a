"""A service with given requests, for tests of the gateway, of users and of prefixes."""

from __future__ import annotations

import numpy as np

from wva.sim.fleet.parameters import EngineParameters
from wva.sim.fleet.service import Service
from wva.sim.fleet.users import GatewaySettings
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
    """Return requests: each an arrival, or (arrival, more) with what differs from a prompt of 20 and 10 tokens more."""
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
    made = Service.of(traffic(*requests, draws=drawn), variants, GatewaySettings(**settings))
    for _ in range(pods):
        made.add(0, ready_at_seconds=0.0)
    return made


def values(target, name):
    """Return a column of the requests."""
    return np.asarray(getattr(target.columns, name)).tolist()
