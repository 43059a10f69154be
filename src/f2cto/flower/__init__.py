"""The Flower engine: many organisations, each with its own site, and a master that sees vectors and counts only.

client_app     what Flower starts at a site for every message: it passes on
packing        frames as Flower's messages carry them
post           requests to nodes, and what comes back
grid           the carrier: which node has which site, questions and answers
master         one selection, from the first greeting to the last count
master_folder  what the master writes, and goes on from
server_app     what Flower starts at the master
simulation     sites made of a preset, for `flwr run` on one machine
keys, layout, commands  setting up a federation
"""
