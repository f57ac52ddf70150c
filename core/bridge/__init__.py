"""One era's messages as the other's: one facet a file, both directions in it."""
