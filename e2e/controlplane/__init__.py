"""A real Kubernetes control plane with KEDA and Prometheus on one machine, without containers.

``build`` compiles the servers from pinned Go modules, ``cluster`` runs them on loopback ports, ``session`` shares one
running control plane between test workers. Linux only: processes are held by pid file descriptors.
"""
