"""The data pipeline on Spark: answers from the routers' delivery events, and pushes sent from executors.

Only this folder imports `pyspark` (docs/pipeline.md). It has no modules at its root. Folders import downwards:
`jobs` → `fanout`, `delivery`, `compaction`, `reconcile`, `explain`, `simulate`, `report`, `update` → `lake`,
`transforms`, `synthetic` → `checks`, `schemas`, `spark`. Nothing here imports a command or a router's service.
"""
