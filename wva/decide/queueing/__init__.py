"""The model-based optimizer: replicas as queues, sized by targets, allocated at the lowest cost.

docs/queueing-model.md says what it decides, docs/design/queueing-formulas.md how it computes.

Doors for the pipeline:

- ``wva.decide.analyze.queueing.analyze_queueing(models, policy=, memory=, now=)`` with a ``QueueingInputs`` per model
  gives a ``ModelOpinion`` per model (``wva.model.queueing``) and the next ``QueueingMemory``. Importing that module
  imports numpy, so import it inside the function that needs it. ``VariantOpinion.desired`` is the number, None is no
  opinion; ``ModelOpinion.hold`` and ``objection`` say why nothing is decided or nothing shrinks; ``capacity`` says the
  same as supply and demand in requests per second.
- ``wva.decide.arbitrate.arbitrate(decision, opinion, bounds=, most=)``: HYBRID, one variant. No numpy.
- ``trace.fleet_trace(opinions, inventory)``: the solution trace for the debug log and ``wva decide --explain``; no
  numpy.

Inside, from the bottom up: ``service`` (parameters, request sizes, queues), ``columns``, ``chain`` and ``geometric``
(steady state), ``roots``, ``sizing`` and ``results`` (targets to rates), ``system``, ``candidates``, ``solvers``,
``shortage`` and ``solution`` (allocations of a whole system, unlimited or greedy under capacity), ``cover`` (replicas
of the variants of one model), ``objectives`` (targets for models without any), ``observation``, ``estimation`` and
``kalman`` (parameters from what replicas report). Only ``columns``, ``chain``, ``geometric``, ``roots``, ``sizing``,
``candidates``, ``solution``, ``observation``, ``estimation`` and ``kalman`` need numpy.
"""
