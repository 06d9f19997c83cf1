// RUN: espalier-opt --link-plan -o /dev/null %S/inputs/two_stages.mlir | FileCheck %s
// RUN: espalier-opt --link-plan -o /dev/null %S/inputs/generation.mlir | FileCheck %s --check-prefix=GENERATION

// 1F1B: the first stage runs two forwards ahead, then alternates a forward and a backward, as a block of two rounds.
// A RUN waits for its inputs before it starts, and sends its results after it.
// CHECK: stages {
// CHECK: entries {  # train_step
// CHECK-NEXT: blocks {
// CHECK-NEXT: rounds: 1
// CHECK-NEXT: actions {
// CHECK-NEXT: start {
// CHECK-NEXT: flights {  # set
// CHECK: flights {  # tok
// CHECK: wait {
// CHECK: run {  # forward
// CHECK-NEXT: calls: 3
// CHECK-NEXT: slots:
// CHECK: start {
// CHECK-NEXT: flights {  # out
// CHECK: wait {
// CHECK: run {  # forward
// CHECK-NEXT: calls: 3
// CHECK-NEXT: micro_batch: 1
// CHECK: start {
// CHECK-NEXT: flights {  # out
// CHECK: flights {  # dout
// CHECK: wait {
// CHECK-NEXT: flights {  # dout
// The first backward overwrites the gradients of bucket 0, and later ones add to them.
// CHECK: run {  # backward
// CHECK-NEXT: role: 1
// CHECK-NEXT: calls: 3
// CHECK-NEXT: backwards: true
// CHECK-NEXT: slots:
// CHECK-NEXT: first: [0]
// CHECK: rounds: 2
// CHECK-NEXT: advance: 1
// CHECK-NEXT: actions {
// CHECK-NEXT: wait {
// CHECK: run {  # forward
// CHECK-NEXT: calls: 3
// CHECK-NEXT: micro_batch: 2
// CHECK-NEXT: slots: [2, 2, 0, 0, 0]
// CHECK: start {
// CHECK: wait {
// CHECK: run {  # backward
// CHECK-NEXT: role: 1
// CHECK-NEXT: calls: 3
// CHECK-NEXT: backwards: true
// CHECK-NEXT: micro_batch: 1
// CHECK-NOT: first:

// The backward of the last micro-batch is split after each layer call, so that its gradients are scattered beside the
// next one.
// CHECK: run {  # backward
// CHECK-NEXT: role: 1
// CHECK-NEXT: first_call: 2
// CHECK-NEXT: calls: 1
// CHECK-NEXT: backwards: true
// CHECK-NEXT: micro_batch: 3
// CHECK: start {
// CHECK-NEXT: flights {  # block.decayed.scatter
// CHECK-NEXT: transfer:
// CHECK-NEXT: call: 2
// CHECK: run {  # backward
// CHECK-NEXT: role: 1
// CHECK-NEXT: first_call: 1
// CHECK-NEXT: calls: 1
// CHECK: start {
// CHECK-NEXT: flights {  # block.decayed.scatter
// CHECK-NEXT: transfer:
// CHECK-NEXT: call: 1
// CHECK: wait {
// CHECK: start {
// CHECK-NEXT: flights {  # agree
// CHECK: run {  # update
// CHECK: start {
// CHECK-NEXT: flights {  # block.decayed.gather
// CHECK-NEXT: transfer:
// CHECK-NEXT: call: 1

// Evaluation is the forward of one micro-batch.
// CHECK: entries {  # evaluate
// CHECK: run {  # evaluate
// CHECK-NOT: run {

// The last stage runs each backward right after its forward.
// CHECK: stages {
// CHECK: entries {  # train_step
// CHECK: run {  # forward
// CHECK-NOT: run {
// CHECK: run {  # backward
// CHECK: rounds: 2
// CHECK-NEXT: advance: 1
// CHECK: run {  # forward
// CHECK: micro_batch: 1
// CHECK: run {  # backward
// CHECK: micro_batch: 1

// Generation: a stage copies its inputs, receives the stream of the preceding stage, and runs once. Then it sends the
// stream, or copies the logits to the host.
// GENERATION: entries {  # prefill
// GENERATION: start {
// GENERATION-NEXT: flights {  # tok.prefill
// GENERATION: wait {
// GENERATION-NEXT: flights {  # tok.prefill
// GENERATION: run {  # prefill
// GENERATION: calls: 3
// GENERATION: start {
// GENERATION-NEXT: flights {  # out.prefill
// GENERATION: wait {
// GENERATION: entries {  # decode
// GENERATION: run {  # decode
// GENERATION: calls: 3
// GENERATION: stages {
// GENERATION: entries {  # prefill
// GENERATION: start {
// GENERATION-NEXT: flights {  # tok.prefill
// GENERATION: flights {  # in.prefill
// GENERATION: entries {  # decode
// GENERATION: run {  # decode
// GENERATION: calls: 2
// GENERATION: start {
// GENERATION-NEXT: flights {  # logits.decode
// GENERATION: wait {
// GENERATION-NEXT: flights {  # logits.decode
