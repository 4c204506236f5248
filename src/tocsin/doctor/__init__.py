"""Examines an installation of routers and pipeline: each finding has a status, a sentence and a next step.

Nothing here changes or prints anything: `cli.doctor` prints the findings.
"""
