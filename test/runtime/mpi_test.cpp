// Tests errors that only OpenMPI's back end reports.
#include "runtime/comm/mpi.h"
#include "runtime/comm/mpi_library.h"
#include "test/runtime/comm_back_ends.h"

#include <gmock/gmock.h>

namespace espalier::rt {
namespace {

class Mpi : public testing::Test {
protected:
  void SetUp() override {
    if (std::string why = mpiLacks(); !why.empty())
      GTEST_SKIP() << why;
  }
};

/// Returns the message that `work` throws.
template <typename Error> std::string refusalOf(const std::function<void()> &work) {
  try {
    work();
  } catch (const Error &error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(MpiLibrary, ReportsAMissingLibrary) {
  EXPECT_THAT(refusalOf<PlanError>([] { MpiLibrary("libmpi_of_nobody.so"); }),
              testing::StartsWith("running over MPI needs OpenMPI: libmpi_of_nobody.so: cannot open"));
}

TEST(MpiLibrary, RejectsOtherImplementations) {
  EXPECT_EQ(refusalOf<PlanError>([] { MpiLibrary("libc.so.6"); }),
            "running over MPI needs OpenMPI: libc.so.6 lacks MPI_Init_thread");
}

TEST_F(Mpi, BeginsOnce) {
  EXPECT_FALSE(runMpi(1, [](Communicator &) {
    EXPECT_EQ(refusalOf<std::runtime_error>([] { MpiWorld(); }),
              "MPI was initialized in this process before and cannot be initialized twice");
  }));
}

TEST_F(Mpi, LimitsTheNumberOfChannels) {
  EXPECT_FALSE(runMpi(2, [](Communicator &comm) {
    EXPECT_EQ(refusalOf<PlanError>([&] { comm.openSend(1 - comm.rank(), 65536); }),
              "MPI supports at most 65536 channels; the plan has channel 65536");
  }));
}

TEST_F(Mpi, ReportsInvalidCalls) {
  std::optional<Failure> failure = runMpi(1, [](Communicator &comm) {
    int value = 0;
    Ticket ticket = comm.startSend(comm.openSend(/*peer=*/5, 0), &value, sizeof value);
    EXPECT_EQ(comm.poll(ticket), Progress::Stopped);
  });
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->message, "MPI refuses a send: MPI_ERR_RANK: invalid rank");
}

/// MPI truncates a message that is too long, so the error cannot give its size.
TEST_F(Mpi, RejectsTooLongMessages) {
  std::optional<Failure> failure = runMpi(2, [](Communicator &comm) {
    std::byte *place = comm.allocate(64);
    Ticket ticket = comm.rank() == 0 ? comm.startSend(comm.openSend(1, 0), place, 12)
                                     : comm.startReceive(comm.openReceive(0, 0), place, 8);
    if (comm.rank() == 0)
      ticket = comm.startReceive(comm.openReceive(1, 1), place, 8); // this message never arrives
    EXPECT_THROW(comm.wait(ticket, 10), RankStopped);
  });
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 1);
  EXPECT_EQ(failure->message, "rank 0 sends more where rank 1 receives 8");
}

} // namespace
} // namespace espalier::rt
