"""What a submission may ask beyond having its rows stored: decided by the intake's writer, one after the other.

``write_batch`` is what is known and promised in one commit · ``named`` schedules under keys and ids · ``cancel``
cancels · ``move`` reschedules · ``advance`` is the next occurrence of a series.

Because one thread decides in the order of the log, two callers never get answers that contradict each other; and
because what is decided is written in one frame with the rows that it is about, a crash leaves all of it or nothing.
"""
