"""Gateways: fronts in processes of their own, which exchange columns with the broker. ``docs/formats-gateway.md``.

::

    frames           what goes over the connection, as bytes
    broker's side
      front          listens, and has the thread        served            one connection
      served_calls   what may wait for the disk         served_groups     groups, by number, and their changes
    gateway's side
      remote_broker  the broker, as fronts see it       remote_group      a group and its consumers
      link           the stream, on the front's loop    control           questions that are waited for
      remote_board   what other processes say
    worker           the process                        supervisor        starts it, again where it has ended

A worker lives as long as its link: when that is lost it ends, and another one begins with nothing. So there is no state
to be carried over, and none that could be wrong.
"""
