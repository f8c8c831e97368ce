"""Plans on MPI ranks, one device each (extra ``mpi``)."""
