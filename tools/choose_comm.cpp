// What started this process decides where nothing is said. A launcher of a single process is none.
#include "tools/choose_comm.h"

#include "runtime/launch/topology.h"
#include "runtime/mesh.h"

#include <fmt/format.h>

namespace espalier {
namespace {

using namespace rt::launch;

/// Whether something started this process as one of several.
bool isOneOfSeveral(const Environment &environment) {
  for (const char *name : {"OMPI_COMM_WORLD_SIZE", "WORLD_SIZE", "SLURM_STEP_NUM_TASKS"})
    if (auto found = environment.find(name); found != environment.end() && found->second != "1")
      return environment.contains("OMPI_COMM_WORLD_RANK") || environment.contains("RANK") ||
             environment.contains("SLURM_PROCID");
  return false;
}

/// Of a plan for GPUs: a process for each rank, but threads where one process has to see all tensors.
rt::Comm namedCudaComm(const CommWords &words, const rt::pb::Plan &plan, const std::string &file,
                       const rt::RunOptions &options) {
  if (words.comm == "mpi")
    throw rt::PlanError(
        fmt::format("{} is a plan for {}, whose ranks talk over NCCL; leave out --comm mpi", file, plan.target()));
  bool isAlone = rt::Mesh(plan.mesh()).ranks() == 1 || options.keepGradients || options.keepParameters;
  if (words.comm == "local" || (isAlone && !words.processes && words.comm.empty()))
    return rt::Comm::local;
  return rt::Comm::shm;
}

rt::Comm namedComm(const CommWords &words, bool isLaunched) {
  if (words.processes && !words.comm.empty() && words.comm != "shm")
    throw rt::PlanError(fmt::format("--processes means --comm shm, not --comm {}; give one of them", words.comm));
  if (words.processes || words.comm == "shm")
    return rt::Comm::shm;
  if (words.comm == "mpi" || (words.comm.empty() && isLaunched))
    return rt::Comm::mpi;
  return rt::Comm::local;
}

} // namespace

std::string chooseComm(const CommWords &words, const rt::pb::Plan &plan, const std::string &file,
                       rt::RunOptions &options) {
  bool isCuda = plan.target() != "cpu";
  Environment environment = environmentOfProcess();
  bool isLaunched = !isCuda && isOneOfSeveral(environment);
  if (!isCuda && words.comm == "nccl")
    throw rt::PlanError(fmt::format("--comm nccl is for plans for CUDA, {} is one for {}", file, plan.target()));
  options.comm = isCuda ? namedCudaComm(words, plan, file, options) : namedComm(words, isLaunched);
  if (options.comm == rt::Comm::mpi && !isLaunched)
    throw rt::PlanError(fmt::format("--comm mpi takes the processes that mpirun or srun starts: mpirun -np {} espalier "
                                    "run {} ...",
                                    rt::Mesh(plan.mesh()).ranks(), file));
  if (!isLaunched)
    return "";
  if (options.comm != rt::Comm::mpi)
    throw rt::PlanError(
        fmt::format("a launcher started several processes, and each would run all ranks of {}; leave out "
                    "{} or the launcher",
                    file, words.processes ? "--processes" : "--comm " + words.comm));
  Topology topology =
      findTopology(environment, {}, {.ranks = rt::Mesh(plan.mesh()).ranks(), .isCuda = false, .name = file}, 0);
  if (topology.launcher != Topology::Mpi && topology.launcher != Topology::Slurm)
    throw rt::PlanError(
        fmt::format("{} is a plan for CPUs: its ranks are processes of mpirun or srun, or of this command "
                    "with --processes; of other launchers they cannot be",
                    file));
  options.hostRanks = topology.hostRanks;
  options.log = topology.ranks.front() == 0;
  return describe(topology);
}

} // namespace espalier
