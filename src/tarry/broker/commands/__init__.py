"""Commands of submissions beyond storing rows: decided by the intake's writer, one after the other.

``write_batch`` holds the names and outcomes of one commit · ``schedule_named`` schedules under keys and ids ·
``cancel`` cancels · ``move`` reschedules · ``advance_series`` stores the next occurrence of a series ·
``register_keys`` registers the keys of a bulk job's messages · ``append_rows`` writes rows that were decided already.

One thread decides in the order of the log, so two callers never get answers that contradict each other. Decisions are
written in one frame with the rows that they are about, so a crash leaves all of it or nothing.
"""
