module wva.local/controlplane/prometheus-operator

go 1.25

require (
	github.com/prometheus-operator/prometheus-operator v0.78.2
)
