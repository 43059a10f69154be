"""Methods of choosing coresets, each family in a folder of its own."""
