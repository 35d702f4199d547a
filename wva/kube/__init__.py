"""Generic controller machinery: watch -> cache -> work queue -> reconcile, leader election, event recorder.

No module here knows variants. Data passes through the modules in this order: ``client`` talks HTTP, ``watch`` turns
requests into a stream of changes that never ends, ``cache`` holds the result, ``informer`` ties the three together;
``workqueue`` and ``controller`` carry keys from the cache's handlers to reconcilers; ``leader`` and ``events`` stand
beside them.
"""
