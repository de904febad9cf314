"""The API of Amazon SQS: AWS's own SDKs need nothing but another ``endpoint_url``. The page is ``docs/sqs.md``.

A queue is a topic and its one group, a visibility time-out is a lease, a receipt handle names it. The operations are
written for the JSON protocol; :mod:`.query_protocol` turns older SDKs' forms into the same, and back into XML.
"""
