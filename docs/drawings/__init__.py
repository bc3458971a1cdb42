"""Functions that draw the pictures of the documentation; each has the name of its picture."""
