"""The traditional way down three levels: adjoint gradients with Hessian-vector products.

After Tommaso Giovannelli, Griffin Dean Kent, Luis Nunes Vicente: A stochastic gradient method for trilevel optimization
(TSG), 2025. Written from the formulas, with full batches, fixed step sizes and fixed numbers of inner steps. It is what
the paper's first-order method is compared with.

    x, y, z    upper, middle, lower variable; z may come in blocks
    f1, f2, f3 the objectives the three levels minimise
    z(x, y)    argmin over z of f3
    fbar(x, y) f2(x, y, z(x, y)), what the middle level minimises over y
    f(x)       f1(x, y(x), z(x, y(x))), what the upper level minimises

Subscripts are derivatives (f3_yz has the shape of y times z). The two adjoint gradients are

    (A)  grad_y fbar = f2_y - f3_yz [f3_zz]^-1 f2_z
    (B)  grad f = (f1_x - f3_xz [f3_zz]^-1 f1_z) - fbar_xy [fbar_yy]^-1 (f1_y - f3_yz [f3_zz]^-1 f1_z)

and fbar_yy, fbar_xy are explained in `adjoint`. No matrix is ever formed. The formulas are those of unconstrained
levels: sets may be given to keep iterates in bounds, but the adjoints do not know which bounds are active.
"""
