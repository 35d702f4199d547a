"""End-to-end tests on real servers, with a simulated kubelet."""
