"""RocketMQ 5: ``apache.rocketmq.v2.MessagingService`` over gRPC. Source: apache/rocketmq-apis."""
