// The planner's input as plain data: what one step costs, as terms over dimension and axis sizes,
// and the machine. The compiler fills it by profiling its own IR, once per pattern; the planner
// only evaluates. Notation: a symbol is a mesh axis or a named dimension; sizes are sums of
// monomials over symbols.
#pragma once

#include "planner/plan.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace espalier::planner {

/// Mesh axes, outermost first in the mesh order pp, dp, cp, ep, tp (tp varies fastest).
enum class Axis { Pp, Dp, Cp, Ep, Tp };
inline constexpr int kAxes = 5;
template <typename T> using PerAxis = EnumArray<Axis, T, kAxes>;

/// Symbols of monomials: the five axes (symbol = index of Axis), then `batch`, then
/// Problem::dimensions. `batch` is the samples of one micro-batch over *all* replicas
/// (microBatchSize * dp * ep); a tensor whose batch is split over dp therefore has batch^1 dp^-1, and
/// one whose batch is split over all replicas batch^1 dp^-1 ep^-1.
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

/// A sum of monomials; empty is zero. Sizes are per rank: the powers of axes hold the splitting.
using Size = std::vector<Monomial>;

/// When a term is executed. Forward, Backward and Weight once per micro-batch, Step once per step;
/// Recompute only where its `recomputed` flags say so, before backward.
enum class Phase { Forward, Backward, Weight, Step, Recompute };

/// MatMul: m, n, k, batch products of 2 m n k operations. Attention: fused, `operations` given.
/// Memory: element-wise and reductions, costs its bytes.
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

enum class CollectiveKind { AllReduce, AllGather, ReduceScatter, AllToAll, Send };

/// One collective on one rank. `bytes` is the size of the *whole* buffer (the gathered result, the
/// tensor that is reduced), not of one rank's part; for AllToAll one rank's buffer, of which it keeps
/// its own part, and for Send what one rank sends.
struct CollectiveTerm {
  std::string name;
  CollectiveKind kind = CollectiveKind::AllReduce;
  Axis axis = Axis::Tp;
  Phase phase = Phase::Forward;
  Size bytes;
  double calls = 1; ///< how many collectives share the bytes (latency is paid for each)
  bool recomputedSelective = false;
  bool recomputedFull = false;
  /// Axis::Dp only: the group is all replicas, ep among them. Gradients of what is not an expert's.
  bool overExperts = false;
  /// Compute at positions from `start` to before `wait` of the same program may run beside it; none where they are
  /// equal.
  int start = 0, wait = 0;
  bool besideLastBackward = false; ///< Phase::Step: sums of gradients that start as soon as these are final
  bool operator==(const CollectiveTerm &) const = default;
};

/// Parameters of one segment that are split and stored alike; of those that lie side by side, one bucket.
struct ParameterTerm {
  std::string name;
  Size elements;             ///< on one rank before ZeRO
  double padding = 0;        ///< elements left free so that each parameter begins at a round one
  double shareMultiple = 0;  ///< elements of a ZeRO share, or of all, are a multiple of so many; 0: of one
  double parameterBytes = 4; ///< per element, what forward reads
  double gradientBytes = 4;  ///< per element, the accumulator
  bool tied = false;         ///< the head's copy of the embedding: free where both are on one stage
  double optimizerBytes = 8; ///< per element, masters and moments
  bool expert = false;       ///< split over ep: ZeRO has only the other axes of samples left for it
  double unshardedShare = 1; ///< how much of it is unsharded at once, of what ZeRO shards (UnshardedBuffers)
  bool operator==(const ParameterTerm &) const = default;
};

/// Which axes exceed one, and what else changes the terms. An empty field matches any value.
struct Pattern {
  std::optional<bool> dp, tp, cp, ep, sequenceParallel, vocabParallel;
  std::optional<int> zero;
  std::optional<bool> pp;         ///< several stages
  std::optional<int> tensorRanks; ///< exactly this many tensor ranks
  bool operator==(const Pattern &) const = default;
};

/// What one segment costs under plans that match `pattern`. Terms of a program stand in its order: compute by position,
/// collectives by start (`orderTerms` of segment.h).
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
  /// Transient bytes of compiled programs: what lives at their instructions, of which the largest counts. Instructions
  /// where less lives than at another one, whatever the plan, are left out.
  PerRecompute<std::vector<Size>> workspaceBytes;
  /// The same for micro-batches of one sample: their sequences are cut and joined without copies. Empty: no difference.
  PerRecompute<std::vector<Size>> oneSampleWorkspaceBytes;
  Size stepBytes;                  ///< held only while the step runs, when nothing of forward is
  std::vector<Size> stepPeakBytes; ///< transients of what runs once per step, of which the largest counts
  bool operator==(const PatternTerms &) const = default;
};

/// A kind of segment; the first pattern that matches a plan is used.
struct SegmentKind {
  std::string name;
  std::vector<PatternTerms> patterns;
};

/// `count` successive layers of one kind.
struct LayerRun {
  int kind = 0; ///< index into Problem::kinds
  int count = 0;
};

/// Buffers of the stream's size on one stage: `always`, for each neighbour, and, with a next stage,
/// for each micro-batch in flight.
struct StreamBuffers {
  double always = 0, receives = 2, sends = 2, sendsInFlight = 0;
  /// Inputs and streams received for so many micro-batches that are not begun yet, if there are as many to come.
  double ahead = 0;
  /// Where backward does not read the stream that came in, it takes a buffer until forward has passed it on.
  bool holdsPassedStream = false;
  /// Chunks of a stage share no room: each holds what it alone has at its fullest moment, and has buffers of its own.
  bool ofEachChunk = false;
};

/// Where embedding, head and two layers have their unsharded parameters and gradients under ZeRO 3: gathered and not
/// yet reduced.
enum class UnshardedBuffers {
  Shared,   ///< in the room that the largest of them takes
  Separate, ///< in places of their own, two layers of each kind in turn; so does the compiler, ZeRO 2 with gradients
};

/// value % (size of axis * factor) must be 0. Example: heads on tp; seq on cp with factor 2
/// (zigzag). What only sequence parallelism splits is split over cp first.
struct Divisibility {
  std::string name;
  int64_t value = 1;
  Axis axis = Axis::Tp;
  int factor = 1;
  bool onlySequenceParallel = false;
  bool timesTensorRanks = false; ///< the axis and tp together split it
};

/// A link level: bytes per second and direction that one device can use, seconds per message.
struct Link {
  double bytesPerSecond = 0;
  double latencySeconds = 0;
};

/// Memory of a host and the link to it from its devices. Without bytes per second nothing can be offloaded.
struct HostMemory {
  double bytes = 0;          ///< of one host
  double bytesPerSecond = 0; ///< of one link, each direction
  int devicesPerLink = 1;    ///< devices behind one link, which move at the same time
};

/// What a machine has and reaches; where each constant comes from stands in configs/clusters.
struct Machine {
  std::string name;
  int hosts = 1, devicesPerHost = 1;
  double memoryBytes = 0; ///< per device
  double peakFlops = 0;   ///< per second at the compute dtype
  double memoryBytesPerSecond = 0;
  double matmulEfficiency = 1;    ///< share of peakFlops that large aligned matrix products reach
  double attentionEfficiency = 0; ///< the same for fused attention; 0: as matmulEfficiency
  double launchSeconds = 0;       ///< floor of one kernel
  int multiprocessors = 0;        ///< waves of tiles are quantised by it; 0: no quantisation
  Link link, network;             ///< inside a host; between hosts
  double reservedBytes = 0;       ///< context, communicator and allocator overhead per device
  double marginBytes = 0;         ///< left free beside memoryBytes; plans may take it if the user gives it up
  HostMemory host;
  /// One rank's send to another host, which uses fewer channels than a ring; 0: as the network.
  double sendBytesPerSecond = 0;
  /// How much longer collectives over hosts take with each doubling of them, as a share: switches and ports are shared
  /// with other rings. Example: 0.06 over 128 hosts make it 1.42 times as long.
  double ringSlope = 0;
  /// Whether a device transfers beside its compute: not where reading and writing what the link moves would take all of
  /// the memory's bandwidth. There the link is that memory, and cores copy through it instead of computing.
  bool transfersBesideCompute() const { return 2 * link.bytesPerSecond < memoryBytesPerSecond; }
  bool canOffload() const { return host.bytesPerSecond > 0; }
  /// What one rank may keep in its host's memory: the ranks of a host have equal shares, wherever stages lie.
  double hostShareBytes() const { return host.bytes / devicesPerHost; }
  /// Between one device and host memory, each direction, while all devices move.
  double hostBytesPerSecond() const {
    return host.bytesPerSecond / (host.devicesPerLink < devicesPerHost ? host.devicesPerLink : devicesPerHost);
  }
  int devices() const { return hosts * devicesPerHost; }
};

/// What the software that runs a plan makes of its machine. Programs say which compute may run beside a collective;
/// these are the shares of its time that the software is known to run there. The rest stalls the compute.
struct Software {
  std::string name;
  double hiddenTensor = 1, hiddenContext = 1, hiddenExpert = 1;
  double hiddenGathers = 1;   ///< of ZeRO 3's parameters
  double hiddenGradients = 1; ///< sums of gradients, in each micro-batch or beside the last backward
  /// What it has: plans beyond it are looked at only where pins ask for them.
  PerAxis<bool> lacks{};           ///< axes that it cannot split
  int mostZero = 3;                ///< highest ZeRO stage
  std::vector<Schedule> schedules; ///< empty: all
};

/// How far the model is from measurements on machines of this class under this software, as shares of a time.
struct ModelError {
  double time = 0; ///< of a predicted step; 0: not known
  /// Of the ratio of two steps of one run, in which what both plans share cancels: plans that differ by less are equal.
  double comparison = 0;
  /// Whether a step is as short as the fastest one, as far as the model can tell.
  bool isEqual(double seconds, double fastestSeconds) const { return seconds <= fastestSeconds * (1 + comparison); }
};

/// A named dimension and its size, at the position that gives its symbol.
struct Dimension {
  std::string name;
  int64_t size = 1;
};

/// Everything the search needs. Layers run embed, runs of blocks, head; embed is on the first
/// stage, head on the last.
struct Problem {
  std::string name;
  std::vector<Dimension> dimensions; ///< symbol kFirstDimension + index
  std::vector<SegmentKind> kinds;
  int embed = -1, head = -1; ///< kinds of the first and last segment; -1: none
  std::vector<LayerRun> layers;
  /// The stream between two stages, per micro-batch and rank; with sequence parallelism it is split
  /// over tp.
  Size boundaryBytes;
  bool boundaryScatters = false; ///< the stream is sent in tp parts and gathered by the receiver
  StreamBuffers streamBuffers;
  UnshardedBuffers unshardedBuffers = UnshardedBuffers::Shared;
  Size inputBytes;              ///< tokens and the like, per micro-batch in flight, on the stages that read them
  bool layersReadInputs = true; ///< else embed and head alone do
  std::vector<Divisibility> limits;
  int64_t globalBatch = 1; ///< samples per step
  double modelFlops = 0;   ///< of one sample without recompute, for MFU: forward and, where it trains, backward
  double parameters = 0;   ///< elements of the whole model
  int64_t tokensPerSample = 1;
  /// Embed and head share weights: their gradients are summed over stages.
  bool tiedEmbedding = false;
  Size tiedBytes; ///< gradient bytes of the shared weight on one rank
  Machine machine;
  Software software;
  ModelError error;
  Pins pins;
  Capability capability;
  int layerCount() const {
    int count = 0;
    for (const LayerRun &run : layers)
      count += run.count;
    return count;
  }
};

} // namespace espalier::planner
