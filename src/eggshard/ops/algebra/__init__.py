"""Linear algebra: matrix products, Fourier transforms, Cholesky factors, triangular systems."""
