"""Workers in processes of a Ray cluster: one organisation, one machine or many. Needs `pip install "f2cto[ray]"`."""
