// RUN: espalier-opt --link-plan -o /dev/null %S/inputs/two_stages.mlir | FileCheck %s
// RUN: espalier-opt --link-plan -o /dev/null %S/inputs/generation.mlir | FileCheck %s --check-prefix=GENERATION

// 1F1B: the first stage runs two forwards ahead, then a forward and a backward in turns, written once for two rounds. A RUN
// waits for its inputs, and its results leave behind it.
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
// The first backward writes the gradients of bucket 0, later ones add to them.
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

// The last micro-batch is cut behind each layer call, whose gradients are then scattered beside the next one.
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

// Evaluation is one forward of one micro-batch.
// CHECK: entries {  # evaluate
// CHECK: run {  # evaluate
// CHECK-NOT: run {

// The last stage runs each backward right behind its forward.
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

// Generation: a stage receives its inputs, and the stream of the previous stage; runs once; and sends the stream, or
// returns the logits.
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
