"""What runs at a site of a federation: it holds the data, answers the master's questions and keeps what it selected.

schema   what all sites agree on before anything is exchanged
reading  a site's own file as that schema has it
job      one selection, as the master orders it
rules    what a site allows
budget   what a job may cost a site's privacy
store    a site's own folder
host     the answers
"""
