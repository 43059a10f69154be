"""F2CTO on the K-sparse face: train on candidate coresets, keep the one with the best robust accuracy elsewhere.

training    levels 2 and 3: one short robust training on everything, with losses and snapshots kept on the way
proposers   candidate coresets, each from what a worker has seen of its own samples
face        level 1: the value of a candidate is what a model trained on it reaches on the samples left out
program     what runs at a worker
method      what runs at the master
"""
