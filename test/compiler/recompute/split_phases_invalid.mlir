// RUN: espalier-opt %s -split-input-file -split-phases -verify-diagnostics

// An unknown policy is refused.
// expected-error@+1 {{needs recompute policies none, selective or full, got "most"}}
func.func @unknown_policy() attributes {model.segment, model.recompute = ["none", "most"]} {
  return
}

// -----

// A policy must be a string.
// expected-error@+1 {{needs recompute policies none, selective or full, got 2 : i64}}
func.func @not_a_name() attributes {model.segment, model.recompute = [2]} {
  return
}
