#include "runtime/verify/summary.h"

#include "runtime/verify/limits.h"

#include <algorithm>

namespace espalier::rt::verify {
namespace {

class Summarizer {
public:
  Summarizer(const Routine &routine, const std::vector<ValueInfo> &values, const std::vector<std::string> &regionNames,
             PlanErrors &errors);

  Summary summarize();

private:
  void playStep(const Step &step);
  void compute(const Step &step);
  void square(const Step &step, const Operand &operand);
  void start(const Step &step);
  void wait(const Step &step);
  void checkDisjoint(const Step &step);
  void checkUpdate(const Step &step);
  void checkShare(const Step &step);
  void read(const Step &step, const Operand &operand, uint32_t queue = noQueue);
  bool checkFree(const Step &step, const Operand &operand, uint32_t queue = noQueue);
  void addTo(const Step &step, const Operand &operand);
  void goOnOnce(const Step &step, const Operand &sum);
  void write(const Operand &operand, uint32_t version);
  void touch(const Operand &operand);
  void collectGives();

  const ValueInfo &info(const Operand &operand) const { return values[operand.value]; }
  /// Returns the first of the bucket's elements that a rank accesses, the number that all ranks access, and the axes
  /// that shard them.
  std::tuple<int64_t, int64_t, Axes> elementsOf(const Operand &operand) const {
    const ValueInfo &known = info(operand);
    return {(operand.span.begin - operand.origin) / known.width,
            (operand.span.end - operand.span.begin) / known.width * known.shares, operand.span.part | known.share};
  }
  /// The gradient that a value derives from.
  struct Origin {
    uint32_t bucket = 0;
    std::tuple<int64_t, int64_t, Axes> elements;
    bool operator==(const Origin &) const = default;
  };
  std::optional<Origin> originOf(const Step &step) const;
  void deriveResults(const Step &step, const std::optional<Origin> &origin);
  bool isSum(const Operand &operand) const { return info(operand).isSum; }
  ByteState &stateOf(const Operand &operand) { return states[static_cast<size_t>(operand.region)]; }
  std::string placeOf(const Operand &operand) const {
    return fmt::format("bytes {} to {} of {}", operand.span.begin, operand.span.end,
                       regionNames[static_cast<size_t>(operand.region)]);
  }
  template <typename... Args> void add(const Step &step, fmt::format_string<Args...> format, Args &&...args) {
    errors.add(routine.name(step.instruction) + ": " + fmt::format(format, std::forward<Args>(args)...));
  }

  const Routine &routine;
  const std::vector<ValueInfo> &values;
  const std::vector<std::string> &regionNames;
  PlanErrors &errors;
  std::vector<ByteState> states; ///< by region
  std::map<uint32_t, Step> open; ///< in-flight transfers, by transfer
  /// The terms that are complete and whose inputs have not changed since. Each entry has the sum and the addresses of
  /// the term's inputs.
  std::vector<std::pair<uint32_t, std::vector<std::pair<int, Span>>>> counted;
  std::set<std::tuple<int, int64_t, int64_t, Axes, uint32_t, int32_t>> needed;
  std::vector<std::pair<int, Operand>> leftOver; ///< as Summary.leftOver
  std::map<uint32_t, Origin> derived;            ///< by value; of updates of matrices, which take several instructions
  Summary summary;
};

Summarizer::Summarizer(const Routine &routine, const std::vector<ValueInfo> &values,
                       const std::vector<std::string> &regionNames, PlanErrors &errors)
    : routine(routine), values(values), regionNames(regionNames), errors(errors) {
  Content found;
  found.kind = Content::Found;
  states.assign(regionNames.size(), ByteState(std::numeric_limits<int64_t>::max() / 2, found));
  summary.touched.resize(states.size());
}

Summary Summarizer::summarize() {
  for (const Step &step : routine.steps)
    playStep(step);
  for (const auto &[transfer, step] : open)
    add(step, "its transfer is not waited for in the same subprogram");
  summary.leftOver = std::move(leftOver);
  collectGives();
  return std::move(summary);
}

void Summarizer::playStep(const Step &step) {
  for (const Operand &operand : step.operands)
    touch(operand);
  switch (step.kind) {
  case Step::Compute:
    return compute(step);
  case Step::Start:
    return start(step);
  case Step::Wait:
    return wait(step);
  }
}

void Summarizer::touch(const Operand &operand) {
  Touched &touched = summary.touched[static_cast<size_t>(operand.region)];
  bool isFirst = touched.begin == touched.end;
  touched.begin = isFirst ? operand.span.begin : std::min(touched.begin, operand.span.begin);
  touched.end = std::max(touched.end, operand.span.end);
  touched.isWritten |= operand.access != Access::Read;
}

/// Checks that the written operands of one instruction overlap no other operand, because an instruction does not define
/// the order of its reads and writes.
void Summarizer::checkDisjoint(const Step &step) {
  for (size_t i = 0; i < step.operands.size(); ++i)
    for (size_t j = 0; j < step.operands.size(); ++j) {
      const Operand &written = step.operands[i], &other = step.operands[j];
      bool isPair = written.access != Access::Read && i != j && (other.access == Access::Read || i < j);
      if (!isPair || written.region != other.region || !written.span.overlaps(other.span))
        continue;
      bool mayLieThere = i < step.over.size() && (step.over[i] >> j & 1) && written.span == other.span;
      if (!mayLieThere)
        add(step, "writes {} while operand {} is at bytes {} to {} there", placeOf(written), j, other.span.begin,
            other.span.end);
    }
}

void Summarizer::compute(const Step &step) {
  checkDisjoint(step);
  checkUpdate(step);
  checkShare(step);
  for (const Operand &operand : step.operands) {
    bool isContinued = operand.access == Access::Update && isSum(operand);
    bool isAddition = operand.access == Access::Add || operand.access == Access::AddUnlessFirst;
    if (operand.access == Access::Read || operand.access == Access::Update || (isAddition && !isSum(operand)))
      if (!isContinued)
        read(step, operand);
    if (step.squares > 0 && operand.access == Access::Read)
      square(step, operand);
  }
  for (const Operand &operand : step.operands)
    if (operand.access != Access::Read && checkFree(step, operand)) {
      if (operand.access != Access::Write && isSum(operand))
        addTo(step, operand);
      else if (isSum(operand))
        add(step, "writes over a sum at {}", placeOf(operand));
      else if (operand.access == Access::AddUnlessFirst)
        add(step, "adds to {} but in the first micro-batch, and no bucket's gradient is there", placeOf(operand));
      else
        write(operand, 1);
      if (step.isGenerated && operand.access == Access::Write && info(operand).part == ValueInfo::None)
        leftOver.emplace_back(step.instruction, operand);
    }
}

/// Records squares for the gradient norm. Squares must be in the order of buckets, and of addresses in a bucket,
/// because another order gives different bits.
void Summarizer::square(const Step &step, const Operand &operand) {
  auto turnOf = [&](const Operand &squared) { return std::pair(info(squared).bucket, squared.span.begin); };
  if (!summary.squares.empty() && turnOf(operand) < turnOf(summary.squares.back().operand))
    add(step, "squares {} behind those of a later bucket", placeOf(operand));
  summary.squares.push_back({operand, step.squares});
}

/// Returns the gradient that the results of a step derive from: a gradient that the step reads, or that of the values
/// that it reads. Returns nothing if there are none or several.
std::optional<Summarizer::Origin> Summarizer::originOf(const Step &step) const {
  std::optional<Origin> origin;
  for (const Operand &operand : step.operands) {
    const ValueInfo &known = info(operand);
    auto found = derived.find(known.root);
    bool isGradient = known.part == ValueInfo::Gradient || known.part == ValueInfo::Total;
    if (operand.access != Access::Read || (!isGradient && found == derived.end()))
      continue;
    Origin own = isGradient ? Origin{known.bucket, elementsOf(operand)} : found->second;
    if (origin && *origin != own)
      return std::nullopt;
    origin = own;
  }
  return origin;
}

/// Records the origin of the temporary values that a step writes.
void Summarizer::deriveResults(const Step &step, const std::optional<Origin> &origin) {
  bool isOfMatrices = std::ranges::any_of(step.operands, [&](const Operand &operand) {
    return info(operand).isOfMatrices || derived.contains(info(operand).root);
  });
  for (const Operand &operand : step.operands)
    if (operand.access != Access::Read && info(operand).part == ValueInfo::None) {
      derived.erase(info(operand).root);
      if (isOfMatrices && origin)
        derived.emplace(info(operand).root, *origin);
    }
}

/// Checks that an update writes the values and state of a bucket from the same elements of the bucket's gradient. If
/// the optimizer needs whole matrices, an update may write temporary values and read those that derive from the
/// gradient.
void Summarizer::checkUpdate(const Step &step) {
  const Operand *written = nullptr;
  std::optional<Origin> origin = originOf(step);
  bool hasGradient = false;
  for (const Operand &operand : step.operands) {
    ValueInfo::Part part = info(operand).part;
    bool isKept = part == ValueInfo::Stored || part == ValueInfo::State;
    if (isKept && operand.access != Access::Read)
      written = written && info(*written).part == ValueInfo::Stored ? written : &operand;
    hasGradient |= operand.access == Access::Read && (part == ValueInfo::Gradient || part == ValueInfo::Total);
  }
  deriveResults(step, origin);
  if (!written)
    return;
  bool isOfMatrices = info(*written).isOfMatrices;
  summary.updatedBuckets.insert(info(*written).bucket);
  for (const Operand &operand : step.operands)
    if (info(operand).part != ValueInfo::None && info(operand).bucket != info(*written).bucket)
      return add(step, "updates one bucket with what belongs to another");
  if (!origin || !(hasGradient || isOfMatrices))
    return add(step, "updates a bucket without its gradient");
  if (origin->bucket != info(*written).bucket)
    return add(step, "updates one bucket with what belongs to another");
  for (const Operand &operand : step.operands)
    if (operand.access != Access::Read && info(operand).part != ValueInfo::Stored &&
        info(operand).part != ValueInfo::State && !(isOfMatrices && info(operand).part == ValueInfo::None))
      add(step, "updates a bucket and writes {} besides", placeOf(operand));
  if (info(*written).part == ValueInfo::Stored && elementsOf(*written) != origin->elements)
    add(step, "updates other elements of a bucket than it has the gradient of");
}

/// Checks that a sharded accumulator adds the same shard of the gradient that was reduced over the ranks for one
/// micro-batch.
void Summarizer::checkShare(const Step &step) {
  for (const Operand &sum : step.operands) {
    bool isAdded = sum.access == Access::Add || sum.access == Access::AddUnlessFirst;
    if (!isAdded || info(sum).part != ValueInfo::Gradient || info(sum).share == 0)
      continue;
    auto isTerm = [&](const Operand &operand) {
      return operand.access == Access::Read && info(operand).part == ValueInfo::Total &&
             info(operand).isPerMicroBatch && info(operand).bucket == info(sum).bucket &&
             elementsOf(operand) == elementsOf(sum);
    };
    if (std::ranges::none_of(step.operands, isTerm))
      add(step, "adds to {} without the same share of a micro-batch's gradient", placeOf(sum));
  }
}

void Summarizer::read(const Step &step, const Operand &operand, uint32_t queue) {
  std::erase_if(leftOver, [&](const auto &left) { return info(left.second).root == info(operand).root; });
  bool isFound = false, isHere = false, isUnlike = false;
  auto isGood = [&](const Content &content) {
    if (content.kind == Content::Found)
      return isFound = true;
    isHere = true;
    isUnlike = content.instance.value != info(operand).root || content.instance.layer != operand.layer;
    return content.kind == Content::Ready && !isUnlike &&
           (operand.value == info(operand).root || content.tag == info(operand).tag) &&
           content.origin + operand.valueBegin <= operand.span.begin &&
           operand.span.end <= content.origin + operand.valueEnd;
  };
  auto fault = stateOf(operand).check(operand.span, isGood, queue);
  if (fault && fault->kind == Fault::Written)
    return add(step, "touches {} while a transfer is in flight there", placeOf(operand));
  if (fault && fault->kind == Fault::OtherCut)
    return add(step, "touches {} in other parts than they were written in", placeOf(operand));
  if (fault)
    return add(step, "reads {}, which holds another value at byte {}", placeOf(operand), fault->byte);
  if (isFound && isHere)
    return add(step, "reads {}, of which only a piece was written before", placeOf(operand));
  auto key =
      std::tuple(operand.region, operand.span.begin, operand.span.end, operand.span.part, operand.value, operand.layer);
  if (isFound && needed.insert(key).second)
    summary.needs.push_back(operand);
}

bool Summarizer::checkFree(const Step &step, const Operand &operand, uint32_t queue) {
  if (!stateOf(operand).free(operand.span, queue))
    return true;
  add(step, "touches {} while a transfer is in flight there", placeOf(operand));
  return false;
}

/// Records an addition to a sum; the simulation of the entry counts the runs. A subprogram adds at most once to a sum
/// of the stage, because nothing would define the order of two additions. Squares are an exception. An update of a sum
/// continues a term that an addition has begun.
void Summarizer::addTo(const Step &step, const Operand &operand) {
  auto isUntouched = [](const Content &content) { return content.kind == Content::Found; };
  if (stateOf(operand).check(operand.span, isUntouched))
    return add(step, "adds to {}, where this subprogram has written something else", placeOf(operand));
  if (operand.access == Access::Update)
    goOnOnce(step, operand);
  else if (info(operand).layering == ValueInfo::OfStage && summary.squares.empty() &&
           std::ranges::count(summary.terms, operand.value, &Operand::value) > 0)
    add(step, "adds to {}, to which this subprogram has added before", placeOf(operand));
  for (const Operand &beside : step.operands)
    if (beside.access == Access::Write && info(operand).layering == ValueInfo::OfBucket)
      leftOver.emplace_back(step.instruction, beside);
  summary.terms.push_back(operand);
}

/// Checks that no term is continued twice with the same inputs. The simulation counts only the additions that begin a
/// term.
void Summarizer::goOnOnce(const Step &step, const Operand &sum) {
  std::vector<std::pair<int, Span>> sources;
  for (const Operand &operand : step.operands)
    if (operand.access == Access::Read)
      sources.emplace_back(operand.region, operand.span);
  std::pair term(sum.value, std::move(sources));
  if (std::ranges::find(counted, term) != counted.end())
    return add(step, "adds to {} what was added before", placeOf(sum));
  counted.push_back(std::move(term));
}

void Summarizer::write(const Operand &operand, uint32_t version) {
  ByteState &state = stateOf(operand);
  Content content;
  content.kind = Content::Ready;
  content.instance = {info(operand).root, operand.layer, 0};
  content.tag = info(operand).tag;
  content.origin = operand.origin;
  // The version counts writes. Slices that were written a different number of times often stay separate intervals.
  std::erase_if(counted, [&](const auto &term) {
    return std::ranges::any_of(term.second, [&](const auto &source) {
      return source.first == operand.region && source.second.overlaps(operand.span);
    });
  });
  state.change(operand.span, [&](int64_t, Content &old) {
    uint32_t writes = old.kind == Content::Ready ? old.version : 0;
    old = content;
    old.version = writes + version;
  });
}

void Summarizer::start(const Step &step) {
  summary.transfers.push_back(step.transfer);
  if (!open.emplace(step.transfer, step).second)
    return add(step, "its transfer is started twice");
  if (open.size() > static_cast<size_t>(maxOpen))
    add(step, "{} transfers in flight, at most {} are possible", open.size(), maxOpen);
  for (const Operand &operand : step.operands)
    if (operand.access == Access::Read)
      read(step, operand, step.queue);
  deriveResults(step, originOf(step));
  for (size_t i = 0; i < step.operands.size(); ++i) {
    const Operand &to = step.operands[i];
    if (to.access != Access::Write || !checkFree(step, to, step.queue))
      continue;
    if (isSum(to))
      add(step, "writes over a sum at {}", placeOf(to));
    for (const Operand &from : step.operands)
      if (from.access == Access::Read && from.region == to.region && from.span.overlaps(to.span) && to.span.part)
        stateOf(to).set({to.span.begin, to.span.end, 0}, {});
    write(to, 1);
  }
  for (const Operand &operand : step.operands)
    stateOf(operand).open({operand.span.begin, operand.span.end, 0}, operand.access != Access::Read, step.queue);
}

void Summarizer::wait(const Step &step) {
  auto found = open.find(step.transfer);
  if (found == open.end())
    return add(step, "waits for a transfer that was not started");
  for (const Operand &operand : found->second.operands)
    stateOf(operand).close({operand.span.begin, operand.span.end, 0}, operand.access != Access::Read);
  open.erase(found);
}

void Summarizer::collectGives() {
  for (size_t region = 0; region < states.size(); ++region)
    states[region].forEach([&](Span span, const Content &content) {
      if (content.kind == Content::Ready)
        summary.gives.push_back({static_cast<int>(region), span, content.instance.value, content.instance.layer,
                                 content.origin, content.tag, content.version});
      else if (content.kind == Content::Undefined && span.begin >= 0 &&
               span.end < std::numeric_limits<int64_t>::max() / 2)
        summary.clobbers.push_back({static_cast<int>(region), span});
    });
}

} // namespace

Summary summarize(const Routine &routine, const std::vector<ValueInfo> &values,
                  const std::vector<std::string> &regionNames, PlanErrors &errors) {
  return Summarizer(routine, values, regionNames, errors).summarize();
}

void dropUnwanted(std::vector<Summary> &summaries, const std::vector<bool> &isWanted,
                  const std::vector<ValueInfo> &values) {
  for (Summary &summary : summaries) {
    std::vector<Give> kept;
    for (const Give &give : summary.gives) {
      if (isWanted[give.value] || values[give.value].part != ValueInfo::None) {
        kept.push_back(give);
        continue;
      }
      std::vector<Clobber> &clobbers = summary.clobbers;
      Span span = {give.span.begin, give.span.end, 0};
      if (!clobbers.empty() && clobbers.back().region == give.region && clobbers.back().span.end == span.begin)
        clobbers.back().span.end = span.end;
      else
        clobbers.push_back({give.region, span});
    }
    summary.gives = std::move(kept);
  }
}

} // namespace espalier::rt::verify
