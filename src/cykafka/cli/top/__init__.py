"""``cykafka top``: a live page of the lag and the throughput of consumer groups."""
