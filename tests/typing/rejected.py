"""Mistakes that mypy must find: exactly one on each line that is marked with its code.

It is checked, never run.
"""

from cykafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

producer = Producer({"bootstrap.servers": "localhost:9092"})
consumer = Consumer({"bootstrap.servers": "localhost:9092", "group.id": "group"})

Producer("localhost:9092")  # expect: arg-type, call-overload
producer.produce(b"orders")  # expect: arg-type
producer.produce("orders", 3)  # expect: arg-type
producer.produce("orders", payload=b"x")  # expect: call-arg
producer.produce("orders", on_delivery=lambda error: None)  # expect: misc, arg-type
producer.poll("soon")  # expect: arg-type
producer.sync()  # expect: attr-defined
flushed: str = producer.flush()  # expect: assignment

consumer.subscribe("orders")  # expect: arg-type
consumer.consume("many")  # expect: arg-type
consumer.seek([TopicPartition("orders", 0, 0)])  # expect: arg-type
consumer.poll(1.0).value()  # expect: union-attr
consumer.assignment()[0].topic = "other"  # expect: misc

TopicPartition(3)  # expect: arg-type
KafkaError("three")  # expect: arg-type
KafkaException().code()  # expect: attr-defined
