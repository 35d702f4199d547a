"""Backtest: plays other policies on a user's own traffic, from Prometheus to a page with plots.

- ``queries``  the PromQL queries about one model
- ``fetch``    sends them chunk by chunk, and keeps each chunk so that it is not queried again
- ``history``  the answers as columns over time: pods, variants, histograms
- ``fit``      the engine parameters of each variant that explain the history, and the errors that remain
- ``scenario`` traffic and scenario from a history and a fit
- ``play``     runs of policies in the scenario, the recorded replicas among them
- ``report``   what really ran against what each policy would have run
- ``tune``     tries thresholds on the scenario, and finds those worth choosing from
"""
