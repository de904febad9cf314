"""The RocketMQ front: official v5 clients (gRPC, ``apache.rocketmq.v2``) work unchanged.

See ``docs/rocketmq.md``.

::

    declaration     what the server knows of the fronts before loading them    settings      their settings
    front           the thread of v5 and its event loop; starts and stops
    common/         what every protocol of RocketMQ shares
      names, properties, draft, refusal   names and limits of topics and messages; refusals
      groups, topics                      made when first named                dead_letters  %DLQ% names
      send_queue                          one batch a loop turn                unpacking     compressed bodies
      half_messages, transaction_checks   undecided transactions               threads       waits for the disk
      broker_names, delay_topics          names that tools look at             access_keys   the file of keys
      certificate                         TLS                                  stubs         protobuf messages of v5
    classic/        the remoting protocol; see the package
    v5/             apache.rocketmq.v2.MessagingService
      components, service                 the parts, put together; dispatch of calls
      authentication                      callers and their signatures         clients       connected clients
      peers                               clients of other processes
      telemetry                           settings and commands                routes        topics to queues
      drafting, sending, answer_bytes     messages in                          recalling     withdraw a delayed message
      receiving, message_bytes            long polls, messages out             settling      acknowledge, retry, reject
      transactions, transaction_checks    decisions, and asking for them       offsets       pulling
      resources, handles, statuses        names, handles and codes on the wire

Waiting receives and gathered acknowledgements: :mod:`tarry.fronts.kit`. Everything is on the loop's thread, except for
calls that may wait for the disk (``run_in_thread``).
"""
