"""Log engines for tests, and what each engine is held to (:mod:`tests.engines.test_conformance`)."""
