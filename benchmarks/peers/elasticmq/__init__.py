"""ElasticMQ, an SQS server that keeps its messages in memory: fetched from Maven Central, as a process of its own."""
