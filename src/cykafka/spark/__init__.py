"""Kafka in PySpark: a data source, a sink and ready-made jobs.

``pip install cykafka[spark]`` is all that is needed: ``spark.read.format("cykafka")`` then finds
the source by itself (through the module ``pyspark_cykafka``).
"""
