module wva.local/controlplane/prometheus-adapter

go 1.26

require sigs.k8s.io/prometheus-adapter v0.12.0
