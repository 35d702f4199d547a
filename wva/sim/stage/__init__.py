"""The stage: a simulated cluster in virtual time, in which any policy can act, without servers and sockets.

- ``view``      what a policy sees of the world, and what it may do
- ``prometheus``  what PromQL returns for scrapes
- ``observe``   the Snapshot that the decision code gets
- ``scenario``  the parts of a run
- ``gpus``      the GPUs of the cluster, and pods that wait for them
- ``world``     requests, replicas, pods that start, and scrapes, around a policy; one world per model
- ``run``       one run of one policy, and its result
- ``links``     from demand to capacity: what each link of the chain had done
- ``late``      what made late requests wait
"""
