// The planner's input as plain data: the machine, and the terms that one step costs. The compiler profiles its IR once
// per pattern and fills the terms. The planner only evaluates them. A symbol is a mesh axis or a named dimension. A
// size is a sum of monomials over symbols.
#pragma once

#include "planner/plan.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace espalier::planner {

/// Symbols of monomials: the five axes (symbol = index of Axis), then `batch`, then Problem::dimensions. `batch` is
/// the number of samples of one micro-batch over *all* replicas (microBatchSize * dp * ep). A tensor whose batch
/// dimension is sharded over dp has batch^1 dp^-1. Sharded over all replicas, it has batch^1 dp^-1 ep^-1.
inline constexpr int kBatchSymbol = kAxes;
inline constexpr int kFirstDimension = kAxes + 1;

/// symbol ^ exponent.
struct Power {
  int symbol = 0;
  int exponent = 1;
  bool operator==(const Power &) const = default;
};

/// coefficient * product of powers.
struct Monomial {
  double coefficient = 0;
  std::vector<Power> powers;
  bool operator==(const Monomial &) const = default;
};

/// A sum of monomials. An empty size is zero. Sizes are per rank: negative powers of axes express sharding.
using Size = std::vector<Monomial>;

/// The phase that executes a term. Forward, Backward and Weight run once per micro-batch. Step runs once per step.
/// Recompute runs before backward the terms whose `recomputed` flags are set.
enum class Phase { Forward, Backward, Weight, Step, Recompute };

/// MatMul: `count` products of 2 m n k operations each. Attention: a fused kernel of `operations` operations. Memory:
/// an element-wise kernel or a reduction, bound by its bytes.
enum class ComputeClass { MatMul, Attention, Memory };

/// One kernel or library call on one rank.
struct ComputeTerm {
  std::string name;
  ComputeClass kind = ComputeClass::Memory;
  Phase phase = Phase::Forward;
  Size m, n, k, count;              ///< MatMul only: count products [m, k] x [k, n]
  Size operations;                  ///< Attention only: floating-point operations
  Size bytes;                       ///< read plus written
  bool recomputedSelective = false; ///< executed again before backward under Recompute::Selective
  bool recomputedFull = false;      ///< ... under Recompute::Full
  int position = 0;                 ///< in the program of its phase; Backward and Weight are one program
  bool operator==(const ComputeTerm &) const = default;
};

/// The kinds of communication.
enum class CollectiveKind { AllReduce, AllGather, ReduceScatter, AllToAll, Send };

/// One collective on one rank. `bytes` is the size of the *whole* buffer (the gathered or the reduced tensor), not of
/// one rank's shard. For AllToAll, `bytes` is one rank's buffer, including the chunk that stays local. For Send,
/// `bytes` is what one rank sends.
struct CollectiveTerm {
  std::string name;
  CollectiveKind kind = CollectiveKind::AllReduce;
  Axis axis = Axis::Tp;
  Phase phase = Phase::Forward;
  Size bytes;
  double calls = 1; ///< number of collectives that share the bytes; each pays the latency
  bool recomputedSelective = false;
  bool recomputedFull = false;
  bool ofFrozen = false; ///< gathers frozen parameters, which only ZeRO 3 shards
  /// Axis::Dp only: the group also includes ep. True for gradients of parameters that are not experts'.
  bool overExperts = false;
  /// Axis::Dp only: the group leaves out cp. True for gradients of experts that are spread over cp.
  bool withoutContext = false;
  /// Compute at positions from `start` to `wait` of the same program may overlap with this collective. Equal positions
  /// mean no overlap.
  int start = 0, wait = 0;
  /// Axis::Tp only: transferred in tp parts beside the parts of the product that it feeds or drains, which lies between
  /// `start` and `wait`. The first or last part has no product beside it.
  bool inParts = false;
  bool besideLastBackward = false; ///< Phase::Step: gradient reductions that start as soon as their gradients are final
  bool operator==(const CollectiveTerm &) const = default;
};

/// Parameters of one segment with the same sharding and storage. Adjacent parameters form one bucket.
struct ParameterTerm {
  std::string name;
  Size elements;             ///< on one rank before ZeRO
  double padding = 0;        ///< padding elements that align the start of each parameter
  double shareMultiple = 0;  ///< the shard size (without ZeRO: the total) is a multiple of this; 0: no rounding
  double parameterBytes = 4; ///< per element, as forward reads them
  double gradientBytes = 4;  ///< per element, the accumulator
  double matrices = 0;       ///< above 0: the number of equal matrices, which shards do not split
  bool tied = false;         ///< the head's copy of the embedding: costs nothing if both are on one stage
  double optimizerBytes = 8; ///< per element, masters and state tensors
  bool isFrozen = false;     ///< not trained, so that only ZeRO 3 shards them
  bool expert = false;       ///< of experts that are spread over replicas, so that ZeRO shards over the others only
  double unshardedShare = 1; ///< of parameters that ZeRO shards: the share that is unsharded at once (UnshardedBuffers)
  bool operator==(const ParameterTerm &) const = default;
};

/// A condition on plans: which axes exceed one, and the other properties that change the terms. Empty fields match any
/// plan.
struct Pattern {
  std::optional<bool> dp, tp, cp, ep, sequenceParallel, vocabParallel;
  std::optional<int> zero;
  std::optional<bool> pp;         ///< several stages
  std::optional<int> tensorRanks; ///< exactly this many tensor ranks
  std::optional<bool> splitsExperts, expertsOverContext;
  bool operator==(const Pattern &) const = default;
};

/// The memory of a segment whose weight gradients are actions of their own.
struct WeightTerms {
  PerRecompute<Size> savedBytes;    ///< of PatternTerms::savedBytes, those that the weight gradients read
  PerRecompute<Size> passedBytes;   ///< written by backward for the weight gradients
  PerRecompute<Size> streamBytes;   ///< of PatternTerms::savedBytes, those of the incoming activation
  PerRecompute<bool> readsStream{}; ///< whether the weight gradients read the incoming activation
  /// The sizes of the same names in PatternTerms, for programs with separate weight gradients.
  PerRecompute<std::vector<Size>> workspaceBytes, oneSampleWorkspaceBytes;
  bool operator==(const WeightTerms &) const = default;
};

/// The terms of one segment under plans that match `pattern`. Terms of a program are in program order: compute by
/// position, collectives by start (`orderTerms` of segment.h).
struct PatternTerms {
  Pattern pattern;
  std::vector<ComputeTerm> compute;
  std::vector<CollectiveTerm> collectives;
  std::vector<ParameterTerm> parameters;
  PerRecompute<Size> savedBytes; ///< kept from forward to backward, per micro-batch
  /// More saved under Full when results of tensor-parallel collectives are kept.
  Size keptCollectiveBytes;
  PerRecompute<Size> forwardPeakBytes;  ///< transient bytes while forward runs, beyond what is saved
  PerRecompute<Size> backwardPeakBytes; ///< transient bytes while backward runs (recomputed values included)
  /// Transient bytes of compiled programs: the live bytes at each instruction. The largest entry counts. Instructions
  /// that another instruction exceeds under every plan are omitted.
  PerRecompute<std::vector<Size>> workspaceBytes;
  /// Same for micro-batches of one sample, whose sequences are sliced and concatenated without copies. Empty: no
  /// difference.
  PerRecompute<std::vector<Size>> oneSampleWorkspaceBytes;
  /// Memory under schedules with separate weight gradients. Unset: all saved values are kept until the weight
  /// gradients, which read nothing else.
  std::optional<WeightTerms> weight;
  Size stepBytes;                  ///< live only during the optimizer step, when no forward values are live
  std::vector<Size> stepPeakBytes; ///< transient bytes of work once per step; the largest entry counts
  bool operator==(const PatternTerms &) const = default;
};

/// A kind of segment. The first pattern that matches a plan is used.
struct SegmentKind {
  std::string name;
  std::vector<PatternTerms> patterns;
  int like = -1; ///< an earlier kind whose terms differ only in the operations of attention; -1: none (`findLikeKinds`)
};

/// `count` consecutive layers of one kind.
struct LayerRun {
  int kind = 0; ///< index into Problem::kinds
  int count = 0;
};

/// Buffers of one stage, each of the size of the boundary activation: `always`, `receives` and `sends` for each
/// neighbour, and `sendsInFlight` for each micro-batch in flight if there is a next stage.
struct StreamBuffers {
  double always = 0, receives = 2, sends = 2, sendsInFlight = 0;
  /// Number of upcoming micro-batches whose inputs and activations are received ahead, if that many are left.
  double ahead = 0;
  /// Whether a received activation that backward does not read occupies a buffer until forward has passed it on.
  bool holdsPassedStream = false;
  /// Whether each chunk of a stage has its own buffers, sized for the chunk's own peak. False: chunks share buffers.
  bool ofEachChunk = false;
};

/// Placement of the unsharded parameters and gradients of embedding, head and two layers under ZeRO 3. Unsharded means
/// gathered, or not yet reduced.
enum class UnshardedBuffers {
  Shared,   ///< they share the space of the largest one
  Separate, ///< separate allocations, with two layers of each kind in turn, as the compiler does; ZeRO 2: gradients too
};

/// A constraint: value % (size of axis * factor) must be 0. Example: heads on tp; seq on cp with factor 2 (zigzag). A
/// dimension that only sequence parallelism splits is first split over cp.
struct Divisibility {
  std::string name;
  int64_t value = 1;
  Axis axis = Axis::Tp;
  int factor = 1;
  bool onlySequenceParallel = false;
  bool ofExperts = false; ///< all ranks over which experts are spread split the value: ParallelConfig::expertRanks
};

/// One link level: bytes per second per direction that one device can use, and seconds per message.
struct Link {
  double bytesPerSecond = 0;
  double latencySeconds = 0;
};

/// A host's memory and its link to the devices. Offloading is impossible if bytesPerSecond is 0.
struct HostMemory {
  double bytes = 0;          ///< of one host
  double bytesPerSecond = 0; ///< of one link, each direction
  int devicesPerLink = 1;    ///< devices behind one link, which move at the same time
};

/// The machine: devices, memory and links. The files in configs/clusters give the source of each constant.
struct Machine {
  std::string name;
  int hosts = 1, devicesPerHost = 1;
  int coresPerHost = 0;   ///< of a CPU, which the devices of a host share; 0: each device computes by itself
  double memoryBytes = 0; ///< per device
  double peakFlops = 0;   ///< per second at the compute dtype
  double memoryBytesPerSecond = 0;
  double matmulEfficiency = 1;    ///< share of peakFlops that large aligned matrix products reach, times the gain of
                                  ///< their format
  double attentionEfficiency = 0; ///< the same for fused attention; 0: as matmulEfficiency
  double launchSeconds = 0;       ///< floor of one kernel
  int multiprocessors = 0;        ///< waves of tiles are quantised by it; 0: no quantisation
  Link link, network;             ///< inside a host; between hosts
  double reservedBytes = 0;       ///< context, communicator and allocator overhead per device
  double marginBytes = 0;         ///< left free beside memoryBytes; plans may take it if the user gives it up
  HostMemory host;
  /// Bandwidth of one send to another host, which uses fewer channels than a ring; 0: as the network.
  double sendBytesPerSecond = 0;
  /// Relative slowdown of multi-host rings for each doubling of the hosts, because rings share switches and ports.
  /// Example: 0.06 over 128 hosts makes them 1.42 times as long.
  double ringSlope = 0;
  /// Whether transfers overlap with compute. False if the link's traffic would take the whole memory bandwidth: the
  /// link is then the memory itself, and the cores copy instead of computing.
  bool transfersBesideCompute() const { return 2 * link.bytesPerSecond < memoryBytesPerSecond; }
  /// Whether devices have a link to host memory.
  bool canOffload() const { return host.bytesPerSecond > 0; }
  /// Host memory available to one rank. The ranks of a host get equal shares, wherever stages are placed.
  double hostShareBytes() const { return host.bytes / devicesPerHost; }
  /// Bandwidth between one device and host memory, in each direction, while all devices transfer.
  double hostBytesPerSecond() const {
    return host.bytesPerSecond / (host.devicesPerLink < devicesPerHost ? host.devicesPerLink : devicesPerHost);
  }
  /// Number of devices that take turns on one core, at least 1. Times of one device assume that it has a core.
  double devicesPerCore() const {
    return coresPerHost > 0 ? std::max(1.0, static_cast<double>(devicesPerHost) / coresPerHost) : 1;
  }
  /// Number of devices of all hosts.
  int devices() const { return hosts * devicesPerHost; }
};

/// The orders that software can give to a sequence over context ranks. `Zigzag` names software without another order:
/// its attention is balanced and reads parts in any order. With `Both`, as Espalier has, the plan chooses.
enum class ContextOrders { Contiguous, Zigzag, Both };

/// How freely software assigns recompute to layers.
enum class RecomputeScope {
  Layer,  ///< each layer has its own class
  Prefix, ///< within a chunk, no layer recomputes less than a later one
  Chunk,  ///< all layers are alike, or equally many leading layers of each chunk recompute in full and the others
          ///< nothing
  Model,  ///< all layers are alike
};

/// How software sends tokens to experts on other ranks and back.
struct Dispatch {
  bool oncePerHost = false; ///< a token crosses the network once per host of its experts; else once per choice
  double bytesShare = 1;    ///< of tokens in the compute dtype, the mean over both directions
  double besideShare = 0;   ///< of the transfers that run beside the work of another micro-batch
};

/// The experts of a token.
struct Routing {
  int choices = 0;    ///< experts of a token; 0: unknown
  int groups = 1;     ///< equal groups of experts, in the order of ranks
  int keptGroups = 1; ///< groups among whose experts a token chooses
};

/// How the training software uses the machine. A program marks the compute that may overlap with a collective. The
/// `hidden` fields are the shares of the collective's time that this software overlaps; the rest stalls compute.
struct Software {
  std::string name;
  double hiddenTensor = 1, hiddenContext = 1, hiddenExpert = 1;
  double hiddenGathers = 1;   ///< parameter all-gathers of ZeRO 3
  double hiddenGradients = 1; ///< gradient reductions, in each micro-batch or beside the last backward
  double gatherSeconds = 0;   ///< of each parameter all-gather of ZeRO 3, beside its transfer; never overlapped
  /// Supported features. The search considers plans beyond them only if a pin asks for them.
  PerAxis<bool> lacks{};           ///< axes that it cannot split
  std::vector<int> zeroStages;     ///< empty: all
  std::vector<Schedule> schedules; ///< empty: all
  ContextOrders contextOrders = ContextOrders::Both;
  RecomputeScope recomputeScope = RecomputeScope::Layer;
  bool hasEvenStages = false; ///< all chunks have equally many layers
  Dispatch dispatch;
  bool splitsSequenceOfExperts = false; ///< tensor parallelism with experts requires sequence parallelism
  bool hasWholeExperts = false;         ///< tensor ranks may hold whole experts
  bool hasExpertsOverContext = false;   ///< experts may be spread over context ranks
};

/// Contents that make a step harder to predict than that of a dense model on as many devices as were measured.
enum class Content { Experts, ExpertsOverHosts, ContextOverHosts, HybridShards, MoreDevices, Format };

/// One value per content.
template <typename T> using PerContent = EnumArray<Content, T, 6>;

/// Error of the model against measurements on this machine class and software, as a share of a time. Errors that are
/// common to two plans of one run cancel in the ratio of their steps. `timeError` and `comparisonError` of
/// model/error.h return the errors of a step and of a ratio. Plans that differ by less are equal.
struct ModelError {
  double time = 0;              ///< bound of an 80 % interval of a predicted step, less one; 0: unknown
  PerContent<double> content{}; ///< the same for steps with this content, if it is larger
  int measuredDevices = 0;      ///< most devices of a measured run; 0: no limit
  double comparison = 0; ///< of a ratio of plans with the same axes, which differ in schedule, recompute or micro-batch
  double family = 0;     ///< of a ratio of plans with other axes, if it is larger
  double unmeasured = 0; ///< the same if one of them has more ranks of an axis than `measured`
  PerAxis<int> measured{}; ///< most ranks of an axis in measured runs; 0: no limit
};

/// A format of matrix products that is narrower than the compute dtype. Attention and all other work stay in the
/// compute dtype. The executor has no kernels for such products.
struct MatmulFormat {
  std::string name; ///< fp8_hybrid, fp8_e4m3 or fp4_e2m1; empty: products are in the compute dtype
  double gain = 1;  ///< their speed relative to the compute dtype; Machine::matmulEfficiency includes it
};

/// QK-clip: an update scales the query and key weights of heads whose largest attention score is above the threshold.
struct QkClip {
  double threshold = 0; ///< 0: no QK-clip
  double alpha = 0.5;   ///< exponent of the factor of the queries; the keys have the rest to 1
};

/// A named dimension and its size. Its index gives its symbol.
struct Dimension {
  std::string name;
  int64_t size = 1;
};

/// The complete input of the search. Segments run in the order embed, layers, head. embed is on the first stage and
/// head on the last.
struct Problem {
  std::string name;
  std::vector<Dimension> dimensions; ///< symbol kFirstDimension + index
  std::vector<SegmentKind> kinds;
  int embed = -1, head = -1; ///< kinds of the first and last segment; -1: none
  std::vector<LayerRun> layers;
  /// Bytes of the activation between two stages, per micro-batch and rank. Sequence parallelism splits it over tp.
  Size boundaryBytes;
  bool boundaryScatters = false; ///< send the activation as tp shards; the receiver all-gathers it
  StreamBuffers streamBuffers;
  UnshardedBuffers unshardedBuffers = UnshardedBuffers::Shared;
  Size inputBytes;              ///< tokens and other inputs, per micro-batch in flight, on the stages that read them
  bool layersReadInputs = true; ///< false: only embed and head read them
  std::vector<Divisibility> limits;
  int64_t globalBatch = 1; ///< samples per step
  /// Samples of the steps in which the batch still grows. They consist of the same micro-batches; only `globalBatch` is
  /// priced.
  std::vector<int64_t> smallerBatches;
  double modelFlops = 0; ///< of one sample without recompute, for MFU: forward, and backward when training
  double parameters = 0; ///< elements of the whole model
  int64_t tokensPerSample = 1;
  /// embed and head share weights, so that their gradients are summed over the first and the last stage.
  bool tiedEmbedding = false;
  Size tiedBytes;                 ///< gradient bytes of the shared weight on one rank
  bool zeroCenteredNorms = false; ///< norms multiply by one more than their weights
  Routing routing;
  QkClip qkClip; ///< for exports; the terms of the layers have its collectives
  Machine machine;
  MatmulFormat matmulFormat;
  Software software;
  ModelError error;
  double preferSimple = 0; ///< a simpler plan may be slower than the fastest one by this share; 0: take the fastest
  Pins pins;
  Capability capability;
  /// Number of layers, without embed and head.
  int layerCount() const {
    int count = 0;
    for (const LayerRun &run : layers)
      count += run.count;
    return count;
  }
};

} // namespace espalier::planner
