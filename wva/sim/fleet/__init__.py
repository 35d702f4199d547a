"""A simulated vLLM fleet: replicas with continuous batching, a gateway in front of them, their metrics pages.

In: which pods are Ready (from the embedded world or the e2e cluster), offered load per model, virtual time.
Out: exposition text per pod or of the whole fleet, and a summary of what the users got (TTFT, ITL, drops).
Everything is a function of a seed and of virtual time; only ``server`` ties virtual time to a clock given to it.

Reading order: ``parameters`` (what a replica can do), ``engine`` (one replica), ``router`` (the gateway), ``load``
(arrivals), ``fleet`` (all of it together), ``metrics`` (exposition), ``calibration`` (which rate saturates what).
"""
