"""The page in the browser: its server, access rules, static files, and the content of its views.

Views are pure functions over metrics, pipeline tables and a bounded history. HTTP itself is in `operate`. Nothing here
imports a router or Spark.
"""
