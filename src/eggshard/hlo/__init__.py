"""Analysis of compiled programs: collectives and kernels counted from the HLO text that XLA made.

In: HLO text. Out: wire bytes (`collectives`), flops and memory traffic (`kernels`), and their prices under a cost
model (`pricing`); of an executable, the program that every device runs (`partitioned`). `xla_program` compiles a
program as it is, by XLA's own partitioner: the peer of every plan.
"""
