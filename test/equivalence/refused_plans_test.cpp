// Each case changes one thing in a compiled plan. The verifier must refuse the plan for the reason in the case's name.
// Blocks with several rounds are unrolled first, so that a single action can be changed.
#include "runtime/verify_plan.h"

#include "test/equivalence/splits.h"
#include "test/host_options.h"
#include "test/runtime/verify_cases.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace espalier {
namespace {

namespace pb = rt::pb;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

/// The plan to change.
struct Original {
  std::string model;
  SplitCase split;
  std::string target = "cpu";
  std::vector<std::string> sets = {};
};

const Original pipeline = {"gpt2", {.name = "pipeline", .dp = 2, .pp = 2, .microBatches = 4}};
const Original single = {"gpt2", {.name = "single", .microBatches = 2}};
const Original tensors = {"gpt2", {.name = "tensors", .dp = 2, .tp = 2, .microBatches = 2, .zero = 1}};
const Original chunks = {"gpt2",
                         {.name = "chunks",
                          .pp = 2,
                          .microBatches = 4,
                          .stageLayers = {1, 1, 1, 0},
                          .schedule = planner::Schedule::Interleaved,
                          .virtualStages = 2}};
const Original zeroBubble = {
    "gpt2", {.name = "zero_bubble", .pp = 2, .microBatches = 4, .schedule = planner::Schedule::ZeroBubbleH1}};
const Original halfV = {"gpt2",
                        {.name = "half_v",
                         .tp = 2,
                         .pp = 2,
                         .microBatches = 4,
                         .stageLayers = {1, 1, 1, 0},
                         .schedule = planner::Schedule::VHalf}};
const Original frozen = {"frozen_parts", {.name = "frozen", .dp = 2, .microBatches = 2, .zero = 3}};
const Original twoTables = {"two_tables", {.name = "two_tables", .pp = 2, .microBatches = 2}};
const Original experts = {"mixtral", {.name = "experts", .microBatches = 2}};
const Original matrices = {"gpt2", {.name = "matrices", .microBatches = 2}, "cpu", {"optimizer.type=Muon"}};
const Original slices = {"gpt2", {.name = "slices", .tp = 2, .microBatches = 2}, "cpu", {"optimizer.type=Muon"}};
const Original clipped = {
    "llama", {.name = "clipped", .dp = 2, .tp = 2, .microBatches = 2}, "cpu", {"optimizer.qk_clip_threshold=0.1"}};
const Original device = {"gpt2", {.name = "device", .dp = 2, .tp = 2, .microBatches = 2}, "cuda"};
const Original expertsOnDevice = {"mixtral", {.name = "experts_on_device", .microBatches = 2}, "cuda"};

/// Returns the transfers that an action starts or waits for.
google::protobuf::RepeatedPtrField<pb::Flight> &flightsOf(pb::Action &action) {
  static google::protobuf::RepeatedPtrField<pb::Flight> none;
  if (action.has_run())
    return none;
  return action.has_start() ? *action.mutable_start()->mutable_flights() : *action.mutable_wait()->mutable_flights();
}

/// Unrolls blocks with several rounds into blocks of one round.
void unfold(const pb::Stage &stage, pb::Actions &list) {
  pb::Block all;
  all.set_rounds(1);
  auto moveSlots = [&](auto &slots, uint32_t call, uint32_t moved) {
    auto isOf = [&](const pb::Chunk &chunk) {
      return chunk.first_call() <= call && call < chunk.first_call() + chunk.calls();
    };
    const pb::Chunk &chunk = *std::ranges::find_if(stage.chunks(), isOf);
    for (int i = 0; i < slots.size(); ++i)
      if (const pb::Lifetime &lifetime = stage.lifetimes(static_cast<int>(chunk.lifetimes(i))); lifetime.rotates())
        slots.Set(i, (slots.Get(i) + moved) % lifetime.slots());
  };
  for (const pb::Block &block : list.blocks())
    for (uint32_t round = 0; round < block.rounds(); ++round)
      for (const pb::Action &action : block.actions()) {
        uint32_t moved = round * block.advance();
        pb::Action &made = *all.add_actions() = action;
        if (made.has_run()) {
          made.mutable_run()->set_micro_batch(made.run().micro_batch() + moved);
          moveSlots(*made.mutable_run()->mutable_slots(), made.run().first_call(), moved);
          continue;
        }
        for (pb::Flight &flight : flightsOf(made)) {
          flight.set_micro_batch(flight.micro_batch() + moved);
          moveSlots(*flight.mutable_slots(), flight.call(), moved);
        }
      }
  list.clear_blocks();
  *list.add_blocks() = std::move(all);
}

pb::Bucket *bucketNamed(pb::Plan &plan, const std::string &name) {
  return &*std::ranges::find(*plan.mutable_buckets(), name, [](const pb::Bucket &bucket) { return bucket.name(); });
}

/// Returns the plan, compiled once.
const pb::Plan &compiled(const Original &original) {
  static std::map<std::string, pb::Plan> known;
  auto [place, isNew] = known.try_emplace(original.split.name);
  if (!isNew)
    return place->second;
  std::vector<std::string> sets = original.sets;
  if (original.target == "cuda") // the minimum that GPU attention supports
    sets.emplace_back("model.model_config.hidden_size=32");
  RunConfig run = equivalenceRun(original.model, sets);
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  CompileOptions options = hostOptions();
  options.target = original.target;
  std::optional<Compiled> made = compileRun(context, run, planOf(run, original.split), options);
  EXPECT_TRUE(made);
  place->second = made ? std::move(made->plan) : pb::Plan();
  for (pb::Stage &stage : *place->second.mutable_stages())
    unfold(pb::Stage(stage), *stage.mutable_entries(0));
  return place->second;
}

struct Refusal {
  const char *name;
  const Original *original;
  const char *expected; ///< part of one of the errors
  std::function<void(pb::Plan &)> apply;
};

/// Prints the name in failure messages.
std::ostream &operator<<(std::ostream &to, const Refusal &refusal) { return to << refusal.name; }

/// Replaces a value in the launches of the layers' update.
void replaceInUpdate(pb::Plan &plan, const pb::Buffer &from, const pb::Buffer &to) {
  for (pb::Subprogram &subprogram : *plan.mutable_subprograms())
    for (pb::Instruction &instruction : *subprogram.mutable_instructions())
      if (subprogram.name() == "block.update" && instruction.has_launch())
        for (pb::Buffer &buffer : *instruction.mutable_launch()->mutable_buffers())
          if (buffer.value() == from.value())
            buffer = to;
}

/// Calls change(call) for the copies in the layers' update that take a rank's slice of a matrix.
void forSlicesInUpdate(pb::Plan &plan, const std::function<void(pb::LibraryCall &)> &change) {
  for (pb::Subprogram &subprogram : *plan.mutable_subprograms())
    for (pb::Instruction &instruction : *subprogram.mutable_instructions())
      if (subprogram.name() == "block.update" && instruction.has_call() && instruction.call().buffers(0).has_reads_at())
        change(*instruction.mutable_call());
}

class CompiledPlan : public testing::TestWithParam<Refusal> {};

TEST_P(CompiledPlan, IsRefused) {
  pb::Plan plan = compiled(*GetParam().original);
  ASSERT_THAT(rt::verifyPlan(plan), IsEmpty());
  GetParam().apply(plan);
  EXPECT_THAT(rt::verifyPlan(plan), Contains(HasSubstr(GetParam().expected)));
}

// Cases that change instruction streams.

pb::Run *runOf(pb::Plan &p, int stage, const char *role, int n) {
  return (*rt::actionsOf(p, stage))[rt::findRun(p, stage, role, n)].mutable_run();
}
void drop(pb::Plan &p, int stage, int action) { rt::actionsOf(p, stage)->DeleteSubrange(action, 1); }
void insert(pb::Plan &p, int stage, const pb::Action &action, int at) {
  *rt::actionsOf(p, stage)->Add() = action;
  rt::moveAction(p, stage, rt::actionsOf(p, stage)->size() - 1, at);
}
/// Swaps two RUNs of a role, including their ring slots.
void swapRuns(pb::Plan &p, int stage, const char *role, int one, int other) {
  rt::actionsOf(p, stage)->SwapElements(rt::findRun(p, stage, role, one), rt::findRun(p, stage, role, other));
}
uint32_t transferNumber(const pb::Plan &p, const std::string &name) {
  return static_cast<uint32_t>(std::ranges::find(p.transfers(), name, &pb::Transfer::name) - p.transfers().begin());
}
pb::Flight flightOf(const pb::Plan &p, const pb::Start &start, const std::string &transfer, uint32_t microBatch) {
  uint32_t number = transferNumber(p, transfer);
  for (const pb::Flight &flight : start.flights())
    if (flight.transfer() == number && flight.micro_batch() == microBatch)
      return flight;
  return {};
}
/// Starts a transfer again after its wait, and waits for it.
void repeatTransfer(pb::Plan &p, int stage, const std::string &transfer) {
  int at = rt::findFlight(p, stage, /*isStart=*/false, transfer) + 1;
  pb::Action start, wait;
  pb::Flight &again = *start.mutable_start()->add_flights() = flightOf(
      p, rt::actionsOf(p, stage)->Get(rt::findFlight(p, stage, /*isStart=*/true, transfer)).start(), transfer, 0);
  (*wait.mutable_wait()->add_flights() = again).clear_slots();
  insert(p, stage, start, at);
  insert(p, stage, wait, at + 1);
}

const Refusal lists[] = {
    {"ForwardBeforeItsReceive", &pipeline, "reads bytes",
     [](pb::Plan &p) {
       rt::moveAction(p, 1, rt::findRun(p, 1, "forward"), rt::findFlight(p, 1, /*isStart=*/false, "in"));
     }},
    {"BackwardDropped", &pipeline, "before all its terms are there",
     [](pb::Plan &p) { drop(p, 0, rt::findRun(p, 0, "backward", 2)); }},
    {"BackwardTwice", &pipeline, "runs a second time",
     [](pb::Plan &p) {
       int run = rt::findRun(p, 0, "backward", 2);
       insert(p, 0, pb::Action(rt::actionsOf(p, 0)->Get(run)), run + 1);
     }},
    {"MicroBatchesSwapped", &pipeline, "micro-batch",
     [](pb::Plan &p) {
       runOf(p, 0, "backward", 0)->set_micro_batch(1);
       runOf(p, 0, "backward", 1)->set_micro_batch(0);
     }},
    {"WeightGradientsSwapped", &zeroBubble, "behind a later micro-batch",
     [](pb::Plan &p) { swapRuns(p, 0, "weight", 1, 2); }},
    {"ReducedTwice", &pipeline, "block.decayed.gradient",
     [](pb::Plan &p) { repeatTransfer(p, 0, "block.decayed.sum"); }},
    {"UpdateBeforeTheReduction", &pipeline, "holds a sum",
     [](pb::Plan &p) {
       rt::moveAction(p, 0, rt::findRun(p, 0, "update"), rt::findFlight(p, 0, /*isStart=*/true, "block.decayed.sum"));
     }},
    {"MatricesUpdatedWithoutTheirGradient", &matrices, "updates a bucket without its gradient",
     [](pb::Plan &p) {
       const pb::Bucket &bucket = *bucketNamed(p, "block.matrices");
       replaceInUpdate(p, bucket.gradient(), bucket.state(0));
     }},
    {"MatricesUpdatedByTheGradientOfOthers", &matrices, "updates one bucket with what belongs to another",
     [](pb::Plan &p) {
       replaceInUpdate(p, bucketNamed(p, "block.matrices2")->gradient(), bucketNamed(p, "block.matrices3")->gradient());
     }},
    {"MatricesUpdatedByTheSliceOfAnotherRank", &slices, "its part begins at",
     [](pb::Plan &p) {
       forSlicesInUpdate(p, [](pb::LibraryCall &call) { call.mutable_buffers(0)->clear_reads_at(); });
     }},
    {"MatricesUpdatedBeforeTheirSlicesAreGathered", &slices, "while a transfer is in flight there",
     [](pb::Plan &p) {
       for (pb::Subprogram &subprogram : *p.mutable_subprograms()) {
         auto &list = *subprogram.mutable_instructions();
         for (int i = 0; subprogram.name() == "block.update" && i + 1 < list.size(); ++i)
           if (list[i].body_case() == pb::Instruction::kWait)
             list.SwapElements(i, i + 1);
       }
     }},
    {"UpdateDropped", &pipeline, "not written once, and all of it",
     [](pb::Plan &p) { drop(p, 0, rt::findRun(p, 0, "update")); }},
    {"NormsOfChunksSwapped", &chunks, "behind a later call", [](pb::Plan &p) { swapRuns(p, 0, "norm", 0, 1); }},
    // No collective separates the two RUNs, and the host has filled all slots of the scalars.
    {"ScalarsBeforeTheNorm", &single, "before all its terms are there",
     [](pb::Plan &p) { rt::moveAction(p, 0, rt::findRun(p, 0, "scalars"), rt::findRun(p, 0, "norm")); }},
    // Both stages send to each other on both channels. Without layer names one stage could be mistaken for the other.
    {"StagesSwapped", &halfV, "stage 1: begins with layer 0, the stage before it with layer 2",
     [](pb::Plan &p) { p.mutable_stages()->SwapElements(0, 1); }},
    // Stage 1 receives its second activation after it sends its first gradient.
    // Stage 0 receives this gradient after it sends that activation.
    {"OneQueueInOrder", &pipeline, "waits for ever",
     [](pb::Plan &p) {
       int sent = rt::findFlight(p, 1, /*isStart=*/true, "din", 0);
       pb::Action late;
       for (uint32_t microBatch = 1; microBatch < 4; ++microBatch)
         if (int start = rt::findFlight(p, 1, /*isStart=*/true, "in", microBatch); start >= 0 && start <= sent) {
           *late.mutable_start()->add_flights() =
               flightOf(p, rt::actionsOf(p, 1)->Get(start).start(), "in", microBatch);
           rt::dropFlight(p, 1, /*isStart=*/true, "in", microBatch);
         }
       insert(p, 1, late, sent + 1);
     }},
    // Kind, group and bytes are equal, but one stage reduces its first table with the other stage's second table.
    {"TiedTablesCrosswise", &twoTables, "which is another",
     [](pb::Plan &p) {
       uint32_t first = transferNumber(p, "embed.first.total"), second = transferNumber(p, "embed.second.total");
       for (pb::Action &action : *rt::actionsOf(p, 1))
         for (pb::Flight &flight : flightsOf(action))
           if (flight.transfer() == first || flight.transfer() == second)
             flight.set_transfer(first + second - flight.transfer());
     }},
    {"FrozenBucketIsTrained", &frozen, "of the gradient of bucket 'embed.frozen' of embed are in the norm",
     [](pb::Plan &p) {
       pb::Bucket &bucket = *bucketNamed(p, "embed.frozen");
       bucket.set_frozen(false);
       bucket.set_partial(bucket.share());
       bucket.set_norm_weight(1);
     }},
    {"TrainedBucketIsFrozen", &frozen, "is frozen, and has gradients, optimizer state",
     [](pb::Plan &p) { bucketNamed(p, "slim.decayed")->set_frozen(true); }},
};

// Cases that change subprograms.

using IsIt = std::function<bool(const pb::Plan &, const pb::Instruction &)>;

bool isCall(const pb::Instruction &instruction, pb::LibraryCall::Function function) {
  return instruction.has_call() && instruction.call().function() == function;
}

/// Returns the matching instructions of a subprogram.
std::vector<int> find(pb::Plan &p, const std::string &program, const IsIt &isIt) {
  std::vector<int> found;
  const pb::Subprogram &subprogram = *rt::programOf(p, program);
  for (int i = 0; i < subprogram.instructions_size(); ++i)
    if (isIt(p, subprogram.instructions(i)))
      found.push_back(i);
  return found;
}

bool isSquare(const pb::Plan &, const pb::Instruction &instruction) {
  return isCall(instruction, pb::LibraryCall::SQUARED_NORM);
}
IsIt isShape(std::string shape) {
  return [shape](const pb::Plan &p, const pb::Instruction &instruction) {
    return instruction.has_launch() && p.kernels(static_cast<int>(instruction.launch().kernel())).shape() == shape;
  };
}
bool isSum(const pb::Plan &p, const pb::Instruction &instruction) {
  return instruction.has_launch() &&
         p.kernels(static_cast<int>(instruction.launch().kernel())).shape() == "add_squares";
}

/// Returns whether the instruction adds to a single number, such as a slot of the scalars.
bool addsToStatistic(const pb::Plan &p, const pb::Instruction &instruction) {
  if (instruction.has_call())
    return instruction.call().store() == pb::ADD && instruction.call().buffers().rbegin()->bytes() == 4;
  const pb::Launch &launch = instruction.launch();
  for (int i = 0; i < launch.buffers_size(); ++i)
    if (p.kernels(static_cast<int>(launch.kernel())).operands(i).access() == pb::Operand::ADD &&
        launch.buffers(i).bytes() == 4)
      return true;
  return false;
}

void swapInstructions(pb::Plan &p, const std::string &program, const IsIt &isIt) {
  std::vector<int> found = find(p, program, isIt);
  rt::programOf(p, program)->mutable_instructions()->SwapElements(found.at(0), found.at(1));
}

google::protobuf::RepeatedPtrField<pb::Buffer> *buffersOf(pb::Instruction &instruction) {
  if (instruction.has_launch())
    return instruction.mutable_launch()->mutable_buffers();
  return instruction.has_call() ? instruction.mutable_call()->mutable_buffers() : nullptr;
}

/// Returns a product whose result fits into its first operand, both in the workspace.
pb::LibraryCall *productOf(pb::Plan &p, const std::string &program) {
  IsIt isProduct = [](const pb::Plan &, const pb::Instruction &one) {
    return isCall(one, pb::LibraryCall::MATMUL) && one.call().buffers(0).region() == one.call().buffers(2).region() &&
           one.call().buffers(2).bytes() <= one.call().buffers(0).bytes();
  };
  return rt::instructionOf(p, program, find(p, program, isProduct).at(0))->mutable_call();
}

pb::Launch *launchOf(pb::Plan &p, const std::string &program) {
  IsIt isLaunch = [](const pb::Plan &, const pb::Instruction &one) { return one.has_launch(); };
  return rt::instructionOf(p, program, find(p, program, isLaunch).at(0))->mutable_launch();
}

/// Moves a workspace value onto another one that is defined before it and read after it.
void overlapWorkspace(pb::Plan &p, const std::string &program) {
  auto workspace = static_cast<uint32_t>(std::ranges::find(p.regions(), "workspace") - p.regions().begin());
  struct Life {
    int first = 0, last = 0;
    uint64_t offset = 0, bytes = 0;
  };
  std::map<uint32_t, Life> lives; // by value
  pb::Subprogram &subprogram = *rt::programOf(p, program);
  auto visit = [&](auto does) {
    for (int i = 0; i < subprogram.instructions_size(); ++i)
      if (auto *buffers = buffersOf(*subprogram.mutable_instructions(i)))
        for (pb::Buffer &buffer : *buffers)
          if (buffer.region() == workspace)
            does(i, buffer);
  };
  visit([&](int i, pb::Buffer &buffer) {
    lives.try_emplace(buffer.value(), Life{i, i, buffer.offset(), buffer.bytes()}).first->second.last = i;
  });
  for (const auto &[outer, around] : lives)
    for (const auto &[inner, life] : lives)
      if (around.first < life.first && life.first < around.last && life.bytes <= around.bytes &&
          life.last > life.first) {
        visit([&](int, pb::Buffer &buffer) {
          if (buffer.value() == inner)
            buffer.set_offset(buffer.offset() - life.offset + around.offset);
        });
        return;
      }
  ADD_FAILURE() << "no two values of " << program << " live at once";
}

/// Returns the n-th host staging allocation of the first stage.
pb::Place *exchangedPlace(pb::Plan &p, int n) {
  for (pb::Place &place : *p.mutable_stages(0)->mutable_places())
    if (place.exchanged() && n-- == 0)
      return &place;
  return nullptr;
}

/// Returns a collective of a subprogram.
pb::Transfer *collectiveOf(pb::Plan &p, const std::string &program) {
  IsIt isStart = [](const pb::Plan &, const pb::Instruction &one) { return one.has_start(); };
  return p.mutable_transfers(static_cast<int>(rt::instructionOf(p, program, find(p, program, isStart).at(0))->start()));
}

const Refusal subprograms[] = {
    {"SquaresDropped", &pipeline, "of the gradient of bucket",
     [](pb::Plan &p) {
       rt::programOf(p, "block.norm")->mutable_instructions()->DeleteSubrange(find(p, "block.norm", isSquare).at(0), 1);
     }},
    {"SquaresSwapped", &pipeline, "behind those of a later bucket",
     [](pb::Plan &p) { swapInstructions(p, "block.norm", isSquare); }},
    // The sums of the two blocks are in separate memory; otherwise they would be overwritten.
    {"SumsOfSquaresSwapped", &device, "of the gradient of bucket",
     [](pb::Plan &p) {
       pb::Subprogram &norm = *rt::programOf(p, "block.norm");
       std::vector<int> sums = find(p, "block.norm", isSum);
       uint64_t apart = norm.instructions(sums.at(0)).launch().buffers(0).bytes();
       for (auto [instruction, buffer] : {std::pair(sums.at(1) - 1, 1), {sums.at(1), 0}}) {
         pb::Buffer *blocks = norm.mutable_instructions(instruction)->mutable_launch()->mutable_buffers(buffer);
         blocks->set_offset(blocks->offset() + apart);
       }
       ASSERT_THAT(rt::verifyPlan(p), IsEmpty());
       for (int i = sums.at(0); i < sums.at(1); ++i) // squares of both, then the second sum, then the first
         norm.mutable_instructions()->SwapElements(i, i + 1);
     }},
    {"SumOfSquaresTwice", &device, "or not with weight",
     [](pb::Plan &p) {
       pb::Subprogram &norm = *rt::programOf(p, "block.norm");
       *norm.add_instructions() = pb::Instruction(norm.instructions(find(p, "block.norm", isSum).back()));
     }},
    // The head also adds to the loss.
    {"BalanceDropped", &experts, "and nothing reads it",
     [](pb::Plan &p) {
       std::vector<int> sums = find(p, "block.none.forward", addsToStatistic);
       rt::programOf(p, "block.none.forward")->mutable_instructions()->DeleteSubrange(sums.at(0), 1);
     }},
    {"LossAddedTwice", &pipeline, "to which this subprogram has added before",
     [](pb::Plan &p) {
       for (pb::Subprogram &program : *p.mutable_subprograms()) {
         std::vector<int> sums = find(p, program.name(), addsToStatistic);
         if (program.name().starts_with("head.") && !sums.empty())
           *program.add_instructions() = pb::Instruction(program.instructions(sums.at(0)));
       }
     }},
    // The gradient of a table on GPUs: order_tokens begins the term. The segment sums and the kernel that joins them
    // continue it.
    {"SegmentsAddedTwice", &device, "what was added before",
     [](pb::Plan &p) {
       pb::Subprogram &backward = *rt::programOf(p, "embed.none.backward");
       int sum = find(p, "embed.none.backward", isShape("sum_segments")).at(0);
       *backward.add_instructions() = pb::Instruction(backward.instructions(sum));
       for (int i = backward.instructions_size() - 1; i > sum + 1; --i)
         backward.mutable_instructions()->SwapElements(i, i - 1);
     }},
    {"SegmentsNotJoined", &device, "and nothing reads it",
     [](pb::Plan &p) {
       int join = find(p, "embed.none.backward", isShape("join_segments")).at(0);
       rt::programOf(p, "embed.none.backward")->mutable_instructions()->DeleteSubrange(join, 1);
     }},
    // Tokens without a slot are dropped.
    {"FewerSlotsGiven", &experts, "slots of an expert, 'block.none.saved",
     [](pb::Plan &p) {
       IsIt isRoute = [](const pb::Plan &, const pb::Instruction &one) { return isCall(one, pb::LibraryCall::ROUTE); };
       int route = find(p, "block.none.forward", isRoute).at(0);
       pb::LibraryCall *call = rt::instructionOf(p, "block.none.forward", route)->mutable_call();
       call->set_sizes(4, call->sizes(4) - 1);
     }},
    {"ProductOntoItsOperand", &pipeline, "while operand 0 is at bytes",
     [](pb::Plan &p) {
       pb::LibraryCall *product = productOf(p, "block.none.backward");
       product->mutable_buffers(2)->set_offset(product->buffers(0).offset());
     }},
    {"WorkspaceOverlaps", &pipeline, "which holds another value at byte",
     [](pb::Plan &p) { overlapWorkspace(p, "block.none.backward"); }},
    // The inputs of the second ring slot would overlap the settings, or both slots would share one allocation.
    {"TurnsOverlapSettings", &pipeline, "both turns of place",
     [](pb::Plan &p) { exchangedPlace(p, 0)->set_stride(exchangedPlace(p, 0)->stride() + 64); }},
    {"TurnsInOnePlace", &pipeline, "bytes for the host every 0",
     [](pb::Plan &p) { exchangedPlace(p, 1)->set_stride(0); }},
    {"StatesOverlap", &pipeline, "bucket 'block.decayed' of layer 2 overlaps another",
     [](pb::Plan &p) { *rt::bindingOf(p, 0, 2, "state") = *rt::bindingOf(p, 0, 1, "state"); }},
    {"BufferDropped", &pipeline, "takes",
     [](pb::Plan &p) { launchOf(p, "block.none.forward")->mutable_buffers()->RemoveLast(); }},
    {"OtherExtent", &pipeline, "the kernel reaches",
     [](pb::Plan &p) {
       pb::Launch *launch = launchOf(p, "block.none.forward");
       launch->set_extent(launch->extent() * 2);
     }},
    {"CollectiveOverOtherAxes", &tensors, "over axes",
     [](pb::Plan &p) {
       pb::Transfer *sum = collectiveOf(p, "block.none.forward");
       for (int group = 0; group < p.groups_size(); ++group)
         if (p.groups(group).axes() == 2)
           sum->set_group(static_cast<uint32_t>(group));
     }},
    {"CollectiveOfAnotherKind", &tensors, "gathers",
     [](pb::Plan &p) { collectiveOf(p, "block.none.forward")->set_kind(pb::Transfer::ALL_GATHER); }},
    {"CollectiveOfHalf", &tensors, "bytes of",
     [](pb::Plan &p) {
       pb::Transfer *sum = collectiveOf(p, "block.none.forward");
       for (pb::Buffer *buffer : {sum->mutable_from(0), sum->mutable_to(0)})
         buffer->set_bytes(buffer->bytes() / 2);
     }},
    {"ScoresAddedUp", &clipped, "or not to be reduced so",
     [](pb::Plan &p) { collectiveOf(p, "block.update")->set_reduction(pb::SUM); }},
    {"ScoresOfOtherHeads", &clipped, "over axes",
     [](pb::Plan &p) { collectiveOf(p, "block.update")->set_group(collectiveOf(p, "block.none.forward")->group()); }},
    {"ScoresOfOneReplica", &clipped, "for the sum",
     [](pb::Plan &p) {
       pb::Transfer &largest = *collectiveOf(p, "block.update");
       replaceInUpdate(p, pb::Buffer(largest.to(0)), pb::Buffer(largest.from(0)));
     }},
    {"ScoresThatAreSums", &clipped, "or not to be reduced so",
     [](pb::Plan &p) {
       uint32_t largest = collectiveOf(p, "block.update")->from(0).value();
       p.mutable_values(static_cast<int>(largest))->set_reduction(pb::SUM);
     }},
    {"FactorsOfOtherHeads", &clipped, "its part begins at 0",
     [](pb::Plan &p) {
       IsIt isCopy = [](const pb::Plan &, const pb::Instruction &one) { return isCall(one, pb::LibraryCall::COPY); };
       pb::Instruction *copy = rt::instructionOf(p, "block.update", find(p, "block.update", isCopy).at(0));
       copy->mutable_call()->mutable_buffers(0)->mutable_reads_at()->set_tp(4);
     }},
    {"HalfReducedTwice", &pipeline, "bytes of 'block.decayed.gradient', which has",
     [](pb::Plan &p) {
       pb::Transfer *sum = rt::transferOf(p, "block.decayed.sum");
       for (pb::Buffer *buffer : {sum->mutable_from(0), sum->mutable_to(0)})
         buffer->set_bytes(buffer->bytes() / 2);
       *sum->add_from() = sum->from(0);
       *sum->add_to() = sum->to(0);
     }},
};

std::string nameOf(const testing::TestParamInfo<Refusal> &info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Lists, CompiledPlan, testing::ValuesIn(lists), nameOf);
INSTANTIATE_TEST_SUITE_P(Subprograms, CompiledPlan, testing::ValuesIn(subprograms), nameOf);

// Cases that change scalars of launches.

/// Changes each scalar that an address or a row count depends on, in one launch of each shape. Returns the changes that
/// are not refused, for example "embed 0 +1". Skips scalars that only affect arithmetic, and random-stream constants.
std::vector<std::string> numbersThatAreFree(const Original &original) {
  pb::Plan plan = compiled(original);
  std::vector<std::string> free;
  std::set<std::string> tried;
  auto attempt = [&](const std::string &name, pb::Affine &scalar, const pb::Affine &changed) {
    pb::Affine was = scalar;
    scalar = changed;
    if (tried.insert(name).second && changed.SerializeAsString() != was.SerializeAsString() &&
        rt::verifyPlan(plan).empty())
      free.push_back(name);
    scalar = was;
  };
  for (pb::Subprogram &subprogram : *plan.mutable_subprograms())
    for (pb::Instruction &instruction : *subprogram.mutable_instructions())
      for (int i = 0; i < instruction.launch().scalars_size(); ++i) {
        const pb::Kernel &kernel = plan.kernels(static_cast<int>(instruction.launch().kernel()));
        pb::Affine &scalar = *instruction.mutable_launch()->mutable_scalars(i);
        pb::Kernel::Scalar use = kernel.uses(i);
        if (use == pb::Kernel::NUMBER || use == pb::Kernel::DIVISOR)
          continue;
        std::string name = fmt::format("{} {}", kernel.shape(), i);
        if (scalar.first() > 0)
          name += " first";
        pb::Affine changed = scalar;
        for (int64_t by : {-1, 1, 64}) {
          if (use == pb::Kernel::STREAM)
            continue;
          changed.set_constant(scalar.constant() + by);
          attempt(fmt::format("{} {:+}", name, by), scalar, changed);
        }
        for (const char *variable : {"micro_batch", "layer", "seed", "dp", "tp", "first"}) {
          changed = scalar;
          const auto *field = pb::Affine::descriptor()->FindFieldByName(variable);
          if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_UINT32)
            changed.set_first(scalar.first() + 1);
          else
            changed.GetReflection()->SetInt64(&changed, field, changed.GetReflection()->GetInt64(changed, field) + 1);
          attempt(fmt::format("{} {}", name, variable), scalar, changed);
        }
      }
  EXPECT_GT(tried.size(), 30u);
  return free;
}

TEST(LaunchedNumbers, AreCheckedOnTheCpu) {
  EXPECT_THAT(numbersThatAreFree(tensors), IsEmpty());
  EXPECT_THAT(numbersThatAreFree(experts), IsEmpty());
}

TEST(LaunchedNumbers, AreCheckedOnADevice) { EXPECT_THAT(numbersThatAreFree(device), IsEmpty()); }

/// The exceptions are scalars that an experts kernel receives but does not read.
TEST(LaunchedNumbers, OfExpertsAreCheckedOnADevice) {
  for (const std::string &name : numbersThatAreFree(expertsOnDevice))
    EXPECT_THAT(name,
                testing::AnyOf(StartsWith("choose_experts 4"), StartsWith("find_rows 3"), StartsWith("find_rows 4"),
                               StartsWith("dispatch 0"), StartsWith("dispatch 4"), StartsWith("dispatch 5")));
}

} // namespace
} // namespace espalier
