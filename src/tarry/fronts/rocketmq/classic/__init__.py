"""RocketMQ's classic protocol, "remoting".

Its clients, of 4.x and 5.x, talk to a name server and brokers.

::

    codes, frames, fields        requests and answers on the wire, without I/O
    message_bytes, batches       messages to consumers; several messages of a producer in one body
    connection, service          one client's bytes; dispatch of requests
    authentication               access keys
    clients                      connected producers and consumers, subscriptions
    routes, queues               topics to queues
    drafting, sending            messages in                            recalling    withdraw a delayed message
    lost_answers                 producers' retries of accepted sends
    replying                     replies to requests, handed on
    retrying                     messages that a consumer failed        transactions decisions, and asking for them
    pulling, queue_reader        messages out, by offset                chunks       parts of queues in memory
    offsets, positions, commits  positions of groups                    locks        orderly consumers
    receiving, settling          messages out, leased                   handles      handles to settle them
    giving_up, dead_queues       dead letters of groups                 rows         messages by place
    assigning                    queues of each consumer, and how       filters      filters of groups
    lookup                       messages by key, by id
    admin, admin_groups, admin_clients, admin_tables, runtime_table     requests of mqadmin
    consume_stats, queue_lag, group_lists                               progress of groups
    front, components            the listening sockets; the parts, put together
"""
