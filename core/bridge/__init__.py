"""Between the eras: what one side says, as the other may hear it. Both directions of a facet stand in one file."""
