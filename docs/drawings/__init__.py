"""Functions that draw the pictures of the documentation, each named for its picture."""
