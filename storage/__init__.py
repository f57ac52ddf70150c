"""Records and blobs: what is kept, behind two protocols with written laws."""
