"""A simulated vLLM fleet: replicas with continuous batching, a gateway in front of them, their metrics pages.

In: which pods are Ready (from the embedded world or the e2e cluster), offered load per model, virtual time.
Out: exposition text per pod or of the whole fleet, and a summary of what the users got (TTFT, ITL, drops).
Everything is a function of a seed and of virtual time; only ``server`` ties virtual time to a clock given to it.

The physics is functions on columns, which numba compiles where it is installed (``compiled``): ``columns`` (the state),
``steps`` (an engine) with ``blocks`` (its KV cache), ``lists`` and ``observed`` (what it counts), ``gateway`` (events,
users and routing). Around them: ``parameters`` (what an engine can do), ``engine`` (one engine alone), ``service``
(engines, gateway and users of a model), ``load`` (arrivals), ``pool`` (a service under a load), ``fleet`` (all models),
``metrics`` (exposition), ``calibration`` (which rate saturates an engine).
"""
