"""Names that the tests import; those that use them are left out."""

import logging

logger = logging.getLogger(__name__)
