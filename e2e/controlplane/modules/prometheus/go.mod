module wva.local/controlplane/prometheus

go 1.26

require github.com/prometheus/prometheus v0.311.3 // indirect
