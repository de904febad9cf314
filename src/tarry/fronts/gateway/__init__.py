"""Gateways: fronts in processes of their own, which exchange columns with the broker.

The format is in ``docs/formats-link.md``::

    frames           the frames of a connection, as bytes
    authentication   the secret and TLS of connections by TCP
    front            the broker's side: listens, and has the thread
    served/          one connection of it
      connection     greeting, admission, and dispatch of frames
      sending        batches to schedule                receiving         polls, and messages handed out
      settling       acknowledgements and the like      board             posts and messages between a front's processes
      group_calls    groups that it names               groups            the groups of all connections
      questions      calls that may wait for the disk   outgoing          frames written to it
      half_frames    bound on unfinished frames         shared            state shared by all connections
      news           tokens and identities, as they change
    remote/          the gateway's side
      broker         the broker, as fronts see it       groups, group     its groups; one of them, and its consumers
      link           the stream, on the front's loop    control           questions that a thread waits for
      board          posts and messages of the other processes
    supervisor       starts the processes (``tarry.cli.gateway_worker``), again when one has ended

A worker's front lives as long as its link: when that is lost it ends, and another one begins with nothing. So there is
no state to be carried over, and none that could be wrong. The process stays, and looks for the broker's owner.
"""
