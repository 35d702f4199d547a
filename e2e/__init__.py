"""End-to-end tests: everything real but the kubelet."""
