"""The embedded world: the parts of a cluster that are not the API server, in virtual time and in lockstep.

- ``clock``      virtual time, for the world and for the controller in it
- ``workloads``  the Deployment controller and the kubelet: ReplicaSets, pods, loading delays
- ``scaler``     the HorizontalPodAutoscaler: reads ``wva_desired_replicas``, writes the scale
- ``objects``    the Kubernetes objects of a scenario
- ``scenarios``  the scenarios of the demo
- ``world``      API server, Prometheus, fleet and the above around an unmodified controller
- ``timeline``   the record of a run, and its summary
"""
