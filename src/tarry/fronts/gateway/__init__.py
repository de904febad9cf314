"""Gateways: fronts in processes of their own, which exchange columns with the broker. ``docs/formats-gateway.md``.

::

    frames           what goes over a connection, as bytes
    front            the broker's side: listens, and has the thread
    served/          one connection of it
      connection     who it is, and which part carries out what it asks for
      submissions    batches to schedule                consumers         polls, and what was handed out
      settlements    acks and the like                  board_seat        what processes of a front say to each other
      group_calls    groups that it names               group_table       the groups of all connections
      questions      what may wait for the disk         outgoing          what is written to it
    remote/          the gateway's side
      broker         the broker, as fronts see it       groups, group     its groups; one of them, and its consumers
      link           the stream, on the front's loop    control           questions that are waited for
      board          what other processes say
    supervisor       starts the processes (``tarry.cli.gateway_worker``), again where one has ended

A worker lives as long as its link: when that is lost it ends, and another one begins with nothing. So there is no state
to be carried over, and none that could be wrong.
"""
