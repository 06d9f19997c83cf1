// Ops of layers with a state: gated linear recurrences and causal convolutions. recurrence_rules.cpp has their rules and
// verifiers.
#ifndef ESPALIER_MODEL_RECURRENCE
#define ESPALIER_MODEL_RECURRENCE

class Model_OfState<string mnemonic, list<Trait> traits = []> : Model_Op<mnemonic, !listconcat(traits, [Model_Cost,
    DeclareOpInterfaceMethods<ShardableOpInterface, ["factorKind"]>])> {
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Model_RecurrenceOp : Model_OfState<"recurrence", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "Gated linear recurrence over the sequence: linear attention, Mamba-2, the delta rule";
  let description = [{
    Each head has a state S, a matrix [key_dim, value_dim] in f32 that is zero before the first position. At position t:
      S' = exp(decay_t) S, S = S' + k_t (beta_t (v_t - S'^T k_t))^T, out_t = S^T q_t.
    Without `delta`, S = S' + k_t (beta_t v_t)^T. `decay` is a logarithm per head, or per head and column of k, and
    should be at most 0. With `visible_from`, the state before t is zero if visible_from at t is at least t, because a
    document begins there.
    - (C1) q and k have one type [batch, seq, heads, key_dim].
    - (C2) v is [batch, seq, heads, group.., value_dim] with at most one dimension `group`, and k's element type. All
    heads of a group have the same q and k. value_dim is no dimension of k.
    - (C3) beta is f32 and has v's dimensions but the last. decay is f32 and has the dimensions of beta, or these and
    key_dim.
    - (C4) visible_from is i32 and has the first two dimensions of q. - (C5) out has the type of v.
  }];
  let arguments = (ins AnyRankedTensor:$q, AnyRankedTensor:$k, AnyRankedTensor:$v, AnyRankedTensor:$decay,
                       AnyRankedTensor:$beta, Optional<AnyRankedTensor>:$visible_from, UnitAttr:$delta);
  let results = (outs AnyRankedTensor:$out);
}

def Model_CarriedRecurrenceOp : Model_OfState<"carried_recurrence"> {
  let summary = "Recurrence over new tokens, which continues from a state and returns the state after them";
  let description = [{
      For generation. The state before position 0 is zero. The tokens of a sequence have successive positions. A negative
      position is padding, which follows the tokens: the state does not change, and out is 0.
    - (C1) q, k, v, decay and beta are as in recurrence. - (C2) positions are i32 and have the first two dimensions of
    q. - (C3) state and new_state are f32 [batch, heads, group.., key_dim, value_dim]. - (C4) out has the type of v.
  }];
  let arguments = (ins AnyRankedTensor:$q, AnyRankedTensor:$k, AnyRankedTensor:$v, AnyRankedTensor:$decay,
                       AnyRankedTensor:$beta, AnyRankedTensor:$positions, AnyRankedTensor:$state, UnitAttr:$delta);
  let results = (outs AnyRankedTensor:$out, AnyRankedTensor:$new_state);
}

def Model_RecurrenceGradOp : Op<Model_Dialect, "recurrence_grad", [Pure, Model_Cost,
    DeclareOpInterfaceMethods<ShardableOpInterface, ["factorKind", "localize"]>]> {
  let summary = "Derivative of recurrence; recomputes the states";
  let description = [{
      dq and dk are sums over the heads of a group. If these heads are on several ranks, localization adds all-reduces.
    - (C1) operands and attributes are as in recurrence. - (C2) cotangent and dv have the type of v. dq and dk have the
    type of q. - (C3) ddecay and dbeta have the types of decay and beta.
  }];
  let arguments = (ins AnyRankedTensor:$q, AnyRankedTensor:$k, AnyRankedTensor:$v, AnyRankedTensor:$decay,
                       AnyRankedTensor:$beta, AnyRankedTensor:$cotangent, Optional<AnyRankedTensor>:$visible_from,
                       UnitAttr:$delta);
  let results = (outs AnyRankedTensor:$dq, AnyRankedTensor:$dk, AnyRankedTensor:$dv, AnyRankedTensor:$ddecay,
                      AnyRankedTensor:$dbeta);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Model_CausalConvOp : Model_OfState<"causal_conv", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "Convolution of each channel over the sequence: y[t, c] = sum_i weight[c, taps - 1 - i] x[t - i, c]";
  let description = [{
      x is 0 before the sequence. With `visible_from`, y at t reads no x before min(max(visible_from, 0), t), the first
      token of its document. With `transposed`, the op is the derivative with respect to x: y[t, c] is the sum of
      weight[c, taps - 1 - i] x[t + i, c] over the positions t + i at which the convolution reads position t.
    - (C1) x is [batch, seq, channels..] with at least one dimension of channels; the result has its dimensions.
    - (C2) weight is [channels.., taps] with 2 to 8 taps. - (C3) visible_from is i32 and has the first two dimensions of
    x.
  }];
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$weight, Optional<AnyRankedTensor>:$visible_from,
                       UnitAttr:$transposed);
  let results = (outs AnyRankedTensor:$result);
}

def Model_CarriedConvOp : Model_OfState<"carried_conv"> {
  let summary = "Convolution over new tokens, which reads and replaces the last inputs of each sequence";
  let description = [{
      For generation, with positions as in carried_recurrence. y is that of causal_conv; x before the tokens is in
      `halo`. new_halo has the last inputs, those of the tokens included.
    - (C1) x [batch, seq, channels..] and y are as in causal_conv. - (C2) weight is as in causal_conv. - (C3) positions
    are as in carried_recurrence. - (C4) halo and new_halo are [batch, earlier, channels..] of x's element
    type, with taps - 1 in `earlier`.
  }];
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$weight, AnyRankedTensor:$positions, AnyRankedTensor:$halo);
  let results = (outs AnyRankedTensor:$y, AnyRankedTensor:$new_halo);
}

def Model_CausalConvGradOp : Model_OfState<"causal_conv_grad"> {
  let summary = "Derivative of causal_conv with respect to its weight";
  let description = [{
    - (C1) x and cotangent have the same dimensions [batch, seq, channels..]. - (C2) the result is f32
    [channels.., taps] with 2 to 8 taps. - (C3) visible_from is as in causal_conv.
  }];
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$cotangent, Optional<AnyRankedTensor>:$visible_from);
  let results = (outs AnyRankedTensor:$result);
}

#endif
