// RUN: espalier-opt %s -split-input-file -split-phases -verify-diagnostics

// A policy that is not known is refused instead of taken for none.
// expected-error@+1 {{needs recompute policies none, selective or full, got "most"}}
func.func @unknown_policy() attributes {model.segment, model.recompute = ["none", "most"]} {
  return
}

// -----

// A policy is a name.
// expected-error@+1 {{needs recompute policies none, selective or full, got 2 : i64}}
func.func @not_a_name() attributes {model.segment, model.recompute = [2]} {
  return
}
