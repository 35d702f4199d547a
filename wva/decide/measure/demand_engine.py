"""Learns how long the steps of an engine take, and derives from that how many requests a replica carries.

A step of a vLLM engine takes ``base + per_sequence * sequences + per_token * tokens in the KV cache + per_prompt *
prompt tokens computed in it``. The mean time between tokens is the mean time of a step, and the counters tell the
mean batch and the prompt tokens of a step, so the four numbers follow from a linear regression. They belong to the
engine, not to the requests: when prompts get longer they stay, and capacity follows at once. At low load the data do
not determine most of them. Then the prior counts, whose proportions follow from the memory bandwidth and the arithmetic
of GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log, sqrt
from typing import Final

from msgspec import Struct

from wva.decide.measure.demand_arrivals import PodPrefills, VariantChange
from wva.model.means import LONGEST_TOKENS
from wva.model.memory import Fit
from wva.model.objectives import DEFAULT_OBJECTIVES, Objectives
from wva.model.records import replace
from wva.model.vllm_parameters import VllmParameters

_HALF_LIFE_SECONDS: Final = 7200.0
_NOISE: Final = 0.05  # relative error of the mean time between tokens of one cycle, model error included
_PRIOR_SPREAD: Final = 0.6  # spread of the prior, relative to it or to what is found, whichever is more
_ROUNDS: Final = 4  # with more, a single wrong reading of few would be believed
_SEQUENCE_OF_BASE: Final = 1e-3
_CACHE_OF_BASE: Final = 1.5  # reading a full KV cache takes about 1.5 times as long as reading the weights
_PROMPT_OF_BASE: Final = 1 / 200
_USUAL_CACHE: Final = 300_000.0
_FEWEST_TOKENS: Final = 100.0
_FEWEST_PROMPTS: Final = 3.0
_SHORTEST_STEP: Final = 1e-5  # steps beyond these bounds (seconds) are not believed
_LONGEST_STEP: Final = 100.0
_MOST: Final = 1e5  # more requests at once are not believed
_HALVINGS: Final = 14
_ARRIVALS: Final = 0.5
"""Squared variation of the times between prompts at a replica; that of their lengths is measured. A gateway that evens
out loads does not make arrivals regular: if two answers of a replica have just ended, it gets the next two prompts."""
_PROMPTS_ALONE: Final = 0.7
"""Of the variation of a queue of prompts a replica has so much for itself, however many share it. With less a replica
is planned to be busier: in simulated queues 3 to 9 replicas could be, but a jump of the load finds no room then."""
_NEWTON_STEPS: Final = 4  # they begin on the steep side, so each comes nearer
_LATE_DIGITS: Final = 9
"""The share of late prompts is rounded to so many digits: 1 - 0.99 is 0.01 then, as it is meant."""
_LEAST_VARIED: Final = 0.8  # prompts of one length that come by chance wait as if they varied so much
_IDLE: Final = 2.0  # the target is at least so many times the time that a long prompt takes alone
EMPTY_STEPS: Final = 2.5  # the time between tokens is at least so many times the step of an engine with one answer
_USUAL_SEQUENCES: Final = 256.0
_USUAL_STEP_TOKENS: Final = 2048.0
_FULL: Final = 0.97  # share of the KV cache that can be used
_SPREAD: Final = 2.0  # the mean batch plus so many standard deviations must fit


class EngineModel(Struct, frozen=True, gc=False):
    """One replica for requests of known sizes. Times in seconds.

    A step with n answers in progress takes ``base + slope * n``, and the prompts of new requests interrupt it.
    """

    base: float
    slope: float
    prefill: float  # the time of a prompt
    answer: float  # the steps of an answer
    prompt_steps: float  # the steps of a prompt
    most: float  # requests in progress at most
    allowed: float  # the largest mean batch that is allowed
    limit: str  # what bounds ``most`` and ``allowed``
    objectives: Objectives = DEFAULT_OBJECTIVES  # what users shall get, even if no engine can give it
    timely: float = inf  # with more in progress a step takes longer than the objective for the time between tokens

    def rate(self, batch: float) -> float:
        """Return the requests per second at which ``batch`` requests are in progress, by Little's law."""
        return batch / (self.answer * (self.base + self.slope * batch) + batch * self.prefill)

    def faster(self, factor: float) -> EngineModel:
        """Return a replica that is faster by this factor."""
        return replace(self, base=self.base / factor, slope=self.slope / factor, prefill=self.prefill / factor)

    def within(self) -> float:
        """Return how long the first token may take at this replica, in seconds."""
        return self.objectives.ttft_seconds

    def least_ttft(self, variability: float) -> float:
        """Return the time in which a long prompt can be expected to have its first token on a replica of its own."""
        long = 1.0 + sqrt(variability)
        return _IDLE * long * (self.prefill + self.prompt_steps * self.base)

    def reached(self, variability: float) -> Objectives:
        """Return the objectives that are planned for: if a replica cannot reach one, the nearest that it can."""
        asked = self.objectives
        ttft, itl = self.least_ttft(variability), EMPTY_STEPS * self.base
        if ttft <= asked.ttft_seconds and itl <= asked.itl_seconds:
            return asked
        return replace(asked, ttft_seconds=max(asked.ttft_seconds, ttft), itl_seconds=max(asked.itl_seconds, itl))

    def batch(self, alone: float) -> float:
        """Return the mean batch that a replica may have.

        The batch varies by chance, and its highest value must fit and be served in time. ``alone`` is the share of this
        variation that a replica has for itself: 1 if chance decides which replica gets a request, 1/n if n replicas
        share it.
        """
        low, high, wait = 0.0, self.allowed, 0.5 * self.objectives.ttft_seconds
        base, slope, prefill, answer, most = self.base, self.slope, self.prefill, self.answer, self.most
        per_request, scale, timely = slope + prefill / answer, alone / base, self.timely
        for _ in range(_HALVINGS):
            batch = (low + high) / 2.0
            room = wait * batch / (answer * (base + slope * batch) + batch * prefill)
            if batch + _SPREAD * sqrt(batch * (base + batch * per_request) * scale) <= min(most + room, timely):
                low = batch
            else:
                high = batch
        return max(0.1, low)

    def batch_by_prompts(self, variability: float, alone: float = 1.0) -> float:
        """Return the batch at which as many prompts wait too long as may be late, at most the allowed batch.

        For prompts the replica is a queue with one server. ``variability`` is the squared variation of their lengths.
        A queue that replicas share is shorter: ``alone`` is as for ``batch``.
        """
        low, high = 0.0, self.rate(self.allowed)
        target = max(self.within(), self.least_ttft(variability))
        late = log(round(1.0 - self.objectives.in_time, _LATE_DIGITS))
        varied = max(_LEAST_VARIED, _ARRIVALS + variability)
        best, rate = 0.0, high
        for _ in range(_HALVINGS):
            left = 1.0 - rate * (self.answer * self.slope + self.prefill)
            batch = self.allowed if left <= 0.0 else min(self.allowed, rate * self.answer * self.base / left)
            service = self.prefill + self.prompt_steps * (self.base + self.slope * batch)
            busy, room = rate * service, target - service
            if busy < 1.0 and room > 0.0 and log(busy) - 2.0 * (1.0 - busy) * room / (service * varied * alone) <= late:
                low, best = rate, batch
            else:
                high = rate
            if low >= high:
                return self.allowed
            rate = (low + high) / 2.0
        return max(best, 0.1)


class PromptEngine(EngineModel, frozen=True, gc=False):
    """One replica that computes prompts only: ``base`` and ``prefill`` are both the time of a prompt.

    The user gets the first token after the ``handover``. For what a replica carries, it counts as at most half of the
    objective, because more replicas do not make it faster. For what can be reached, all of it counts.
    """

    handover: float = 0.0
    variability: float = 0.0  # the squared variation of the lengths of prompts

    def batch(self, alone: float) -> float:
        """Return the mean batch that a replica may have; ``alone`` is as for ``EngineModel``."""
        return self.batch_by_prompts(self.variability, _PROMPTS_ALONE + (1.0 - _PROMPTS_ALONE) * alone)

    def within(self) -> float:
        """Return how long the first token may take at this replica, in seconds."""
        return self.objectives.ttft_seconds - self._after()

    def reached(self, variability: float) -> Objectives:
        """Return the objectives that are planned for. The time between tokens depends on other replicas."""
        ttft = self.least_ttft(variability) + self.handover
        asked = self.objectives
        return asked if ttft <= asked.ttft_seconds else replace(asked, ttft_seconds=ttft)

    def _after(self) -> float:
        return min(self.handover, 0.5 * self.objectives.ttft_seconds)


def learned(fit: Fit, change: VariantChange, *, held: float, now: float) -> Fit:
    """Return the fit with what a variant's engines did in a cycle; ``held``: tokens in the cache of a sequence."""
    if change.gaps < _FEWEST_TOKENS:
        return fit
    decay = 0.5 ** (max(0.0, now - fit.at) / _HALF_LIFE_SECONDS) if fit.at else 0.0
    step, batch, prefilled = change.step / change.gaps, change.batch / change.gaps, change.prefilled / change.gaps
    if not (_SHORTEST_STEP < step < _LONGEST_STEP and batch < _MOST and 0.0 <= prefilled < LONGEST_TOKENS):
        return fit
    cached = batch * held
    weight = 1.0 / (step * step * (_NOISE * _NOISE + 4.0 / change.gaps))
    rows = []
    for (a, b, c, d, e), feature in zip(fit.rows, (1.0, batch, cached, prefilled), strict=True):
        new = weight * feature
        row = (decay * a + new, decay * b + new * batch, decay * c + new * cached)
        rows.append((*row, decay * d + new * prefilled, decay * e + new * step))
    return Fit(tuple(rows), min(fit.shortest or inf, step), now)


def learned_prompts(
    fit: Fit, change: VariantChange, parameters: VllmParameters | None, variability: float, now: float
) -> Fit:
    """Return the fit of engines that compute prompts only, with what they did in a cycle.

    ``variability`` is the squared variation of the lengths of prompts.
    """
    prompts = sum([pod.prompts for pod in change.prefills])
    tokens = sum([pod.tokens for pod in change.prefills])
    if prompts < _FEWEST_PROMPTS or not tokens > 0.0:
        return fit
    decay = 0.5 ** (max(0.0, now - fit.at) / _HALF_LIFE_SECONDS) if fit.at else 0.0
    budget = _step_tokens(parameters)
    busy = sum([pod.prompts * _alone(pod, budget, variability) for pod in change.prefills])
    if not _SHORTEST_STEP < busy / prompts < _LONGEST_STEP:
        return fit
    return replace(
        fit,
        at=now,
        prompt_seconds=decay * fit.prompt_seconds + busy,
        prompt_tokens=decay * fit.prompt_tokens + tokens,
    )


def _alone(pod: PodPrefills, budget: float, variability: float) -> float:
    """Return how long an engine takes for a prompt that it computes alone, in seconds.

    A step computes all prompts together that came during the step before. So if prompts come by chance at a rate r, and
    each takes s alone, they take a mean of t = s + (r s)^2 (t + v s), with the squared variation v of their lengths:
    while the engine is busy (r s of the time), a prompt shares its step with those that came during the step before.

    A step has room for ``budget`` tokens, so the longer the prompts, the fewer share a step: the second term is divided
    by 1 + length / budget. This divisor was found in simulated engines; there the result is within 5 % for prompts of
    up to two budgets. If more prompts wait at any time than fit into a step, the engine has no pause, and s is the time
    between two prompts.
    """
    rate, mean, length = pod.prompts / pod.seconds, pod.taken / pod.prompts, pod.tokens / pod.prompts
    if pod.waited * length > budget:
        return 1.0 / rate
    shared = rate * rate / (1.0 + length / budget)
    alone = mean * 2.0 / (1.0 + sqrt(1.0 + 4.0 * shared * mean * mean))  # without the variation, which makes it less
    for _ in range(_NEWTON_STEPS):
        part = shared * alone * alone
        beyond = alone + part * (mean + variability * alone) - mean
        alone -= beyond / (1.0 + part * (2.0 * mean / alone + 3.0 * variability))
    return min(alone, 1.0 / rate)


def prompt_engine_of(
    fit: Fit,
    parameters: VllmParameters | None,
    prompt: float,
    variability: float,
    objectives: Objectives,
    handover: float = 0.0,
) -> PromptEngine | None:
    """Return a replica that computes prompts only, of ``prompt`` tokens each; None while nothing has been learned.

    ``handover``: how long a first token takes after its prompt has left these pods, in seconds. The replica is a queue
    with one server: ``batch / (1 + batch)`` is the share of time in which it is busy.
    """
    if not fit.prompt_tokens > 0.0:
        return None
    sequences = sequences_of(parameters)
    service = fit.prompt_seconds / fit.prompt_tokens * max(prompt, 1.0)
    limit = "time to first token"
    engine = PromptEngine(service, 0.0, service, 1.0, 0.0, sequences, sequences, limit, objectives)
    return replace(engine, handover=handover, variability=variability)


def sequences_of(parameters: VllmParameters | None) -> float:
    """Return how many requests a replica computes together at most."""
    return _USUAL_SEQUENCES if parameters is None else min(_MOST, max(1.0, float(parameters.max_num_seqs)))


def _step_tokens(parameters: VllmParameters | None) -> float:
    """Return the tokens that a step computes at most."""
    tokens = _USUAL_STEP_TOKENS if parameters is None else float(parameters.batched_tokens)
    return tokens if tokens > 0.0 else _USUAL_STEP_TOKENS


def engine_of(
    fit: Fit,
    parameters: VllmParameters | None,
    kv_tokens: float,
    sizes: tuple[float, float, float],
    variability: float,
    objectives: Objectives = DEFAULT_OBJECTIVES,
) -> EngineModel | None:
    """Return a replica, None while nothing has been learned.

    ``sizes`` are the tokens of a prompt, of an answer, and in the KV cache for a request. ``kv_tokens`` is the size of
    the KV cache, 0 if not known. ``variability`` is the squared variation of the lengths of prompts.
    ``objectives`` are those of the model.
    """
    if not fit.shortest:
        return None
    sequences = sequences_of(parameters)
    step_tokens = _USUAL_STEP_TOKENS if parameters is None else float(parameters.max_num_batched_tokens)
    prompt, answer, held = max(sizes[0], 1.0), max(sizes[1], 1.0), max(sizes[2], 1.0)
    base, per_sequence, per_token, per_prompt = _most_likely(fit, kv_tokens or _USUAL_CACHE)
    slope, prefill = per_sequence + per_token * held, per_prompt * prompt
    by_cache = _FULL * kv_tokens / held if kv_tokens else inf
    most = max(1.0, min(sequences, by_cache))
    limit = "KV cache" if by_cache < sequences else "sequences"
    steps = max(1.0, prompt / (step_tokens if step_tokens > 0.0 else _USUAL_STEP_TOKENS))
    by_target = (max(objectives.itl_seconds, EMPTY_STEPS * base) - base) / (slope + prefill / answer)
    if by_target < most:
        limit = "time between tokens"
    timely = max(0.5, by_target)
    allowed = min(most, timely)
    engine = EngineModel(base, slope, prefill, answer, steps, most, allowed, limit, objectives, timely)
    by_prompts = engine.batch_by_prompts(variability)
    return replace(engine, allowed=by_prompts, limit="time to first token") if by_prompts < allowed else engine


def _most_likely(fit: Fit, cache: float) -> tuple[float, ...]:
    """Return the four numbers of a step that are most likely given the data, for a KV cache of ``cache`` tokens.

    A number below a tenth of its prior is set to this tenth. The prior follows from ``base``, and its spread from what
    is found, so both are found in rounds. A spread of the prior alone would hold an engine to the usual ratios for
    ever: on a CPU a step takes a hundred times as much longer for each sequence as on a GPU.
    """
    base = 0.9 * fit.shortest
    values: tuple[float, ...] = ()
    for _ in range(_ROUNDS):
        prior = (base, base * _SEQUENCE_OF_BASE, base * _CACHE_OF_BASE / cache, base * _PROMPT_OF_BASE)
        minimums = [0.1 * prior_value for prior_value in prior]
        system = list(map(list, fit.rows))
        for index, (prior_value, found) in enumerate(zip(prior, values or prior, strict=True)):
            strength = 1.0 / (_PRIOR_SPREAD * max(prior_value, found)) ** 2
            system[index][index] += strength
            system[index][-1] += strength * prior_value
        values = _solved(system)
        fixed: dict[int, float] = {}
        while low := [index for index, value in enumerate(values) if value < minimums[index] and index not in fixed]:
            fixed |= {index: minimums[index] for index in low}
            reduced = []
            for index, row in enumerate(system):
                # The columns of values that are known go to the right side.
                fixed_sum = 0.0
                for column, value in fixed.items():
                    fixed_sum += row[column] * value
                free = [0.0 if column in fixed else factor for column, factor in enumerate(row)]
                free[-1] -= fixed_sum
                if index in fixed:
                    free = [0.0, 0.0, 0.0, 0.0, fixed[index]]
                    free[index] = 1.0
                reduced.append(free)
            values = _solved(reduced)
        base = max(0.3 * fit.shortest, min(fit.shortest, values[0]))
    return values


def _solved(rows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Return the solution of four equations, each with its right side, by elimination in their order.

    Their matrix is positive definite. The elimination is written out because it runs often in each cycle.
    """
    (a0, a1, a2, a3, a4), (b0, b1, b2, b3, b4), (c0, c1, c2, c3, c4), (d0, d1, d2, d3, d4) = rows
    factor = b0 / a0
    b1, b2, b3, b4 = b1 - factor * a1, b2 - factor * a2, b3 - factor * a3, b4 - factor * a4
    factor = c0 / a0
    c1, c2, c3, c4 = c1 - factor * a1, c2 - factor * a2, c3 - factor * a3, c4 - factor * a4
    factor = d0 / a0
    d1, d2, d3, d4 = d1 - factor * a1, d2 - factor * a2, d3 - factor * a3, d4 - factor * a4
    factor = c1 / b1
    c2, c3, c4 = c2 - factor * b2, c3 - factor * b3, c4 - factor * b4
    factor = d1 / b1
    d2, d3, d4 = d2 - factor * b2, d3 - factor * b3, d4 - factor * b4
    factor = d2 / c2
    fourth = (d4 - factor * c4) / (d3 - factor * c3)
    third = (c4 - c3 * fourth) / c2
    second = (b4 - (b2 * third + b3 * fourth)) / b1
    return (a4 - (a1 * second + a2 * third + a3 * fourth)) / a0, second, third, fourth
