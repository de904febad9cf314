"""Identities, their rights, and a broker as each of them sees it.

``grants`` is the language of rights · ``rights`` decides · ``principal`` is a caller that is known · ``authenticator``
finds it by its credential · ``checks`` asks for what an operation needs · ``seen`` is a broker as a principal sees it.

Where identities are kept is the broker's business (``tarry.broker.identities``); how a credential comes over a wire is
the fronts'.
"""
