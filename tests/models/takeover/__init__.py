"""Models of a log in an object store that another machine takes over (docs/takeover-model.md)."""
