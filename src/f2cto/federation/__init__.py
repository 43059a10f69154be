"""Who talks to whom. This folder knows no mathematics: it carries messages and counts them."""
