module wva.local/controlplane/helm

go 1.26.0

require (
	helm.sh/helm/v3 v3.21.4 // indirect
	k8s.io/cli-runtime v0.36.3
)
