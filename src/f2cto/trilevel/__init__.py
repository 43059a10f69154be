"""The paper's algorithm, federated first-order constrained trilevel optimisation, with a few additions of our own.

Not in the paper: w^ in lock-step (`settings.Hat`), iterations that only screen (`settings.Rest`), one exchange an
iteration instead of two (`worker.iterate`), means that withstand bad workers (`aggregation`), and `sample_slopes`, a
faster form of the same gradients. `docs/paper.md` says which setting gives the letter of the paper.

This folder speaks the paper's alphabet; everything outside it speaks words.

    alpha    weight of each local sample, on a simplex             level 1
    q        evaluation-side perturbations, in Q                   level 2, first problem
    w        model parameters, one flat vector in W                level 2, second problem
    p        training-side perturbations, in P                     level 3
    p*, q*   refined maximisers behind V3 and V2^(1)               Eqs. (7), (8)
    w^, p^   refined solution behind V2^(2) (`w_hat`, `p_hat`)     Eq. (9)
    rho_1, rho_2, rho_3, phi                                       penalties, Eq. (10) and g2
    eta      step sizes
    R, R^    refinement steps (`steps`, `hat_steps`)
    I        local rounds between two exchanges

`docs/paper.md` maps every numbered equation to its function.
"""
