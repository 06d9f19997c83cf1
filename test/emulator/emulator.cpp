#include "test/emulator/emulator.h"

#include <algorithm>

#include "test/emulator/block.h"
#include "test/emulator/ptx.h"

namespace espalier::emulator {
namespace {

std::string placed(const std::string &kernel, uint32_t line, const std::string &what) {
  std::string place = kernel.empty() ? "PTX" : "kernel " + kernel;
  return place + (line ? ", line " + std::to_string(line) : "") + ": " + what;
}

uint64_t volume(const Dim &dim) { return uint64_t(dim.x) * dim.y * dim.z; }

void checkLaunch(const Launch &launch, const Entry &entry) {
  auto refuse = [&](const std::string &what) { throw Fault(Fault::Check::launch, launch.entry, 0, what); };
  uint64_t threads = volume(launch.block);
  if (threads == 0 || volume(launch.grid) == 0)
    refuse("launch of an empty grid or block");
  if (threads > 1024)
    refuse("block of " + std::to_string(threads) + " threads, a device has 1024");
  if (launch.grid.y > 65535 || launch.grid.z > 65535)
    refuse("grid of " + std::to_string(launch.grid.y) + " x " + std::to_string(launch.grid.z) +
           " blocks in y and z, a device has 65535");
  if (entry.maxThreads && threads > entry.maxThreads)
    refuse("block of " + std::to_string(threads) + " threads, .maxntid is " + std::to_string(entry.maxThreads));
  if (entry.requiredThreads && threads != entry.requiredThreads)
    refuse("block of " + std::to_string(threads) + " threads, .reqntid is " + std::to_string(entry.requiredThreads));
  if (entry.sharedBytes > 48 * 1024)
    refuse("kernel has " + std::to_string(entry.sharedBytes) + " bytes of static shared memory, at most 49152");
  if (entry.sharedBytes + launch.sharedBytes > 227 * 1024)
    refuse("block of " + std::to_string(entry.sharedBytes + launch.sharedBytes) +
           " bytes of shared memory, a device has 232448");
  if (launch.arguments.size() != entry.parameters.size())
    refuse("launch with " + std::to_string(launch.arguments.size()) + " arguments, the kernel has " +
           std::to_string(entry.parameters.size()));
}

std::vector<std::byte> packArguments(const Launch &launch, const Entry &entry) {
  std::vector<std::byte> block;
  for (size_t i = 0; i < entry.parameters.size(); ++i) {
    const Parameter &parameter = entry.parameters[i];
    block.resize(parameter.offset + parameter.bytes);
    std::memcpy(block.data() + parameter.offset, &launch.arguments[i], std::min(parameter.bytes, 8u));
  }
  return block;
}

} // namespace

Fault::Fault(Check check, std::string kernel, uint32_t line, const std::string &what)
    : std::runtime_error(placed(kernel, line, what)), check(check), kernel(kernel), line(line) {}

Module::Module(std::unique_ptr<Program> program) : program(std::move(program)) {}
Module::~Module() = default;
Module::Module(Module &&) noexcept = default;
Module &Module::operator=(Module &&) noexcept = default;

Module Module::parse(std::string_view text) { return Module(std::make_unique<Program>(parseProgram(text))); }

std::vector<EntryInfo> Module::entries() const {
  std::vector<EntryInfo> infos;
  for (const auto &[name, entry] : program->entries) {
    EntryInfo info{.name = name,
                   .sharedBytes = entry.sharedBytes,
                   .localBytes = entry.localBytes,
                   .maxThreads = std::max(entry.maxThreads, entry.requiredThreads),
                   .registers = entry.registers};
    for (const Parameter &parameter : entry.parameters)
      info.parameterBytes.push_back(parameter.bytes);
    infos.push_back(std::move(info));
  }
  return infos;
}

uint32_t Module::target() const { return program->target; }
uint32_t Module::version() const { return program->version; }

void Module::check(const Launch &launch) const {
  auto found = program->entries.find(launch.entry);
  if (found == program->entries.end())
    throw Fault(Fault::Check::launch, launch.entry, 0, "no such kernel in the text");
  checkLaunch(launch, found->second);
}

Report Module::launch(const Launch &launch, Memory &memory) const {
  check(launch);
  const Entry &entry = program->entries.at(launch.entry);
  Grid grid{.entry = entry, .launch = launch, .memory = memory, .parameters = packArguments(launch, entry)};
  for (uint32_t z = 0; z < launch.grid.z; ++z)
    for (uint32_t y = 0; y < launch.grid.y; ++y)
      for (uint32_t x = 0; x < launch.grid.x; ++x)
        Block(grid, {x, y, z}).run();
  Report report{grid.instructions, grid.touches.reads(), grid.touches.writes()};
  Range both = grid.touches.wronglyNonCoherent();
  if (both.begin < both.end)
    throw Fault(Fault::Check::race, entry.name, grid.nonCoherentLine,
                "ld.global.nc reads memory that the kernel writes: " + memory.describe(both.begin));
  return report;
}

} // namespace espalier::emulator
