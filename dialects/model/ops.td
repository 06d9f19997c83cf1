// Ops of the model dialect. rules.cpp has their rules op by op: sharding, derivative, cost, evaluation of one element.
#ifndef ESPALIER_MODEL_OPS
#define ESPALIER_MODEL_OPS

include "dialects/interfaces.td"
include "dialects/model/dialect.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class Model_Op<string mnemonic, list<Trait> traits = []> : Op<Model_Dialect, mnemonic,
    !listconcat(traits, [Pure])>;
def Model_Cost : DeclareOpInterfaceMethods<CostedOpInterface, ["flops", "isExpensive"]>;

// An op whose result element depends on one element of each operand, with operands broadcast by name.
class Model_Elementwise<string mnemonic> : Op<Model_Dialect, mnemonic, [Pure,
    ShardableOpInterface, CostedOpInterface,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>,
    DeclareOpInterfaceMethods<ElementwiseOpInterface>]> {
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
}

class Model_Unary<string mnemonic, string text> : Model_Elementwise<mnemonic> {
  let summary = text;
  let description = [{ - (C1) the result has the dimensions of the operand. }];
  let arguments = (ins AnyRankedTensor:$x);
  let assemblyFormat = "$x attr-dict `:` functional-type($x, $result)";
}

class Model_Binary<string mnemonic, string text> : Model_Elementwise<mnemonic> {
  let summary = text;
  let description = [{ - (C1) each operand's dimensions are a subsequence of the result's, with equal sizes. }];
  let arguments = (ins AnyRankedTensor:$a, AnyRankedTensor:$b);
  let assemblyFormat = "$a `,` $b attr-dict `:` functional-type(operands, results)";
}

def Model_NegOp : Model_Unary<"neg", "-x">;
def Model_ExpOp : Model_Unary<"exp", "e to the x">;
def Model_LogOp : Model_Unary<"log", "Natural logarithm">;
def Model_TanhOp : Model_Unary<"tanh", "Hyperbolic tangent">;
def Model_ErfOp : Model_Unary<"erf", "Gauss error function">;
def Model_LogisticOp : Model_Unary<"logistic", "1 / (1 + exp(-x))">;
def Model_RsqrtOp : Model_Unary<"rsqrt", "1 / sqrt(x)">;
def Model_SqrtOp : Model_Unary<"sqrt", "Square root">;
def Model_StepOp : Model_Unary<"step", "1 where x > 0, else 0; its derivative is taken as 0">;
def Model_GeluOp : Model_Unary<"gelu", "x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))">;
def Model_ConvertOp : Model_Unary<"convert", "The same number in another storage type">;

def Model_BroadcastOp : Model_Elementwise<"broadcast"> {
  let summary = "Repeats x along the dimensions that it lacks";
  let description = [{
      Created by `differentiate` if a matrix product or attention reads a gradient that is constant along a dimension.
      Element-wise ops broadcast implicitly.
    - (C1) the operand's dimensions are a subsequence of the result's, with equal sizes.
  }];
  let arguments = (ins AnyRankedTensor:$x);
  let assemblyFormat = "$x attr-dict `:` functional-type($x, $result)";
}

def Model_AddOp : Op<Model_Dialect, "add", [Pure, CostedOpInterface,
    DeclareOpInterfaceMethods<ShardableOpInterface, ["passesPartial"]>,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>,
    DeclareOpInterfaceMethods<ElementwiseOpInterface>]> {
  let summary = "a + b";
  let description = [{
    - (C1) each operand's dimensions are a subsequence of the result's, with equal sizes.
      Partial sums pass through if both operands are partial over the same axes.
  }];
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
  let arguments = (ins AnyRankedTensor:$a, AnyRankedTensor:$b);
  let assemblyFormat = "$a `,` $b attr-dict `:` functional-type(operands, results)";
}
def Model_SubOp : Model_Binary<"sub", "a - b">;
def Model_MulOp : Model_Binary<"mul", "a * b">;
def Model_DivOp : Model_Binary<"div", "a / b">;

def Model_GeluGradOp : Op<Model_Dialect, "gelu_grad", [Pure, ShardableOpInterface, CostedOpInterface,
    DeclareOpInterfaceMethods<ElementwiseOpInterface>]> {
  let summary = "dy times the derivative of gelu at x";
  let description = [{ - (C1) each operand's dimensions are a subsequence of the result's, with equal sizes. }];
  let arguments = (ins AnyRankedTensor:$dy, AnyRankedTensor:$x);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$dy `,` $x attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Model_SelectOp : Model_Elementwise<"select"> {
  let summary = "a where condition > 0, else b; the other operand may be infinite or NaN";
  let description = [{ - (C1) each operand's dimensions are a subsequence of the result's, with equal sizes. }];
  let arguments = (ins AnyRankedTensor:$condition, AnyRankedTensor:$a, AnyRankedTensor:$b);
  let assemblyFormat = "$condition `,` $a `,` $b attr-dict `:` functional-type(operands, results)";
}

def Model_ConstantOp : Op<Model_Dialect, "constant", [Pure, RepeatedInBackward, ShardableOpInterface, CostedOpInterface]> {
  let summary = "A number without dimensions";
  let arguments = (ins F64Attr:$value);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$value attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def Model_ScalarOp : Op<Model_Dialect, "scalar", [Pure, RepeatedInBackward, ShardableOpInterface, CostedOpInterface]> {
  let summary = "A number of the scalars region, identified by its slot in format/abi.h";
  let description = [{
    - (C1) the slot is known: loss_scale, learning_rate, gradient_scale, bias_correction1, bias_correction2, apply, and
      the learning rates of groups of parameters, group_rate1 to group_rate4.
    - (C2) the result has no dimensions and is f32.
  }];
  let arguments = (ins StrAttr:$slot);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$slot attr-dict `:` type($result)";
  let hasVerifier = 1;
}

class Model_Reduce<string mnemonic, string text> : Op<Model_Dialect, mnemonic, [Pure, KeptForBackward,
    DeclareOpInterfaceMethods<CostedOpInterface, ["flops"]>,
    DeclareOpInterfaceMethods<ShardableOpInterface, ["factorKind", "passesPartial", "localize"]>,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = text;
  let description = [{ - (C1) the result's dimensions are a subsequence of the operand's. }];
  let arguments = (ins AnyRankedTensor:$x);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$x attr-dict `:` functional-type($x, $result)";
  let hasVerifier = 1;
}
def Model_ReduceSumOp : Model_Reduce<"reduce_sum", "Sum over the dimensions that the result lacks">;
def Model_ReduceMaxOp : Model_Reduce<"reduce_max",
    "Maximum over the dimensions that the result lacks; its derivative is taken as 0 (it only shifts exponents)">;

def Model_ContractOp : Model_Op<"contract", [Model_Cost,
    DeclareOpInterfaceMethods<ShardableOpInterface, ["factorKind"]>,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "Product of two tensors, summed over the dimensions that the result lacks";
  let description = [{
      A matrix product over named dimensions. Dimensions of one operand are rows or columns, dimensions of both operands
      that the result lacks are contracted, dimensions of all three are a batch.
    - (C1) every dimension of the result is one of an operand, with equal size, and a dimension of only one operand
      is in the result.
    - (C2) shared dimensions have equal sizes.
      Sums are in f32 for all storage types.
  }];
  let arguments = (ins AnyRankedTensor:$a, AnyRankedTensor:$b);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$a `,` $b attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Model_AccumulateOp : Model_Op<"accumulate", [CostedOpInterface,
    DeclareOpInterfaceMethods<ShardableOpInterface, ["passesPartial"]>]> {
  let summary = "accumulator + x, in place; in the first micro-batch of a step, x";
  let description = [{
      Created by `differentiate` for gradients and by `build_model` for the loss. The accumulator is an argument of the
      function and the result its new content, so code generation writes it in place.
      `always` also adds in the first micro-batch, because another segment of the stage has already written the
      accumulator (tied parameters), or it is cleared elsewhere (statistics).
      The sum is computed in f32 and rounded once to the type of the accumulator.
    - (C1) accumulator, x and result have the same dimensions; accumulator and result have the same type of floats.
  }];
  let arguments = (ins AnyRankedTensor:$accumulator, AnyRankedTensor:$x, UnitAttr:$always);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$accumulator `,` $x attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Model_KeepMaximaOp : Model_Op<"keep_maxima", [CostedOpInterface, ShardableOpInterface]> {
  let summary = "The larger of each of the maxima and the values of x of its head, in place";
  let description = [{
      Created by `build_model` for QK-clip. The maxima are an argument of the function, one per key-value head, and the
      result is their new content. Ranks that have other samples or positions of x keep their own maxima.
    - (C1) x is f32 and [batch, seq, kv heads, heads of a group..]; maxima and result are f32 and [kv heads].
  }];
  let arguments = (ins AnyRankedTensor:$maxima, AnyRankedTensor:$x);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$maxima `,` $x attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Model_SquaredNormOp : Model_Op<"squared_norm", [CostedOpInterface, ShardableOpInterface]> {
  let summary = "weight * sum of the squares of all elements; not finite if an element is not finite";
  let description = [{
      For the global gradient norm. `weight` makes elements that several ranks hold count once.
    - (C1) the result has no dimensions and is f32.
  }];
  let arguments = (ins AnyRankedTensor:$x, F64Attr:$weight);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$x attr-dict `:` functional-type($x, $result)";
  let hasVerifier = 1;
}

def Model_EmbedOp : Model_Op<"embed", [CostedOpInterface, KeptForBackward,
    DeclareOpInterfaceMethods<ShardableOpInterface, ["factorKind", "localize"]>,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "Looks up table rows: result[.., h] = table[ids[..], h]";
  let description = [{
    - (C1) the table has two dimensions; the result has the dimensions of ids, then the table's second.
    - (C2) ids are i32.
      `first_row` (#dist.origin) is set by localization if the table's rows are sharded: rows of other shards give 0.
  }];
  let arguments = (ins AnyRankedTensor:$table, AnyRankedTensor:$ids, OptionalAttr<AnyAttr>:$first_row);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$table `,` $ids attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Model_EmbedGradOp : Model_Op<"embed_grad", [CostedOpInterface,
    DeclareOpInterfaceMethods<ShardableOpInterface, ["factorKind", "localize"]>]> {
  let summary = "Derivative of embed with respect to its table: sums the rows of `cotangent` by id";
  let description = [{
    - (C1) the result is [rows, hidden] f32; the cotangent has the dimensions of ids, then hidden.
  }];
  let arguments = (ins AnyRankedTensor:$ids, AnyRankedTensor:$cotangent, OptionalAttr<AnyAttr>:$first_row);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$ids `,` $cotangent attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Model_PickOp : Model_Op<"pick", [CostedOpInterface,
    DeclareOpInterfaceMethods<ShardableOpInterface, ["factorKind", "localize"]>,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "One element of each row: result[..] = x[.., labels[..]]; 0 for a label outside the row";
  let description = [{
    - (C1) labels and result have the dimensions of x but the last; labels are i32.
      `first_column` (#dist.origin) is set by localization if the last dimension is sharded.
  }];
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$labels, OptionalAttr<AnyAttr>:$first_column);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$x `,` $labels attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Model_PickGradOp : Model_Op<"pick_grad", [CostedOpInterface,
    DeclareOpInterfaceMethods<ShardableOpInterface, ["localize"]>]> {
  let summary = "Derivative of pick: the cotangent at the label's column, 0 elsewhere";
  let description = [{
      `like` is the x of pick; only its type and sharding are used.
    - (C1) the result has the dimensions of `like`: those of labels and one more, last.
  }];
  let arguments = (ins AnyRankedTensor:$labels, AnyRankedTensor:$cotangent, AnyRankedTensor:$like,
                       OptionalAttr<AnyAttr>:$first_column);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$labels `,` $cotangent `,` $like attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Model_MaskTailOp : Model_Op<"mask_tail", [CostedOpInterface,
    DeclareOpInterfaceMethods<ShardableOpInterface, ["localize"]>,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "Replaces the columns (last dimension) from `valid` on by `fill`: masks a padded vocabulary";
  let description = [{
    - (C1) x and result have the same dimensions, at least one.
      `first_column` (#dist.origin) is set by localization if the last dimension is sharded.
  }];
  let arguments = (ins AnyRankedTensor:$x, I64Attr:$valid, F64Attr:$fill, OptionalAttr<AnyAttr>:$first_column);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$x attr-dict `:` functional-type($x, $result)";
  let hasVerifier = 1;
}

def Model_DropoutOp : Model_Op<"dropout", [CostedOpInterface,
    DeclareOpInterfaceMethods<ShardableOpInterface, ["localize"]>,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "x / (1 - rate) if random bits keep the element, else 0";
  let description = [{
      The bits are randomBits() of format/abi.h: `id` is the op's number within its segment (0..255), the first
      dimension gives the sample, the others the element. The derivative applies the same op to the cotangent.
    - (C1) x and result have the same dimensions; the first is batch.
    - (C2) 0 < rate < 1. - (C3) `origins` and `unsplit` have one entry per dimension.
    `origins` (array of #dist.origin or unit, one per dimension) and `unsplit` (global sizes) are set by localization.
  }];
  let arguments = (ins AnyRankedTensor:$x, F64Attr:$rate, I64Attr:$id, OptionalAttr<ArrayAttr>:$origins,
                       OptionalAttr<DenseI64ArrayAttr>:$unsplit);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$x attr-dict `:` functional-type($x, $result)";
  let hasVerifier = 1;
}

def Model_RopeOp : Model_Op<"rope", [CostedOpInterface, KeptForBackward,
    DeclareOpInterfaceMethods<ShardableOpInterface, ["factorKind"]>,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "Rotary position embedding over the last dimension, halves paired (the order of HF's Llama)";
  let description = [{
    y[i] = x[i] cos(p w_i) - x[i + d/2] sin(p w_i), y[i + d/2] = x[i + d/2] cos(p w_i) + x[i] sin(p w_i) with
      w_i = theta^(-2i/d). `inverse` rotates by the negative angle and is the derivative.
      `rotary` is the number of leading columns that are rotated, in place of d; later columns keep their values.
      `interleaved` pairs columns 2i and 2i + 1. `amplitude` multiplies cos and sin.
      `factor` scales positions: w_i becomes w_i ((1 - s) / factor + s). s is 0 without `slow` and `fast`; with them it
      is (c - slow) / (fast - slow), clamped to [0, 1]. With `original_context` n, c is the number of turns over n
      positions, n w_i / 2 pi (llama3); without it, c is i (yarn).
      The rotated columns begin with column `first`, which is 0 by default; earlier columns keep their values.
    - (C1) x and result have the same dimensions: those of positions, then more, the last one of even size.
    - (C2) positions are i32. - (C3) rotary is even and between 2 and d;
    first is even, and first + rotary is at most d.
    - (C4) factor, original_context and amplitude are positive; slow, fast and original_context need factor; slow and
    fast differ.
  }];
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$positions, F64Attr:$theta, UnitAttr:$inverse,
                       OptionalAttr<I64Attr>:$rotary, UnitAttr:$interleaved, OptionalAttr<F64Attr>:$factor,
                       OptionalAttr<F64Attr>:$slow, OptionalAttr<F64Attr>:$fast,
                       OptionalAttr<F64Attr>:$original_context, OptionalAttr<F64Attr>:$amplitude,
                       OptionalAttr<I64Attr>:$first);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$x `,` $positions attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Model_AttentionOp : Model_Op<"attention", [Model_Cost,
    DeclareOpInterfaceMethods<ShardableOpInterface, ["factorKind", "localize"]>,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "Scaled dot-product attention; also returns the log of each row's normalizer";
  let description = [{
    q is [batch, seq, heads.., head_dim], k is [batch, seq, kv heads, head_dim], v is [batch, seq, kv heads, value_dim].
    value_dim may be head_dim. The dimensions of q between seq and head_dim are those of k, then at most one more (the
    query group of grouped-query attention). out is [batch, seq, heads.., value_dim].
    `log_sum_exp` has q's dimensions without head_dim and is f32. The score matrix is never stored. The optional result
    `largest` has the largest score of each query, and the type of log_sum_exp.
    - (C1) k and v have four dimensions and one element type, and differ at most in the last dimension.
    - (C2) q has the dimensions given above.
    - (C3) out has q's dimensions, but the last of v; log_sum_exp and largest have q's dimensions without the last.
    - (C4) `origins` and `unsplit` have one entry per dimension of q.
    - (C5) k has as many positions as q or, if q is a shard of the queries, as `unsplit`.
    - (C6) window is at least 1 and needs causal; soft_cap is positive.
    - (C7) visible_from has the first two dimensions of q, is i32 and needs causal.
      With `window` w, a query at position p attends to keys (p - w, p]. With `visible_from`, it attends to no key
      before min(max(visible_from, 0), p), for example the first token of its document; the values do not decrease along
      the sequence. With `soft_cap` c, a score s becomes c tanh(s / c).
      With rate > 0, random bits drop attention weights (see `id` of dropout). Localization sets `origins` (of q, for
      the random bits, and of seq, for the causal mask) and `unsplit` (global sizes of q). If the sequence is split, it
      also gathers k and v, and reduce-scatters dk and dv.
  }];
  let arguments = (ins AnyRankedTensor:$q, AnyRankedTensor:$k, AnyRankedTensor:$v, F64Attr:$scale, F64Attr:$rate,
                       I64Attr:$id, UnitAttr:$causal, OptionalAttr<I64Attr>:$window, OptionalAttr<F64Attr>:$soft_cap,
                       OptionalAttr<ArrayAttr>:$origins, OptionalAttr<DenseI64ArrayAttr>:$unsplit,
                       Optional<AnyRankedTensor>:$visible_from);
  let results = (outs AnyRankedTensor:$out, AnyRankedTensor:$log_sum_exp, Optional<AnyRankedTensor>:$largest);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Model_SinkAttentionOp : Op<Model_Dialect, "sink_attention", [Pure,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "Attention with a learned sink per head: one more score, of no key, in the softmax's denominator";
  let description = [{
    With weights p of attention and its log_sum_exp l, the weights are p e^l / (e^l + e^sink) (gpt-oss). `log_sum_exp`
    includes the sink. Created by `build_model`; canonicalization rewrites it to attention and element-wise ops. Its
    derivative is attention_grad of its own results.
    - (C1) q, k, v, results and attributes are as in attention. - (C2) sinks have q's dimensions of heads.
  }];
  let arguments = (ins AnyRankedTensor:$q, AnyRankedTensor:$k, AnyRankedTensor:$v, AnyRankedTensor:$sinks,
                       F64Attr:$scale, F64Attr:$rate, I64Attr:$id, UnitAttr:$causal, OptionalAttr<I64Attr>:$window,
                       OptionalAttr<F64Attr>:$soft_cap, OptionalAttr<ArrayAttr>:$origins,
                       OptionalAttr<DenseI64ArrayAttr>:$unsplit, Optional<AnyRankedTensor>:$visible_from);
  let results = (outs AnyRankedTensor:$out, AnyRankedTensor:$log_sum_exp);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
  let hasCanonicalizeMethod = 1;
}

def Model_AttentionGradOp : Model_Op<"attention_grad", [Model_Cost,
    DeclareOpInterfaceMethods<ShardableOpInterface, ["factorKind", "localize"]>]> {
  let summary = "Derivative of attention with respect to q, k and v; recomputes the weights from log_sum_exp";
  let description = [{
      - (C1) results have the dimensions of q, k and v. - (C2) out and cotangent have q's dimensions, but the last of v;
      log_sum_exp has q's dimensions without the last. - (C3) attributes and the positions of q are as in attention.
  }];
  let arguments = (ins AnyRankedTensor:$q, AnyRankedTensor:$k, AnyRankedTensor:$v, AnyRankedTensor:$out,
                       AnyRankedTensor:$log_sum_exp, AnyRankedTensor:$cotangent, F64Attr:$scale, F64Attr:$rate,
                       I64Attr:$id, UnitAttr:$causal, OptionalAttr<I64Attr>:$window, OptionalAttr<F64Attr>:$soft_cap,
                       OptionalAttr<ArrayAttr>:$origins, OptionalAttr<DenseI64ArrayAttr>:$unsplit,
                       Optional<AnyRankedTensor>:$visible_from);
  let results = (outs AnyRankedTensor:$dq, AnyRankedTensor:$dk, AnyRankedTensor:$dv);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Model_AttendCacheOp : Model_Op<"attend_cache", [Model_Cost,
    DeclareOpInterfaceMethods<ShardableOpInterface, ["factorKind"]>]> {
  let summary = "Stores keys and values of new tokens in a cache, and attends from these tokens to the cache";
  let description = [{
      q, k and v are as in attention, for tokens at `positions`; the caches are [batch, kv heads, context, head_dim] for
      keys and [batch, kv heads, context, value_dim] for values.
      Key and value of a token at position p are stored in row p of its sequence's caches. Then the token attends to
      rows 0 to p. Tokens are ordered by position. A position outside of the context is padding: it is not stored, and
      out is 0. The optional result log_sum_exp is as in attention, and 0 for padding.
    - (C1) q, k and v are as in attention. - (C2) out has q's dimensions, but the last of v.
    - (C3) positions are i32 [batch, seq]. - (C4) a cache and its result have one type, with k's element type; the
    caches have the dimensions given above. - (C5) window and soft_cap are as in attention.
    - (C6) log_sum_exp is f32 and has q's dimensions without the last.
  }];
  let arguments = (ins AnyRankedTensor:$q, AnyRankedTensor:$k, AnyRankedTensor:$v, AnyRankedTensor:$positions,
                       AnyRankedTensor:$keys, AnyRankedTensor:$values, F64Attr:$scale, OptionalAttr<I64Attr>:$window,
                       OptionalAttr<F64Attr>:$soft_cap);
  let results = (outs AnyRankedTensor:$out, AnyRankedTensor:$new_keys, AnyRankedTensor:$new_values,
                      Optional<AnyRankedTensor>:$log_sum_exp);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Model_ConcatOp : Model_Op<"concat", [CostedOpInterface,
    DeclareOpInterfaceMethods<ShardableOpInterface, ["factorKind"]>,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "The columns (last dimension) of a, then those of b";
  let description = [{
      For keys of multi-head latent attention: each head has columns of its own and columns that all heads share. Also for
      modules that predict further tokens, which read an embedding beside a hidden state.
    - (C1) a has the dimensions of the result but the last, at least two dimensions in all, and its element type.
    - (C2) b has the dimensions of a but the last, or lacks the one before the last; every head then gets its columns.
    - (C3) the result has as many columns as a and b together, under another name; a and b may share a name and a size.
  }];
  let arguments = (ins AnyRankedTensor:$a, AnyRankedTensor:$b);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$a `,` $b attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Model_ColumnsOp : Model_Op<"columns", [CostedOpInterface,
    DeclareOpInterfaceMethods<ShardableOpInterface, ["factorKind", "passesPartial"]>]> {
  let summary = "Columns of x (last dimension) from `first` on, summed over a dimension that the result lacks";
  let description = [{
      The derivative of concat.
    - (C1) the result has the dimensions of x but the last, or lacks the one before the last, and its element type.
    - (C2) x has the columns [first, first + columns of the result); the last dimensions have different names.
  }];
  let arguments = (ins AnyRankedTensor:$x, I64Attr:$first);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$x attr-dict `:` functional-type($x, $result)";
  let hasVerifier = 1;
}

def Model_TakeRowOp : Model_Op<"take_row", [CostedOpInterface,
    DeclareOpInterfaceMethods<ShardableOpInterface, ["factorKind"]>]> {
  let summary = "One position of each sequence: result[b, 0, h] = x[b, rows[b], h]; 0 for a row outside of x";
  let description = [{
    - (C1) x is [batch, seq, hidden], and the result has one position of x. - (C2) rows are i32 [batch].
  }];
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$rows);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Model_ViewOp : Model_Op<"view", [CostedOpInterface, ShardableOpInterface]> {
  let summary = "The elements of x in their order, in other dimensions";
  let description = [{
      For optimizers, which read matrices from flat buckets and multiply a matrix by itself.
    - (C1) the result has the elements of x, and their type.
  }];
  let arguments = (ins AnyRankedTensor:$x);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$x attr-dict `:` functional-type($x, $result)";
  let hasVerifier = 1;
}

def Model_RouteOp : Model_Op<"route", [CostedOpInterface, KeptForBackward,
    DeclareOpInterfaceMethods<ShardableOpInterface, ["factorKind", "localize"]>]> {
  let summary = "The best experts of each token, and the token's slot in each; slot -1 if an expert is full";
  let description = [{
      Top-k choice with a fixed capacity per sample (GShard, Lepikhin et al. 2020): ids[k, b, s] is the expert with the
      k-th highest score; ties go to the lower expert. First choices take slots before second choices, tokens in order.
      `groups` splits the experts into equal groups of neighbours. A token then chooses among the experts of `kept_groups`
      groups: those with the highest sums of their two highest scores (DeepSeek-AI 2024); ties go to the lower group.
      - (C1) scores are [batch, seq, experts]; ids and slots are i32 of one type [choice, batch, seq].
    - (C2) there are no more choices than experts. - (C3) the capacity is at least 1.
    - (C4) `groups` and `kept_groups` are given together. There are at most 32 groups of equally many experts. At most
      all groups are kept, and they have no fewer experts than there are choices.
  }];
  let arguments = (ins AnyRankedTensor:$scores, I64Attr:$capacity, OptionalAttr<I64Attr>:$groups,
                       OptionalAttr<I64Attr>:$kept_groups);
  let results = (outs AnyRankedTensor:$ids, AnyRankedTensor:$slots);
  let assemblyFormat = "$scores attr-dict `:` functional-type($scores, results)";
  let hasVerifier = 1;
}

class Model_Moved<string mnemonic, string text, string meaning> : Model_Op<mnemonic, [CostedOpInterface,
    DeclareOpInterfaceMethods<ShardableOpInterface, ["factorKind"]>,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = text;
  let description = meaning # [{
      If weights [choice, batch, seq] are given, each row is multiplied by its weight. Slots of -1 are skipped. Dispatch
      and combine are the derivatives of each other.
    - (C1) ids and slots are i32 of one type [choice, batch, seq]; weights have their dimensions.
    - (C2) rows of tokens are [batch, seq, hidden] or [choice, batch, seq, hidden].
    - (C3) rows of experts are [expert, batch, capacity, hidden].
  }];
  let arguments = (ins AnyRankedTensor:$ids, AnyRankedTensor:$slots, AnyRankedTensor:$x,
                       Optional<AnyRankedTensor>:$weights);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Model_DispatchOp : Model_Moved<"dispatch", "Rows of tokens moved to their slots of experts",
    [{
      result[ids[k, b, s], b, slots[k, b, s], h] = x[(k,) b, s, h]; unused slots are 0.
    }]>;
def Model_CombineOp : Model_Moved<"combine", "Rows of experts moved back to their tokens and summed over choices",
    [{
      result[(k,) b, s, h] = x[ids[k, b, s], b, slots[k, b, s], h], summed over k if the result has no choice dimension.
    }]>;

def Model_CotangentOp : Op<Model_Dialect, "cotangent", [ShardableOpInterface, CostedOpInterface]> {
  let summary = "The gradient of the stream or of a loss; separates the forward pass from the backward pass";
  let description = [{
      Created by `differentiate`, removed by `split-phases`. Ops that depend on it are backward ops.
    - (C1) the result has the type of the stream, or loss, that the segment returns.
  }];
  let arguments = (ins AnyRankedTensor:$stream);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$stream attr-dict `:` functional-type($stream, $result)";
  let hasVerifier = 1;
}

include "dialects/model/recurrence.td"

#endif
