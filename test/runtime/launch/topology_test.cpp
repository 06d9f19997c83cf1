// Tests the topology that results from each launcher's variables: the ranks, their rendezvous, and the errors.
#include "runtime/launch/topology.h"

#include <gmock/gmock.h>

namespace espalier::rt::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

PlanNeeds cpu(int ranks) { return {ranks, /*isCuda=*/false, "x.plan"}; }
PlanNeeds cuda(int ranks) { return {ranks, /*isCuda=*/true, "x.plan"}; }

Environment torchrun(int rank, int world, int local) {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(world)},
          {"LOCAL_RANK", std::to_string(local)},
          {"LOCAL_WORLD_SIZE", "4"},
          {"GROUP_RANK", std::to_string(rank / 4)},
          {"GROUP_WORLD_SIZE", std::to_string(world / 4)},
          {"MASTER_ADDR", "10.0.0.1"},
          {"MASTER_PORT", "29500"}};
}

Environment mpirun(int rank, int world) {
  return {{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
          {"OMPI_COMM_WORLD_SIZE", std::to_string(world)},
          {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(rank % 2)},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
}

Environment srun(int rank, int local, int node) {
  return {{"SLURM_STEP_ID", "0"},
          {"SLURM_PROCID", std::to_string(rank)},
          {"SLURM_STEP_NUM_TASKS", "8"},
          {"SLURM_LOCALID", std::to_string(local)},
          {"SLURM_STEP_NUM_NODES", "3"},
          {"SLURM_NODEID", std::to_string(node)},
          {"SLURM_STEP_NODELIST", "n[03-05]"},
          {"SLURM_JOB_ID", "40017"},
          {"SLURM_STEP_TASKS_PER_NODE", "3(x2),2"}};
}

std::string refusal(const Environment &environment, const LaunchOptions &options, const PlanNeeds &plan) {
  try {
    findTopology(environment, options, plan);
  } catch (const LaunchError &error) {
    return error.what();
  }
  return "";
}

LaunchOptions nodes(int count, int rank, std::string rendezvous) {
  LaunchOptions options;
  options.nodes = count;
  options.nodeRank = rank;
  options.rendezvous = std::move(rendezvous);
  return options;
}

LaunchOptions table(std::vector<Host> hosts) {
  LaunchOptions options;
  options.table = tableOf(hosts);
  options.tableFile = "t.json";
  return options;
}

TEST(TopologyTest, WithoutALauncherAllRanksAreHere) {
  Topology topology = findTopology({}, {}, cpu(4));
  EXPECT_EQ(topology.launcher, Topology::Alone);
  EXPECT_THAT(topology.ranks, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(topology.rendezvous, "");
}

TEST(TopologyTest, ABatchScriptIsNotASlurmTask) {
  Environment environment = srun(0, 0, 0);
  environment.erase("SLURM_STEP_ID");
  EXPECT_EQ(findTopology(environment, {}, cpu(4)).launcher, Topology::Alone);
}

TEST(TopologyTest, TorchrunStartsAProcessPerRank) {
  Topology topology = findTopology(torchrun(5, 8, 1), {}, cuda(8));
  EXPECT_THAT(topology.ranks, ElementsAre(5));
  EXPECT_THAT(topology.devices, ElementsAre(1));
  EXPECT_EQ(topology.hostRanks, 4);
  EXPECT_EQ(topology.node, 1);
  EXPECT_EQ(topology.nodes, 2);
  // MASTER_PORT itself belongs to torchrun.
  EXPECT_EQ(topology.rendezvous, "10.0.0.1:29501");
  EXPECT_THAT(describe(topology), HasSubstr("world 8 (WORLD_SIZE of torchrun)"));
}

TEST(TopologyTest, MpirunNeedsNoRendezvous) {
  Topology topology = findTopology(mpirun(3, 4), {}, cpu(4));
  EXPECT_EQ(topology.launcher, Topology::Mpi);
  EXPECT_THAT(topology.ranks, ElementsAre(3));
  EXPECT_THAT(topology.devices, ElementsAre(1));
  EXPECT_EQ(topology.hostRanks, 2);
  EXPECT_EQ(topology.rendezvous, "");
}

TEST(TopologyTest, ProcessesOfOneHostMeetUnderTheNameOfTheRun) {
  EXPECT_EQ(findTopology(torchrun(5, 8, 1), {}, cuda(8)).hostRendezvous, "torchrun-29500-");
  EXPECT_EQ(findTopology(srun(7, 1, 2), {}, cpu(8)).hostRendezvous, "srun-40017-0");
  EXPECT_EQ(findTopology({}, {}, cpu(4)).hostRendezvous, "") << "it has all ranks";
}

TEST(TopologyTest, ALauncherOfOneProcessIsIgnored) {
  EXPECT_EQ(findTopology(mpirun(0, 1), {}, cpu(4)).launcher, Topology::Alone);
  Environment job = {{"WORLD_SIZE", "1"}, {"RANK", "0"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}};
  EXPECT_EQ(findTopology(job, {}, cpu(4)).launcher, Topology::Alone);
}

TEST(TopologyTest, SrunCountsTasksOfUnlikeNodes) {
  Topology topology = findTopology(srun(7, 1, 2), {}, cpu(8));
  EXPECT_EQ(topology.launcher, Topology::Slurm);
  EXPECT_EQ(topology.hostRanks, 2);
  EXPECT_EQ(findTopology(srun(3, 0, 1), {}, cpu(8)).hostRanks, 3);
  EXPECT_EQ(topology.rendezvous, "n03:20017");
}

TEST(TopologyTest, AKubernetesJobStartsAProcessPerHost) {
  Environment environment = {{"WORLD_SIZE", "2"}, {"RANK", "1"}, {"MASTER_ADDR", "job-0"}, {"MASTER_PORT", "23456"}};
  Topology topology = findTopology(environment, {}, cuda(8));
  EXPECT_EQ(topology.launcher, Topology::Kubernetes);
  EXPECT_THAT(topology.ranks, ElementsAre(4, 5, 6, 7));
  EXPECT_EQ(topology.rendezvous, "job-0:23456");
}

TEST(TopologyTest, OptionsDescribeNodes) {
  Topology topology = findTopology({}, nodes(2, 1, "10.0.0.1:4000"), cuda(4));
  EXPECT_THAT(topology.ranks, ElementsAre(2, 3));
  EXPECT_THAT(topology.devices, ElementsAre(0, 1));
  EXPECT_EQ(topology.rendezvous, "10.0.0.1:4000");
}

TEST(TopologyTest, ARankTableLocatesRanks) {
  LaunchOptions options = table({{"10.0.0.1", 2, {}}, {"10.0.0.2", 6, {}}});
  options.serverId = "10.0.0.2";
  Topology topology = findTopology({}, options, cuda(8));
  EXPECT_THAT(topology.ranks, ElementsAre(2, 3, 4, 5, 6, 7));
  EXPECT_EQ(topology.rendezvous, "10.0.0.1:20000");
  options.serverId.clear();
  options.deviceRange = "[0,2]";
  EXPECT_THAT(findTopology({}, options, cuda(8)).ranks, ElementsAre(0, 1));
  options.deviceRange.clear();
  options.hostName = "10.0.0.2";
  EXPECT_EQ(findTopology({}, options, cuda(8)).node, 1);
}

TEST(TopologyTest, TablesThatDoNotFitAreRefused) {
  LaunchOptions options = table({{"10.0.0.1", 2, {}}, {"10.0.0.2", 2, {}}});
  EXPECT_THAT(
      refusal({}, options, cuda(4)),
      HasSubstr("does not say which of 10.0.0.1, 10.0.0.2 this host is; `espalier launch --hosts t.json -- run"));
  EXPECT_THAT(refusal({}, options, cuda(8)), HasSubstr("t.json says 4 ranks, x.plan is a plan for 8"));
  options.serverId = "10.0.0.3";
  EXPECT_THAT(refusal({}, options, cuda(4)), HasSubstr("t.json has no server 10.0.0.3"));
  options.serverId.clear();
  options.deviceRange = "[1,3]";
  EXPECT_THAT(refusal({}, options, cuda(4)),
              HasSubstr("no server of t.json has exactly ranks 1 to 2; they have [0,2], [2,4]"));
  options.deviceRange = "[3,1]";
  EXPECT_THAT(refusal({}, options, cuda(4)), HasSubstr("wanted '[8,16]' for ranks 8 to 15"));
  options.nodes = 2;
  options.nodeRank = 0;
  EXPECT_THAT(refusal({}, options, cuda(4)), HasSubstr("--rank-table and --nodes both say"));
}

TEST(TopologyTest, ContradictionsAreRefused) {
  EXPECT_THAT(refusal(torchrun(5, 16, 1), {}, cuda(8)),
              HasSubstr("WORLD_SIZE of torchrun says 16 ranks, x.plan is a plan for 8"));
  EXPECT_THAT(refusal(torchrun(9, 8, 1), {}, cuda(8)), HasSubstr("RANK is 9, wanted 0 to 7, as WORLD_SIZE is 8"));
  EXPECT_EQ(refusal(torchrun(0, 0, 0), {}, {.ranks = 0, .name = ""}), "WORLD_SIZE is 0, wanted a number from 1");
  EXPECT_THAT(refusal(torchrun(5, 8, 7), {}, cuda(8)),
              HasSubstr("LOCAL_RANK is 7, wanted 0 to 3, as this host has 4 ranks"));
  Environment both = torchrun(5, 8, 1);
  both.merge(mpirun(2, 8));
  EXPECT_THAT(refusal(both, {}, cuda(8)), HasSubstr("torchrun gives rank 5 (RANK), mpirun gives rank 2"));
  EXPECT_THAT(refusal(torchrun(5, 8, 1), nodes(2, 0, "a:1"), cuda(8)),
              HasSubstr("--nodes and the variables of torchrun"));
  EXPECT_THAT(refusal({}, nodes(3, 0, "a:1"), cuda(8)), HasSubstr("which 3 nodes cannot share equally"));
  EXPECT_THAT(refusal({}, nodes(2, 2, "a:1"), cuda(8)), HasSubstr("--node-rank 2 of --nodes 2"));
  EXPECT_THAT(refusal({}, nodes(2, 0, ""), cuda(8)), HasSubstr("needs --rendezvous HOST:PORT"));
}

// The rendezvous needs no plan, so that a process with an unreadable plan can report its error there.
TEST(TopologyTest, TheRendezvousNeedsNoPlan) {
  Topology rank = findRendezvous(torchrun(5, 8, 1), {});
  EXPECT_THAT(rank.ranks, ElementsAre(5));
  EXPECT_EQ(rank.process(), 5);
  EXPECT_EQ(rank.processes(), 8);
  EXPECT_EQ(rank.rendezvous, "10.0.0.1:29501");
  EXPECT_FALSE(rank.isOneHost());
  Topology host = findRendezvous({}, nodes(3, 2, "10.0.0.1:4000"));
  EXPECT_EQ(host.process(), 2);
  EXPECT_EQ(host.processes(), 3);
  EXPECT_EQ(host.rendezvous, "10.0.0.1:4000");
  LaunchOptions options = table({{"10.0.0.1", 2, {}}, {"10.0.0.2", 6, {}}});
  options.serverId = "10.0.0.2";
  EXPECT_EQ(findRendezvous({}, options).process(), 1);
  EXPECT_EQ(findRendezvous({}, options).processes(), 2);
  EXPECT_TRUE(findRendezvous({}, {}).isOneHost());
}

TEST(TopologyTest, HalfOfAnOptionIsRefused) {
  LaunchOptions options;
  options.nodeRank = 1;
  EXPECT_THAT(refusal({}, options, cuda(8)), HasSubstr("--node-rank needs --nodes, how many"));
  LaunchOptions server;
  server.serverId = "a";
  EXPECT_THAT(refusal({}, server, cuda(8)), HasSubstr("--server-id needs --rank-table"));
}

TEST(TopologyTest, ReportsBrokenVariables) {
  Environment environment = torchrun(0, 4, 0);
  environment["WORLD_SIZE"] = "four";
  EXPECT_THAT(refusal(environment, {}, cuda(4)), HasSubstr("WORLD_SIZE is \"four\", wanted a number"));
  environment = torchrun(0, 4, 0);
  environment.erase("MASTER_ADDR");
  EXPECT_THAT(refusal(environment, {}, cuda(4)), HasSubstr("MASTER_ADDR is not set"));
  environment = mpirun(0, 4);
  environment.erase("OMPI_COMM_WORLD_SIZE");
  EXPECT_THAT(
      refusal(environment, {}, cpu(4)),
      HasSubstr("OMPI_COMM_WORLD_RANK is set, as by mpirun, but OMPI_COMM_WORLD_SIZE is not; start this by mpirun, "
                "or unset OMPI_COMM_WORLD_RANK"));
  environment = srun(0, 0, 0);
  environment.erase("SLURM_STEP_NODELIST");
  EXPECT_THAT(refusal(environment, {}, cuda(8)), HasSubstr("SLURM_STEP_NODELIST is not set"));
  Environment job = {{"WORLD_SIZE", "2"}, {"RANK", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}};
  EXPECT_THAT(refusal(job, {}, cuda(8)), HasSubstr("RANK is 2, wanted 0 to 1, as WORLD_SIZE is 2"));
  job["RANK"] = "1";
  job.erase("MASTER_PORT");
  EXPECT_THAT(refusal(job, {}, cuda(8)), HasSubstr("MASTER_PORT is not set"));
}

TEST(TopologyTest, CpuRanksOfSeveralHostsNeedMpi) {
  EXPECT_THAT(refusal({}, nodes(2, 0, "a:1"), cpu(8)), HasSubstr("mpirun -np 8 --host HOST:4,... espalier run x.plan"));
}

} // namespace
} // namespace espalier::rt::launch
