"""Methods that pick a coreset, one file each, behind one contract."""
