"""RocketMQ's classic protocol, "remoting": clients of 4.x and 5.x that talk to a name server and brokers.

::

    codes, frames, fields        requests and answers on the wire, without I/O
    message_bytes, batches       messages to consumers; several messages of a producer in one body
    connection, service          one client's bytes; which request goes where
    authentication               access keys
    clients                      who is there: producers, consumers, what they subscribe to
    routes, queues               topics to queues
    drafting, sending            messages in                            recalling    withdraw a delayed message
    lost_answers                 retries of what was accepted
    replying                     replies to requests, handed on
    retrying                     what a consumer could not handle       transactions decisions, and asking for them
    pulling, queue_reader        messages out, by offset                chunks       parts of queues in memory
    offsets, positions, commits  where groups stand                     locks        orderly consumers
    popping, pop_settling        messages out, leased                   pop_handles  what they are settled with
    assigning                    who reads which queue, and how         filters      what a group wants of a topic
    lookup                       messages by key, by id
    admin, admin_groups, admin_clients, admin_tables                    what mqadmin asks
    consume_stats, queue_lag, group_lists                               how far groups are
    front, components            the listening sockets; the parts, put together
"""
