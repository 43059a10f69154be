"""Attacks on a trained model, and what is left of its accuracy under them."""

from f2cto.attacks.base import Attack, Logits, robust_accuracy
from f2cto.attacks.gradient import Clean, Pgd, fgsm

__all__ = ["Attack", "Clean", "Logits", "Pgd", "fgsm", "robust_accuracy"]
