"""The channels between routers and the `deliver` job: rows go to the job, outcomes come back.

Each channel has two ends, one for the router and one for the job. Both carry bytes and know nothing of pushes. Spark
executors import the job's ends.
"""
