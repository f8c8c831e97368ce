"""Random ops with dimension numbers, windows and bodies."""

from __future__ import annotations

from tests.shardy.rules.body import Body, Value, array, combiner, matrix, tensor


def dot(body: Body) -> None:
    left, right = body.shape(1, 2), body.shape(1, 2)
    right[0] = left[-1]
    body.op("stablehlo.dot", [body.argument(left), body.argument(right)], [tensor(left[:-1] + right[1:])])


def dot_general(body: Body) -> None:
    batch, summed = body.shape(0, 2), body.shape(0, 3)
    frees = body.shape(0, 2), body.shape(0, 2)
    names = []
    operands: list[Value] = []
    for free in frees:
        sizes = batch + summed + free
        order = body.shuffled(range(len(sizes)))
        places = {number: place for place, number in enumerate(order)}
        names.append(([places[i] for i in range(len(batch))],
                      [places[len(batch) + i] for i in range(len(summed))]))
        shape = [sizes[number] for number in order]
        operands.append(body.argument(shape))
    kept = []
    for operand, (batching, contracting) in zip(operands, names, strict=True):
        shape = [int(n) for n in operand.type[7:-1].split("x")[:-1]]
        kept += [n for d, n in enumerate(shape) if d not in batching + contracting]
    (lb, lc), (rb, rc) = names
    body.op("stablehlo.dot_general", operands, [tensor(batch + kept)],
            f"dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = {lb}, rhs_batching_dimensions = {rb}, "
            f"lhs_contracting_dimensions = {lc}, rhs_contracting_dimensions = {rc}>")


def convolution(body: Body) -> None:
    spatial = body.random.randint(0, 3)
    batch_groups, feature_groups = body.random.choice([(1, 1), (1, 1), (1, 2), (1, 4), (2, 1), (3, 1)])
    inputs, outputs = body.random.choice((1, 2, 3)), body.random.choice((1, 1, 2, 3)) * batch_groups * feature_groups
    batch = body.random.choice((1, 2, 4)) * batch_groups
    sizes, kernel, results, stride, pads, spread, holes = [], [], [], [], [], [], []
    for _ in range(spatial):
        k, s, d, e = (body.random.choice(c) for c in ((1, 2, 3, 5, 8), (1, 1, 2, 3), (1, 1, 2), (1, 1, 1, 2)))
        n, low, high = body.random.choice((1, 4, 5, 8, 9, 16)), body.random.choice((0, 1, 3)), body.random.randint(0, 3)
        reach, extent = (k - 1) * e + 1, (n - 1) * d + 1 + low + high
        if extent < reach:
            high += reach - extent
            extent = reach
        for list_, value in ((sizes, n), (kernel, k), (stride, s), (pads, [low, high]), (spread, d), (holes, e)):
            list_.append(value)
        results.append((extent - reach) // s + 1)

    def layout(first: str, second: str, given: tuple[int, int], dims: list[int]) -> tuple[str, list[int]]:
        named = [(first, given[0]), (second, given[1]), *((str(i), n) for i, n in enumerate(dims))]
        chosen = body.random.sample(named, len(named))
        return f"[{', '.join(name for name, _ in chosen)}]", [n for _, n in chosen]

    left, lhs = layout("b", "f", (batch, inputs * feature_groups), sizes)
    right, rhs = layout("i", "o", (inputs, outputs), kernel)
    out, result = layout("b", "f", (batch // batch_groups, outputs), results)
    body.op("stablehlo.convolution", [body.argument(lhs), body.argument(rhs)], [tensor(result)],
            f"dimension_numbers = #stablehlo.conv<{left}x{right}->{out}>, batch_group_count = {batch_groups} : i64, "
            f"feature_group_count = {feature_groups} : i64, window_strides = {array(stride)}, "
            f"padding = {matrix(pads)}, lhs_dilation = {array(spread)}, rhs_dilation = {array(holes)}")


def reduce(body: Body) -> None:
    shape, count = body.shape(), body.random.randint(1, 3)
    dims = body.some(range(len(shape)))
    kept = [n for d, n in enumerate(shape) if d not in dims]
    operands = [body.argument(sizes) for sizes in (shape, []) for _ in range(count)]
    body.op("stablehlo.reduce", operands, [tensor(kept)] * count, f"dimensions = {array(dims)}",
            combiner(body.any("add", "maximum"), count=count))


def reduce_window(body: Body) -> None:
    shape, count = body.filled(), body.random.randint(1, 2)
    drawn = [[body.random.choice(c) for _ in shape]
             for c in ((1, 1, 2, 3), (1, 1, 2), (1, 1, 1, 2), (1, 1, 1, 2), (0, 0, 0, 1), (0, 0, 0, 2))]
    window, strides, base, holes, low, high = drawn
    window = [min(w, n) for w, n in zip(window, shape, strict=True)]
    result = []
    for d, n in enumerate(shape):
        if window[d] == strides[d] == 1 and not low[d] and not high[d]:
            base[d] = 1  # jaxlib takes such a dimension for one that the op leaves alone
        extent, reach = (n - 1) * base[d] + 1 + low[d] + high[d], (window[d] - 1) * holes[d] + 1
        result.append(max(0, (extent - reach) // strides[d] + 1))
    listed = [f"window_dimensions = {array(window)}"]
    for name, values in (("window_strides", strides), ("base_dilations", base), ("window_dilations", holes)):
        if any(v != 1 for v in values) or body.random.random() < 0.5:
            listed.append(f"{name} = {array(values)}")
    if shape and (any(low + high) or body.random.random() < 0.5):
        listed.append(f"padding = {matrix([list(pair) for pair in zip(low, high, strict=True)])}")
    operands = [body.argument(sizes) for sizes in (shape, []) for _ in range(count)]
    body.op("stablehlo.reduce_window", operands, [tensor(result)] * count, ", ".join(listed),
            combiner("add", count=count))


def select_and_scatter(body: Body) -> None:
    shape = body.filled(1)
    window = [min(n, body.random.choice((1, 1, 2, 3))) for n in shape]
    strides = [body.random.choice((1, 1, 2)) for _ in shape]
    low, high = ([body.random.choice((0, 0, 1)) for _ in shape] for _ in range(2))
    source = [(n + a + b - w) // s + 1 for n, a, b, w, s in zip(shape, low, high, window, strides, strict=True)]
    scalar = tensor([])
    select = (f"{{^bb0(%l: {scalar}, %r: {scalar}):\n%c = stablehlo.compare GE, %l, %r : ({scalar}, {scalar}) -> "
              'tensor<i1>\n"stablehlo.return"(%c) : (tensor<i1>) -> ()}')
    listed = [f"window_dimensions = {array(window)}", f"window_strides = {array(strides)}"]
    if any(low + high) or body.random.random() < 0.5:
        listed.append(f"padding = {matrix([list(pair) for pair in zip(low, high, strict=True)])}")
    body.op("stablehlo.select_and_scatter", [body.argument(shape), body.argument(source), body.argument([])],
            [tensor(shape)], ", ".join(listed), f"{select}, {combiner('add')}")


def sort(body: Body) -> None:
    shape, count = body.random.choice((body.shape(1), [1, body.size(), 1])), body.random.randint(1, 2)
    scalar = tensor([])
    names = ", ".join(f"%s{i}: {scalar}" for i in range(2 * count))
    compare = (f"{{^bb0({names}):\n%c = stablehlo.compare LT, %s0, %s1 : ({scalar}, {scalar}) -> tensor<i1>\n"
               '"stablehlo.return"(%c) : (tensor<i1>) -> ()}')
    body.op("stablehlo.sort", [body.argument(shape) for _ in range(count)], [tensor(shape)] * count,
            f"dimension = {body.random.randrange(len(shape))} : i64", compare)


def _indexed(body: Body) -> tuple[list[int], list[int], list[int], list[int], list[int], str]:
    """(indexed shape, shape of the indices, shape of the slices, window dimensions, collapsed ones, other numbers).

    Other numbers are keyed by gather's names, for scatter to rename.
    """
    shape = body.filled(1)
    dims = list(range(len(shape)))
    batched = body.some(dims)[: body.random.choice((0, 0, 1, 2))]
    collapsed = body.some([d for d in dims if d not in batched])
    window = [d for d in dims if d not in batched + collapsed]
    sizes = [body.random.choice((shape[d], 1, body.random.randint(1, shape[d]))) for d in window]
    mapped = body.shuffled(body.some([d for d in dims if d not in batched], least=1))
    implicit = body.filled(0, 2)
    listed = body.shuffled(range(len(batched) + len(implicit)))
    batch = [(shape[batched[i]] if i < len(batched) else implicit[i - len(batched)]) for i in listed]
    vector = body.random.randint(0, len(batch))
    if len(mapped) == 1 and body.random.random() < 0.5:
        vector, indices = len(batch), list(batch)
    else:
        indices = [*batch[:vector], len(mapped), *batch[vector:]]
    places = [d if d < vector else d + 1 for d in range(len(batch))]
    lists = [places[listed.index(i)] for i in range(len(batched))]
    offsets = sorted(body.random.sample(range(len(batch) + len(window)), len(window)))
    inner, outer = iter(sizes), iter(batch)
    slices = [next(inner) if d in offsets else next(outer) for d in range(len(batch) + len(window))]
    numbers = (f"operand_batching_dims = {batched}, start_indices_batching_dims = {lists}, start_index_map = {mapped}, "
               f"index_vector_dim = {vector}")
    return shape, indices, slices, offsets, collapsed, numbers


def gather(body: Body) -> None:
    shape, indices, slices, offsets, collapsed, numbers = _indexed(body)
    batched = [int(d) for d in numbers.split("[")[1].split("]")[0].split(",") if d.strip()]
    inner = iter(slices[d] for d in offsets)
    sizes = [1 if d in collapsed + batched else next(inner) for d in range(len(shape))]
    body.op("stablehlo.gather", [body.argument(shape), body.argument(indices, "i32")], [tensor(slices)],
            f"dimension_numbers = #stablehlo.gather<offset_dims = {offsets}, collapsed_slice_dims = {collapsed}, "
            f"{numbers}>, slice_sizes = {array(sizes)}, indices_are_sorted = false")


def scatter(body: Body) -> None:
    shape, indices, slices, offsets, collapsed, numbers = _indexed(body)
    renamed = (numbers.replace("operand_batching", "input_batching").replace("start_index_map",
               "scatter_dims_to_operand_dims").replace("start_indices", "scatter_indices"))
    dtype, count = body.any("f32", "i1", "i32"), body.random.randint(1, 2)
    names = ["add", "multiply", "maximum", "minimum"]
    names += ["and", "or"] if dtype != "f32" else ["subtract"]
    region = combiner(body.any(*names), dtype, count, body.random.random() < 0.3)
    if body.random.random() < 0.3:
        region = _overwriting(dtype, count, body.random.randrange(4))
    inputs, updates = ([body.argument(s, dtype) for _ in range(count)] for s in (shape, slices))
    body.op("stablehlo.scatter", [*inputs, body.argument(indices, "i32"), *updates], [tensor(shape, dtype)] * count,
            f"scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = {offsets}, inserted_window_dims = "
            f"{collapsed}, {renamed}>", region)


def _overwriting(dtype: str, count: int, kind: int) -> str:
    """A region that does not combine as a sum does: returns updates, or adds what it should not."""
    scalar = tensor([], dtype)
    arguments = ", ".join(f"%s{i}: {scalar}" for i in range(2 * count))
    added = "\n".join(
        f'%c{i} = "stablehlo.{"add" if kind == 1 or i else "maximum"}"(%s{i}, %s{i if kind == 1 else count + i}) : '
        f"({scalar}, {scalar}) -> {scalar}" for i in range(count))
    returned = [f"%s{count + i}" if kind == 0 else f"%c{i}" for i in range(count)]
    returned = returned[::-1] if kind == 3 else returned
    return (f"{{^bb0({arguments}):\n{added}\n\"stablehlo.return\"({', '.join(returned)}) : "
            f"({', '.join([scalar] * count)}) -> ()}}")


def linalg(body: Body) -> None:
    batch, n, m = body.shape(0, 2), body.size(), body.size()
    x = body.argument([*batch, n, n])
    body.op("stablehlo.cholesky", [x], [tensor([*batch, n, n])], "lower = true")
    left, mode = body.random.random() < 0.5, body.any("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")
    b = [*batch, n, m] if left else [*batch, m, n]
    body.op("stablehlo.triangular_solve", [x, body.argument(b)], [tensor(b)],
            f"left_side = {str(left).lower()}, lower = true, unit_diagonal = false, "
            f"transpose_a = #stablehlo<transpose {mode}>")


def fft(body: Body) -> None:
    shape = body.filled(1)
    kind, length = body.any("FFT", "IFFT", "RFFT", "IRFFT"), body.random.randint(1, min(3, len(shape)))
    halved = [*shape[:-1], shape[-1] // 2 + 1]
    source, target = {"RFFT": (shape, halved), "IRFFT": (halved, shape)}.get(kind, (shape, shape))
    types = ["f32" if kind == "RFFT" else "complex<f32>", "f32" if kind == "IRFFT" else "complex<f32>"]
    body.op("stablehlo.fft", [body.argument(source, types[0])], [tensor(target, types[1])],
            f"fft_type = #stablehlo<fft_type {kind}>, fft_length = {array(shape[-length:])}")


def rng_bit_generator(body: Body) -> None:
    word, shape = body.argument([2], "ui32"), body.shape()
    state = body.argument([body.random.choice((2, 3))], "ui64")
    if body.random.random() < 0.4:
        (state,) = body.op("stablehlo.custom_call", [word, word], [tensor([2], "ui64")],
                           'call_target_name = "X64Combine"')
    body.op("stablehlo.rng_bit_generator", [state], [state.type, tensor(shape, "ui32")],
            "rng_algorithm = #stablehlo<rng_algorithm PHILOX>")


def custom_calls(body: Body) -> None:
    batch, n, m, k = body.shape(0, 2), body.size(), body.size(), body.random.randint(1, 3)
    matrix_, taus, shape = [*batch, n, m], [*batch, min(n, m)], body.shape(1)

    def call(target: str, operands: list[Value], results: list[str]) -> None:
        body.op("stablehlo.custom_call", operands, results, f'call_target_name = "{target}"')

    x = body.argument(matrix_)
    call("Eigh", [body.argument([*batch, n, n])], [tensor([*batch, n, n]), tensor([*batch, n])])
    call(body.any("Qr", "QrDecompositionBlock"), [x], [tensor(matrix_), tensor(taus)])
    call("ProductOfElementaryHouseholderReflectors", [x, body.argument(taus)], [tensor(matrix_)])
    dim = body.random.randrange(len(shape))
    found = [k if d == dim else s for d, s in enumerate(shape)]
    results = [tensor(found), tensor(found, "i32")]
    call("mhlo.topk", [body.argument(shape)], results)
    call(body.any("ApproxTopK", "PartialReduce"),
         [body.argument(shape), body.argument(shape, "i32"), body.argument([]), body.argument([], "i32")], results)
    call(body.any("annotate_device_placement", "Cholesky", "CompactWyHelper", "InspectSharding", "LayoutConstraint",
                  "InvertDiagBlocksLowerTriangular", "InvertDiagBlocksUpperTriangular", "mhlo.erf", "MoveToDevice",
                  "MoveToHost", "X64SplitHigh", "X64SplitLow", "X64Combine", "xla.megascale.provide_metadata"),
         [body.argument(shape)], [tensor(shape)])
    call(body.any(*(f"_SPMDInternalOp_{name}" for name in ("MultiPad", "RotateRight", "MultiRotate", "MultiSlice",
                                                           "Wrap"))), [body.argument(shape)],
         [tensor([s + i for s in shape]) for i in range(body.random.randint(1, 3))])
    call(body.any("sdy_testonly", "tpu_custom_call", "other", "TopK", "lapack_sgeqrf_ffi", "unknown"),
         [body.argument(shape)], [tensor(shape)])
