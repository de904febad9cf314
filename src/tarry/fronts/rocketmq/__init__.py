"""The RocketMQ front: official v5 clients (gRPC, ``apache.rocketmq.v2``) work unchanged.

See ``docs/rocketmq.md``.

::

    front           the thread and its event loop; starts and stops            certificate   TLS
    common/         what every protocol of RocketMQ shares
      names, properties, draft, refusal   names and limits of topics and messages; refusals
      groups, topics                      made when first named                dead_letters  %DLQ% names
      send_queue                          one batch a loop turn                receive_queue waiting receives
      half_messages                       undecided transactions, on disk      threads       waits for the disk
      stubs                               the protobuf messages of v5
    v5/             apache.rocketmq.v2.MessagingService
      components, service                 the parts, put together; dispatch of calls
      authentication                      callers and their signatures         clients       connected clients
      telemetry                           settings and commands                routes        topics to queues
      drafting, sending, answer_bytes     messages in                          recalling     withdraw a delayed message
      receiving, message_bytes            long polls, messages out             settling      acknowledge, retry, reject
      transactions, transaction_checks    decisions, and asking for them       offsets       pulling
      resources, handles, statuses        names, handles and codes on the wire

Everything is on the loop's thread, but for calls that may wait for the disk (``run_in_thread``).
"""
