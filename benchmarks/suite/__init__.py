"""The development suite: about twenty tasks on which every change of a method is measured.

cells    the tasks, each as facts: data, radius, network, budget, workers, regime
files    their data, laid out from the compact copies in the shared folder
run      one method on one cell and seed, as `f2cto compare` computes it
records  what was measured, a line each, and the summary of all lines
table    cells by methods, with regrets
"""
