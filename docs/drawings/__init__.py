"""Functions that draw the pictures of the documentation, and have the names of the pictures."""
