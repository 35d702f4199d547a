"""What is installed, rendered and checked without a cluster, by the tools that its users have."""
