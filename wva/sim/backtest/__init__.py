"""Backtest: plays other policies on a user's own traffic, from Prometheus to a page with plots.

- ``queries``  what is asked of Prometheus about one model
- ``fetch``    asks for it chunk by chunk; each chunk is kept and not asked for again
- ``history``  the answers as columns over time: pods, variants, histograms
- ``fit``      parameters of the engine of each variant that explain what was seen, and how far they do not
- ``scenario`` traffic and scenario from a history and a fit
- ``play``     runs of policies in it, the recorded replicas among them
- ``report``   what really ran against what each policy would have run
- ``tune``     thresholds tried on it, and those worth choosing from
"""
