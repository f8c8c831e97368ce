from eggshard.egraph.rules import RuleList
rules = RuleList()
@rules.add("transpose[outer](transpose[inner](x)) => transpose[both](x)", cases=lambda: ())
def transpose_of_transpose(m):
    return {"both": {"permutation": tuple(m.inner["permutation"][d] for d in m.outer["permutation"])}}
@rules.add("transpose[t](x) => x", cases=lambda: ())
def identity_transpose(m):
    return m.t["permutation"] == tuple(range(m.x.rank))
@rules.add("unary[f](transpose[t](x)) => transpose[t](unary[f](x))", cases=lambda: ())
def unary_of_transpose(m):
    return True
rules.add("negate(negate(x)) => x", cases=lambda: (), name="double negation")(None)
