"""Made-up events and exports for benchmarks and tests. Each row depends only on a seed and its number."""
