"""Data in: from what users have to checked tensors, and from one data set to a federation's shards."""
