"""Tests of manifests, chart, image and scripts that need no cluster, with the tools that users have."""
