"""``cykafka top``: a live page with the lag and throughput of consumer groups."""
