"""The StableHLO front end: reads modules, with Shardy's or GSPMD's shardings, into Programs.

*In*: a module's text, bytecode or portable artifact, a file of it, or a module of jaxlib's MLIR (`sources`); ops of
StableHLO and Shardy, and the communication of Enzyme's dialect.

*Out*: a Program. `reading` parses and reads the entry function's ends; `module_reader` holds what all regions share;
`region_reader` walks regions, and is given how single ops are read (`op_readers`, `control_flow`, `enzyme_dialect`);
`shardings` reads what is stated where. Only these touch MLIR objects, and none imports one above it.

*Not here*: how an op is spelled back (`ops/`, `emit/`), Shardy's passes on modules (`shardy/`), and the normal form of
regions, which does not depend on where they came from (`frontends/normalization/`).
"""
