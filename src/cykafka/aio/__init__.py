from cykafka.aio.consumer import AsyncConsumer
