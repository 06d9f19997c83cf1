// Rule K for kernels that stand for library calls: the sizes and origins in their scalars follow from the names of
// dimensions, as those of the calls do.
#include "runtime/verify/dims.h"

#include <algorithm>

namespace espalier::rt::verify {
namespace {

class Space {
public:
  Space(const pb::Plan &plan, const Mesh &mesh, const pb::Launch &launch)
      : shapes(plan, mesh), launch(launch), kernel(plan.kernels(static_cast<int>(launch.kernel()))) {}

  /// What is wrong with the launch, or nothing.
  std::string fault();

private:
  std::string faultOfScalars() const;
  std::string faultOfSizes() const;
  pb::Affine wanted(pb::Kernel::Scalar use, const pb::Affine &found) const;
  int64_t scalar(int index) const { return launch.scalars(index).constant(); }

  Shapes shapes;
  const pb::Launch &launch;
  const pb::Kernel &kernel;
  Dims space; ///< of the table or the queries
};

std::string Space::fault() {
  int sums = launch.buffers_size() / 2;
  if (kernel.shape() == "reduce_parts" && (launch.scalars_size() == 0 || scalar(0) != sums))
    return fmt::format("has the parts of {} sums, as many as scalar 0 must say", sums);
  auto isLess = [&](const pb::Buffer &buffer) { return shapes.isLess(buffer); };
  if (kernel.space() == 0 || std::ranges::any_of(launch.buffers(), isLess))
    return ""; // rule E's bytes are all that is known
  std::optional<Dims> dims = shapes.of(launch.buffers(static_cast<int>(kernel.space()) - 1));
  if (!dims || dims->empty())
    return fmt::format("buffer {} says where the launch's rows begin, and its value has no dims", kernel.space() - 1);
  space = *dims;
  std::string found = faultOfSizes();
  return found.empty() ? faultOfScalars() : found;
}

/// What a scalar must be; `found` where only the launch knows.
pb::Affine Space::wanted(pb::Kernel::Scalar use, const pb::Affine &found) const {
  switch (use) {
  case pb::Kernel::SEED: {
    pb::Affine seed;
    seed.set_seed(1);
    return seed;
  }
  case pb::Kernel::STREAM: {
    pb::Affine stream = constant(found.constant());
    stream.set_layer(256);
    return stream;
  }
  case pb::Kernel::FIRST_SAMPLE:
  case pb::Kernel::FIRST_ROW:
    return shapes.origin(space.front());
  case pb::Kernel::FIRST_HEAD:
    return firstHead(shapes, space);
  case pb::Kernel::WHOLE_SEQUENCE:
    return constant(shapes.whole(space[1]));
  case pb::Kernel::FIRST_QUERY:
    return shapes.origin(space[1]);
  default:
    return found;
  }
}

std::string Space::faultOfScalars() const {
  for (int i = 0; i < std::min(kernel.uses_size(), launch.scalars_size()); ++i) {
    const pb::Affine &found = launch.scalars(i);
    pb::Kernel::Scalar use = kernel.uses(i);
    bool isOfQueries = use >= pb::Kernel::FIRST_HEAD && use <= pb::Kernel::FIRST_QUERY;
    if (isOfQueries && space.size() < 4)
      return fmt::format("scalar {} belongs to queries, which {} is not", i, textOf(space));
    if (pb::Affine right = wanted(use, found); !isSame(found, right))
      return fmt::format("scalar {} is {}, it must be {}", i, textOf(found), textOf(right));
    if (use == pb::Kernel::STREAM && (found.constant() < 0 || found.constant() > 255))
      return fmt::format("scalar {} names op {} of a layer, of 256", i, found.constant());
  }
  return "";
}

/// Scalars that are sizes say what the dims of the operands say.
std::string Space::faultOfSizes() const {
  if (!kernel.shape().starts_with("attention"))
    return "";
  std::optional<Dims> keys = launch.buffers_size() > 1 ? shapes.of(launch.buffers(1)) : std::nullopt;
  if (launch.scalars_size() < 6 || space.size() < 4 || space.size() > 5 || !keys || keys->size() != 4)
    return fmt::format("queries {} are not those of attention", textOf(space));
  Dims ofHeads(space.begin() + 2, space.end() - 1);
  int64_t heads = elementsOf(ofHeads), kvHeads = std::max<int64_t>((*keys)[2].size, 1);
  int64_t sizes[] = {space[0].size, space[1].size, (*keys)[1].size, kvHeads, heads / kvHeads, space.back().size};
  for (int i = 0; i < 6; ++i)
    if (scalar(i) != sizes[i])
      return fmt::format("scalar {} is {}, queries {} and keys {} give {}", i, scalar(i), textOf(space), textOf(*keys),
                         sizes[i]);
  return "";
}

} // namespace

std::string faultOfSpace(const pb::Plan &plan, const Mesh &mesh, const pb::Launch &launch) {
  return Space(plan, mesh, launch).fault();
}

} // namespace espalier::rt::verify
