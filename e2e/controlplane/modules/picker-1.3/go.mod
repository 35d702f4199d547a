module wva.local/controlplane/picker-1.3

go 1.26.0

require sigs.k8s.io/gateway-api-inference-extension v1.3.0
