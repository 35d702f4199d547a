"""Traffic like that of published traces, by name. What is known of the traces is in ``published``.

``rate`` is the mean rate of the requests that are returned; the default is that of the trace. Shapes do not change with
it: at ten times the rate every minute has ten times the requests, as it would if a service had ten times the users.
"""

from __future__ import annotations

from typing import Final

from wva.sim.traffic import published, rates
from wva.sim.traffic.arrivals import gamma, poisson
from wva.sim.traffic.assembly import merged, traffic
from wva.sim.traffic.lengths import Sizes, TokenLengths, lognormal, quantiles, zipf
from wva.sim.traffic.prefixes import Mix
from wva.sim.traffic.rates import RateProfile
from wva.sim.traffic.requests import Traffic
from wva.sim.traffic.streams import stream

HOUR: Final = 3600.0

CONVERSATION_RHO: Final = 0.94
CONVERSATION_SIGMA: Final = 0.28
CONVERSATION_SHAPE: Final = 0.92
"""Of the hour of 2023. A grid of the three, 200 seeds each, was compared with the dispersion at 1, 10 and 60 s, the
correlation of minutes, the fullest minute and the variation of gaps. The variation of 1.09 is that of gaps and rate
together: Gamma gaps of shape 0.84 alone have it too, and with the changing rate they have 1.14.
``bench/test_traffic.py`` searches near these constants and near those of the code service."""

CODE_SPELLS: Final = rates.OnOff(on_seconds=3.3, off_seconds=11.3, off_sigma=1.8, height_sigma=0.66, floor=0.002)
CODE_SHAPE: Final = 0.69
"""Of the hour of 2023: a random search of 300 steps over these six numbers, 100 seeds each, for the dispersion at 1, 10
and 60 s, the correlation of minutes, the fullest second and minute, and the share of empty seconds. The variation of
the trace's gaps, 13.2, hangs on one pause of 217 s; here it is 9 on average, with a longest pause of 146 s."""

MINUTE_RHO: Final = 0.8
CONVERSATION_MINUTE_SIGMA: Final = 0.08
CODING_MINUTE_SIGMA: Final = 0.13
"""Of the week of 2024: from the width of the plotted bands, 10.6 % and 17.7 % to each side."""

BURSTGPT_SHAPE: Final = 0.5
BURSTGPT_EXPONENT: Final = 1.1
"""Defaults of BurstGPT's own generator."""

MOONCAKE_MEANS: Final = (11_889.0, 344.5)
"""Means of the quantiles of ``published.MOONCAKE``, by which they are scaled to each trace."""

HOURS: Final = 24


def azure_2023_conversation(seed: int, *, duration_seconds: float = 3502.0, rate: float = 5.53) -> Traffic:
    """Return an hour of a conversation service: smooth, with a rate that wanders from minute to minute."""
    factor = rates.minute_factor(
        stream(seed, "minutes"), duration_seconds=duration_seconds, rho=CONVERSATION_RHO, sigma=CONVERSATION_SIGMA
    )
    return traffic(
        seed,
        gamma(
            stream(seed, "arrivals"),
            rates.scaled(factor, mean=rate, duration_seconds=duration_seconds),
            duration_seconds=duration_seconds,
            shape=CONVERSATION_SHAPE,
        ),
        duration_seconds=duration_seconds,
        sizes=_sizes(published.AZURE_2023_CONVERSATION),
    )


def azure_2023_code(seed: int, *, duration_seconds: float = 3436.0, rate: float = 2.567) -> Traffic:
    """Return an hour of a code service: spells of seconds with many requests, and nothing in between."""
    spells = rates.on_off(stream(seed, "spells"), CODE_SPELLS, duration_seconds=duration_seconds)
    return traffic(
        seed,
        gamma(
            stream(seed, "arrivals"),
            rates.scaled(spells, mean=rate, duration_seconds=duration_seconds),
            duration_seconds=duration_seconds,
            shape=CODE_SHAPE,
        ),
        duration_seconds=duration_seconds,
        sizes=_sizes(published.AZURE_2023_CODE),
    )


def azure_2024_conversation(
    seed: int, *, duration_seconds: float = 24 * HOUR, rate: float = 45.1, day: str = "Mon", hour: int = 0
) -> Traffic:
    """Return hours of the week of a conversation service, from ``hour`` of ``day`` on."""
    profile = _weekly(
        seed,
        published.AZURE_2024_CONVERSATION_WEEK,
        first_hour=_first_hour(day, hour),
        duration_seconds=duration_seconds,
        sigma=CONVERSATION_MINUTE_SIGMA,
    )
    return traffic(
        seed,
        gamma(
            stream(seed, "arrivals"),
            rates.scaled(profile, mean=rate, duration_seconds=duration_seconds),
            duration_seconds=duration_seconds,
            shape=CONVERSATION_SHAPE,
        ),
        duration_seconds=duration_seconds,
        sizes=_sizes(published.AZURE_2024_CONVERSATION),
    )


def azure_2024_coding(
    seed: int, *, duration_seconds: float = 24 * HOUR, rate: float = 27.8, day: str = "Mon", hour: int = 0
) -> Traffic:
    """Return hours of the week of a coding service, from ``hour`` of ``day`` on.

    Arrivals are a Poisson process: minutes that vary by 17.7 % leave no room for the spells of 2023.
    """
    profile = _weekly(
        seed,
        published.AZURE_2024_CODING_WEEK,
        first_hour=_first_hour(day, hour),
        duration_seconds=duration_seconds,
        sigma=CODING_MINUTE_SIGMA,
    )
    return traffic(
        seed,
        poisson(
            stream(seed, "arrivals"),
            rates.scaled(profile, mean=rate, duration_seconds=duration_seconds),
            duration_seconds=duration_seconds,
        ),
        duration_seconds=duration_seconds,
        sizes=_sizes(published.AZURE_2024_CODING),
    )


def burstgpt(seed: int, *, duration_seconds: float = 4 * HOUR, rate: float = 0.51) -> Traffic:
    """Return requests as the generator of BurstGPT draws them: Gamma gaps of shape 0.5, Zipf lengths of exponent 1.1.

    Its lengths have no end. Here prompts end at 4,096 tokens and answers at 2,048.
    """
    return traffic(
        seed,
        gamma(
            stream(seed, "arrivals"),
            RateProfile.constant(rate),
            duration_seconds=duration_seconds,
            shape=BURSTGPT_SHAPE,
        ),
        duration_seconds=duration_seconds,
        sizes=Sizes(
            zipf(exponent=BURSTGPT_EXPONENT, maximum_tokens=4096), zipf(exponent=BURSTGPT_EXPONENT, maximum_tokens=2048)
        ),
    )


def mooncake_conversation(seed: int, *, duration_seconds: float = HOUR, rate: float = 12_031 / HOUR) -> Traffic:
    """Return long prompts of chats that go on for turns: a cache without bounds holds 40 % of their tokens."""
    sharing = Mix(hit_ratio=0.40, session_share=0.7, template_share=0.3)
    return _mooncake(seed, duration_seconds=duration_seconds, rate=rate, means=(12_035, 343), sharing=sharing)


def mooncake_tool(seed: int, *, duration_seconds: float = HOUR, rate: float = 23_608 / HOUR) -> Traffic:
    """Return prompts of tools and agents, with long templates and many turns: 59 % of their tokens can be held."""
    sharing = Mix(
        hit_ratio=0.59,
        session_share=0.8,
        template_share=0.2,
        turns=10.0,
        think_seconds=20.0,
        template_tokens=6000.0,
    )
    return _mooncake(seed, duration_seconds=duration_seconds, rate=rate, means=(8596, 182), sharing=sharing)


def mooncake_synthetic(seed: int, *, duration_seconds: float = HOUR, rate: float = 3993 / HOUR) -> Traffic:
    """Return prompts of long sessions, of which 66 % of the tokens can be held."""
    sharing = Mix(hit_ratio=0.66, session_share=0.95, template_share=0.05, turns=15.0, think_seconds=30.0)
    return _mooncake(seed, duration_seconds=duration_seconds, rate=rate, means=(15_325, 149), sharing=sharing)


def client_mix(
    seed: int, *, duration_seconds: float = 2 * HOUR, rate: float = 8.0, clients: int = 12, zipf_exponent: float = 1.0
) -> Traffic:
    """Return the requests of some clients, of which few send most and cause the bursts (as ServeGen describes).

    The k-th client has a share of the requests in proportion to k^-exponent. Each has lengths of its own, gaps of its
    own, and a rate that wanders on its own.
    """
    weights = [number**-zipf_exponent for number in range(1, clients + 1)]
    traits = stream(seed, "clients")
    parts = []
    for number, weight in enumerate(weights):
        client_seed = int(traits.integers(2**62))
        prompt_tokens, output_tokens, shape = (
            1000.0 * float(traits.lognormal(0.0, 0.7)),
            300.0 * float(traits.lognormal(0.0, 0.5)),
            float(traits.uniform(0.3, 1.0)),
        )
        factor = rates.minute_factor(
            stream(client_seed, f"minutes of client {number}"), duration_seconds=duration_seconds, rho=0.95, sigma=0.8
        )
        profile = rates.scaled(factor, mean=rate * weight / sum(weights), duration_seconds=duration_seconds)
        parts.append(
            traffic(
                client_seed,
                gamma(stream(client_seed, "arrivals"), profile, duration_seconds=duration_seconds, shape=shape),
                duration_seconds=duration_seconds,
                sizes=Sizes(lognormal(TokenLengths(prompt_tokens, 0.8)), lognormal(TokenLengths(output_tokens, 0.8))),
            )
        )
    return merged(*parts)


def _sizes(lengths: published.TraceLengths, *, prompt_scale: float = 1.0, output_scale: float = 1.0) -> Sizes:
    return Sizes(
        quantiles(lengths.prompt, scale=prompt_scale),
        quantiles(lengths.output, scale=output_scale),
    )


def _first_hour(day: str, hour: int) -> int:
    if day not in published.DAYS or not 0 <= hour < HOURS:
        raise ValueError(f"day {day!r}, hour {hour}: expected one of {', '.join(published.DAYS)} and 0 to 23")
    return published.DAYS.index(day) * HOURS + hour


def _weekly(
    seed: int, week: tuple[float, ...], *, first_hour: int, duration_seconds: float, sigma: float
) -> RateProfile:
    """Return the factor of hour and minute."""
    return rates.product(
        rates.hourly(week, first_hour=first_hour, duration_seconds=duration_seconds),
        rates.levelled(
            rates.minute_factor(stream(seed, "minutes"), duration_seconds=duration_seconds, rho=MINUTE_RHO, sigma=sigma)
        ),
    )


def _mooncake(seed: int, *, duration_seconds: float, rate: float, means: tuple[float, float], sharing: Mix) -> Traffic:
    return traffic(
        seed,
        poisson(stream(seed, "arrivals"), RateProfile.constant(rate), duration_seconds=duration_seconds),
        duration_seconds=duration_seconds,
        sizes=_sizes(
            published.MOONCAKE,
            prompt_scale=means[0] / MOONCAKE_MEANS[0],
            output_scale=means[1] / MOONCAKE_MEANS[1],
        ),
        sharing=sharing,
    )
