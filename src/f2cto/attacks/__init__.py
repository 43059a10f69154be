"""Attacks on a trained model, and what is left of its accuracy under them."""

from f2cto.attacks.auto import AutoAttack
from f2cto.attacks.base import Attack, Logits, robust_accuracy, withstood
from f2cto.attacks.gradient import Clean, Pgd, fgsm
from f2cto.attacks.restarted import Restarted

__all__ = ["Attack", "AutoAttack", "Clean", "Logits", "Pgd", "Restarted", "fgsm", "robust_accuracy", "withstood"]
