module wva.local/controlplane/prometheus-operator

go 1.26.0

require (
	github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring v0.95.1
	sigs.k8s.io/controller-tools v0.21.0
)

// As in the module of Kubernetes: what is compiled for kubectl is not compiled again.
replace (
	k8s.io/api => k8s.io/api v0.36.1
	k8s.io/apiextensions-apiserver => k8s.io/apiextensions-apiserver v0.36.1
	k8s.io/apimachinery => k8s.io/apimachinery v0.36.1
	k8s.io/utils => k8s.io/utils v0.0.0-20260210185600-b8788abfbbc2
)
