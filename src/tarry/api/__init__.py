"""The operations of a broker: requests, results, and their form on the wire, each defined once."""
