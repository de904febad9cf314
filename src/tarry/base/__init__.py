"""What everything else stands on: the message's schema and its columns, time, errors, settings. It knows no other
package."""
