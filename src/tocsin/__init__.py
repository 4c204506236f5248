"""Tocsin: private push notifications for SimpleX."""

import sys

__all__ = ["__version__"]

__version__ = "0.1.0"

if sys.version_info < (3, 11, 4):  # Debian 12 has 3.11.2
    from tocsin.older_timeouts import mend_timeouts

    mend_timeouts()
