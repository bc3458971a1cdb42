"""Methods that solve one eigenproblem of second moments."""

from contrast_core.spectral._cpca import CPCA

__all__ = ["CPCA"]
