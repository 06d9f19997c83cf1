// RUN: espalier-opt --split-input-file --verify-diagnostics --link-plan %s

// expected-error@+1 {{needs dist.mesh and exec.plan, which the phase model sets}}
module attributes {dist.mesh = #dist.mesh<pp = 2>} {
}

// -----

// expected-error@+1 {{exec.plan has the unknown schedule '2f1b'}}
module attributes {dist.mesh = #dist.mesh<pp = 1>, exec.plan = #exec.plan<schedule = "2f1b">} {
}

// -----

// expected-error@+1 {{exec.plan has "all" for a stage}}
module attributes {dist.mesh = #dist.mesh<pp = 1>, exec.plan = #exec.plan<stages = ["all"]>} {
}

// -----

// expected-error@+1 {{exec.plan has the unknown policy 'most'}}
module attributes {dist.mesh = #dist.mesh<pp = 1>, exec.plan = #exec.plan<stages = [#exec.stage<first_layer = 0, layers = 1, recompute = ["most"]>]>} {
}

// -----

// expected-error@+2 {{a stage of 2 layers needs as many policies, got 1}}
// expected-error@+1 {{failed to parse Exec_PlanAttr parameter 'stages'}}
module attributes {exec.plan = #exec.plan<stages = [#exec.stage<first_layer = 0, layers = 2, recompute = ["none"]>]>} {
}

// -----

// expected-error@+2 {{the policies of a stage are strings, got [1]}}
// expected-error@+1 {{failed to parse Exec_PlanAttr parameter 'stages'}}
module attributes {exec.plan = #exec.plan<stages = [#exec.stage<first_layer = 0, layers = 1, recompute = [1]>]>} {
}

// -----

// expected-error@+1 {{needs exec.plan with a stage for each of 2 chunks, got 0}}
module attributes {dist.mesh = #dist.mesh<pp = 2>, exec.plan = #exec.plan<>} {
}

// -----

// expected-error@+1 {{needs exec.optimizer, which the phase model sets}}
module attributes {dist.mesh = #dist.mesh<pp = 1>, exec.plan = #exec.plan<stages = [#exec.stage<first_layer = 0, layers = 1>]>} {
}

// -----

// expected-error@+1 {{needs model.runs with a first and a last segment, got 0}}
module attributes {exec.optimizer = #exec.optimizer<type = "AdamW">, dist.mesh = #dist.mesh<pp = 1>, exec.plan = #exec.plan<stages = [#exec.stage<first_layer = 0, layers = 1>]>} {
}

// -----

// expected-error@+1 {{needs an exec.segment of kind 'embed', which form-buckets lists}}
module attributes {exec.optimizer = #exec.optimizer<type = "AdamW">, dist.mesh = #dist.mesh<pp = 1>, exec.plan = #exec.plan<stages = [#exec.stage<first_layer = 0, layers = 0>]>,
                   model.runs = [#model.run<kind = "embed", count = 1>, #model.run<kind = "head", count = 1>]} {
}
