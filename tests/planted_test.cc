// Whole tunes with a worker that has wrong, crashing, hanging and slow kernels among its own: the
// run goes on, the costs stay within their limits, and none of them ever wins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "driver/cpu.h"
#include "store/store.h"
#include "support/files.h"
#include "support/subprocess.h"
#include "tuner/tune.h"
#include "worker/client.h"
#include "worker/protocol.h"

namespace lapidary {
namespace {

using std::chrono::steady_clock;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class Planted : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(folder_) << folder_.error();
    ::setenv("LAPIDARY_LOCKS", folder_->path().c_str(), 1);
  }

  struct Outcome {
    TuneResult result;
    double seconds = 0;
  };

  /// Tunes 24 x 40 x 72 with the portable kernels and the given plants.
  Outcome tune(const std::string& plants) {
    worker::Client client(
        {.program = LAPIDARY_BUILD_DIR "/bin/planted-worker",
         // A crash shall be one, also in a build with ASan.
         .extra_env = {"LAPIDARY_PLANTED=" + plants, "ASAN_OPTIONS=handle_segv=0"}});
    const auto problem = checked({.m = 24, .n = 40, .k = 72, .a = DType::bf16, .b = DType::bf16});
    EXPECT_TRUE(problem) << problem.error();
    EXPECT_TRUE(client.hello()) << client.hello().error();
    const auto start = steady_clock::now();
    const auto result = tuner::tune(*problem, {client, *store_, driver::cpu_info()},
                                    {.keep = 30, .rotate_bytes = 1 << 20, .retune = true});
    EXPECT_TRUE(result) << result.error();
    return {*result, std::chrono::duration<double>(steady_clock::now() - start).count()};
  }

  static const Measurement& row(const TuneResult& result, const std::string& plant) {
    static const Measurement kNone;
    for (const Measurement& m : result.candidates) {
      if (m.candidate == Candidate{"planted", {{"plant", plant}}}) return m;
    }
    ADD_FAILURE() << "no row of " << plant;
    return kNone;
  }

  Result<TempFolder> folder_ = TempFolder::make();
  std::unique_ptr<store::Store> store_ = store::open_memory();
};

TEST_F(Planted, ACrashCostsAtMostTwoSecondsAndIsQuarantined) {
  const double without = tune("right").seconds;
  const Outcome with = tune("crashes");
  ASSERT_TRUE(with.result.winner);
  EXPECT_EQ(with.result.winner->candidate.backend, "portable");
  EXPECT_EQ(row(with.result, "crashes").status, CandidateStatus::failed);
  EXPECT_THAT(row(with.result, "crashes").reason, HasSubstr("SIGSEGV"));
  EXPECT_LE(with.seconds - without, 2.0);
  RecordProperty("crash_ms", static_cast<int>(1000 * (with.seconds - without)));
  // Its key is in the store: the next tune does not touch it.
  EXPECT_THAT(row(tune("crashes").result, "crashes").reason, HasSubstr("quarantined: "));
}

TEST_F(Planted, AHangCostsAtMostTwelveSecondsAndIsQuarantined) {
  const double without = tune("right").seconds;
  const Outcome with = tune("hangs");
  ASSERT_TRUE(with.result.winner);
  EXPECT_EQ(with.result.winner->candidate.backend, "portable");
  EXPECT_EQ(row(with.result, "hangs").status, CandidateStatus::failed);
  EXPECT_THAT(row(with.result, "hangs").reason, HasSubstr("no sign of life for 10.0 s"));
  EXPECT_LE(with.seconds - without, 12.0);
  RecordProperty("hang_ms", static_cast<int>(1000 * (with.seconds - without)));
  EXPECT_THAT(row(tune("hangs").result, "hangs").reason, HasSubstr("quarantined: "));
}

TEST_F(Planted, AWorkerEndsWithItsParentEvenWhenItHangs) {
  auto worker = Subprocess::spawn({.argv = {LAPIDARY_BUILD_DIR "/bin/planted-worker"},
                                   .extra_env = {"LAPIDARY_PLANTED=hangs"},
                                   .pipe_stdin = true,
                                   .pipe_stdout = true});
  ASSERT_TRUE(worker) << worker.error();
  const auto problem = checked({.m = 4, .n = 4, .k = 4});
  ASSERT_TRUE(worker::send_frame(
      worker->stdin_fd(),
      worker::encode(worker::Request{.ask = worker::Ask::open, .problem = text(*problem)})));
  ASSERT_TRUE(worker::send_frame(
      worker->stdin_fd(),
      worker::encode(worker::Request{.ask = worker::Ask::prepare,
                                     .candidate = {"planted", {{"plant", "hangs"}}}})));
  EXPECT_FALSE(worker->wait(steady_clock::now() + std::chrono::milliseconds(500)))
      << "it should hang";
  worker->close_stdin();
  EXPECT_TRUE(worker->wait(steady_clock::now() + std::chrono::seconds(5)));
}

TEST_F(Planted, ASlowOneNeverWins) {
  const Outcome outcome = tune("slow");
  EXPECT_GE(row(outcome.result, "slow").time_us.value_or(0), 50e3);
  EXPECT_EQ(outcome.result.winner->candidate.backend, "portable");
}

TEST_F(Planted, AWrongOneThatLeadsIsARowWithItsReason) {
  // The budget of rounds is short and the wrong ones are offered first, so several lead before they
  // are proved wrong.
  const Outcome outcome = tune("unwritten,nan_to_zero");
  ASSERT_TRUE(outcome.result.winner);
  EXPECT_EQ(outcome.result.winner->candidate.backend, "portable");
  // The default is always judged: the first plant is that, as its predicted time is 0.
  ASSERT_TRUE(outcome.result.candidates.size() > 2);
  int wrong = 0;
  for (const Measurement& m : outcome.result.candidates) {
    if (m.status != CandidateStatus::wrong) continue;
    ++wrong;
    EXPECT_EQ(m.candidate.backend, "planted");
    // What was left of another's outputs may show before it is verified.
    EXPECT_THAT(m.reason, AnyOf(HasSubstr("--verify-seed 1"), HasSubstr("outputs differ")));
  }
  EXPECT_GE(wrong, 1);
}

}  // namespace
}  // namespace lapidary
