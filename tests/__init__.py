"""The tests. Their folders mirror the packages; `fixtures` holds what several of them share."""
