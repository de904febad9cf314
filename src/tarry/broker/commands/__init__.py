"""What a submission may ask beyond having its rows stored: decided by the intake's writer, one after the other.

``write_batch`` is what is known and promised in one commit · ``schedule_named`` schedules under keys and ids ·
``cancel`` cancels · ``move`` reschedules · ``advance_series`` stores the next occurrence of a series ·
``register_keys`` registers the keys of a bulk job's messages · ``append_rows`` writes what was decided already.

Because one thread decides in the order of the log, two callers never get answers that contradict each other; and
because what is decided is written in one frame with the rows that it is about, a crash leaves all of it or nothing.
"""
