"""F2CTO on the K-sparse face: train on candidate coresets, keep the one with the best robust accuracy elsewhere.

training    levels 2 and 3: one short robust training on everything, with losses and snapshots kept on the way
proposers   candidate coresets, each from what a worker has seen of its own samples
gradients   robust gradients of single samples, as proposers compare them
stacked     many networks side by side
settings    what an effort stands for: its proposals, and the rungs on which they are trained on and judged
program     what runs at a worker; level 1 is `_judge`, on the samples that a candidate leaves out
method      what runs at the master
"""
