"""`isthmus tail` and `isthmus top`: what crosses a running gateway, in a terminal."""
