"""The scenarios of the scorecard have the same requests for the same seed as before, so results stay comparable."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import pytest

from wva.sim.scorecard.suites import SCENARIOS

DIGESTS = {
    "sine-short": "687c7027f725aff2 aa5d0db6aad59f4b",
    "step-short": "0f0369714d995cb1 1c616b082f1ca8de",
    "bursts-short": "543aa2dc16e06f1a 8f2ef72982fd1600",
    "ramp-short": "e93e91145b22cb90 0c61f2ef7ea82e2e",
    "slow-pods-short": "c8d6bf853c1327d3 b7e1f1ee74b425f7",
    "prompts-short": "ac8dab6d18081659 b72a6760a29bec84",
    "random-routing-short": "0f0369714d995cb1 1c616b082f1ca8de",
    "flash-crowd-short": "b69226c25a31e45e 029d95b08426ef6b",
    "upstream-ramp-short": "64086a6d6df4d3f2 0c0db6599c2ec68f",
    "upstream-ramp": "6e79f27b10c1be2b 8f6dbc1e46e5ce87",
    "two-variants": "142dc60905c20c83 915b4b499d4c1105",
    "image-pulls": "39b494d07156ad36 c70907972223c6bf",
    "low-traffic": "1ef431c4fe566b76 358bac607a57ac50",
    "large-model": "ddffe91b3c7b0390 f4b741b0513816af",
    "coding-spells": "f8c811a750fa50c2 d58116ccda46a121",
    "burstgpt": "a91069447a457556 87f97b44df904cf7",
    "clients": "8dba47b3dc47583a 1a51765b3e44cb08",
    "prefixes": "08d691589572012a 38e9c765a941b1b5",
    "flash-crowds": "d875aecef9882c0f 9ae8dd73feda67f5",
    "conversation": "ac7f604ff1dfdcae ece80558206754df",
}
"""By scenario: of the requests of the seeds 1 and 2."""


def digest(name: str, seed: int) -> str:
    """Return a digest of the requests of a scenario.

    Times count by the millisecond: the last bits of logarithms differ between machines.
    """
    traffic = SCENARIOS[name].traffic(seed)
    found = blake2b(f"{traffic.duration_seconds}".encode(), digest_size=8)
    for column in (
        np.rint(traffic.arrival_seconds * 1e3),
        np.rint(traffic.draw * 1e6),
        traffic.prompt_tokens,
        traffic.output_tokens,
        traffic.group,
        traffic.prefix_tokens,
        traffic.shared_tokens,
    ):
        found.update(column.astype("<i8").tobytes())
    return found.hexdigest()


@pytest.mark.parametrize("name", DIGESTS)
def test_the_requests_of_a_seed_are_the_same(name: str) -> None:
    """Of two seeds, all columns. Whoever changes them on purpose runs the scorecard again, and changes the digests."""
    assert " ".join(digest(name, seed) for seed in (1, 2)) == DIGESTS[name]
