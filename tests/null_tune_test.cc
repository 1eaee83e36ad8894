// Whole tunes, parent and worker as they are, with the null driver in the place of NVIDIA's
// libraries: what they do without a GPU, and what every error that a call of theirs may return
// does to them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "null_cuda.h"
#include "store/store.h"
#include "support/files.h"
#include "support/subprocess.h"

namespace lapidary {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const std::string kProgram = LAPIDARY_BUILD_DIR "/bin/lapidary";

struct Tuned {
  RunOutput run;
  nlohmann::json json;  // null unless it is one
  int winners = 0, stored = 0, problems = 0;
};

class NullTune : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(folder_) << folder_.error(); }
  std::string path(const std::string& name) const { return (folder_->path() / name).string(); }

  /// `lapidary WORDS --device cuda:0` with the null driver; `name` tells runs apart that share no
  /// store, state or lock.
  Result<RunOutput> lapidary(const std::string& name, const std::string& fault,
                             std::vector<std::string> words,
                             const std::vector<std::string>& settings = {}) const {
    std::filesystem::create_directories(path(name));
    std::vector<std::string> argv = {"env",
                                     "LAPIDARY_LIBCUDA=" LAPIDARY_NULL_CUDA,
                                     "LAPIDARY_CUBLASLT=" LAPIDARY_NULL_CUDA,
                                     "LAPIDARY_NVML=" LAPIDARY_NULL_CUDA,
                                     "LAPIDARY_STORE=" + path(name) + "/store.db",
                                     "LAPIDARY_LOCKS=" + path(name),
                                     "NULL_CUDA_L2=65536",
                                     "NULL_CUDA_STATE=" + path(name) + "/state"};
    if (!fault.empty()) argv.push_back("NULL_CUDA_FAULT=" + fault);
    argv.insert(argv.end(), settings.begin(), settings.end());
    argv.push_back(kProgram);
    argv.insert(argv.end(), words.begin(), words.end());
    return run_process(argv, "", std::chrono::seconds(60));
  }

  /// Products on cuda:0, one for each of `m` ("8,24" are two).
  Tuned tune(const std::string& name, const std::string& fault = "",
             const std::string& m = "8,24") const {
    Tuned tuned;
    auto run = lapidary(name, fault,
                        {"tune", "--m", m, "--n", "32", "--k", "64", "--a", "bf16", "--b", "bf16",
                         "--device", "cuda:0", "--rounds", "7", "--json", "-q"});
    EXPECT_TRUE(run) << run.error();
    if (!run) return tuned;
    tuned.run = *run;
    tuned.json = nlohmann::json::parse(run->out, nullptr, false);
    if (tuned.json.is_discarded()) {
      tuned.json = nullptr;
      return tuned;
    }
    for (const auto& problem : tuned.json.at("problems")) {
      ++tuned.problems;
      tuned.winners += problem.at("winner").is_object();
      tuned.stored += problem.at("winner").is_object() && problem.at("tune_seconds") == 0;
    }
    return tuned;
  }

  Result<TempFolder> folder_ = TempFolder::make();
};

TEST_F(NullTune, TunesProvesAndRemembers) {
  const Tuned first = tune("plain");
  ASSERT_EQ(first.run.state.code, 0) << first.run.err;
  EXPECT_EQ(first.winners, 2) << first.run.out;
  EXPECT_EQ(first.json["device"]["id"], "cuda:0");
  for (const auto& problem : first.json["problems"])
    EXPECT_EQ(problem["winner"]["backend"], "cublaslt");
  const Tuned again = tune("plain");
  EXPECT_EQ(again.stored, 2) << again.run.err;
  const null_cuda::StateFile state(path("plain") + "/state");
  ASSERT_TRUE(state);
  EXPECT_EQ(state.left(), "");
  EXPECT_EQ(state.misuses(), "");
  EXPECT_GT(state->calls, 100u);
}

TEST_F(NullTune, TheFirstGpuIsTheDefaultAndTheCpuWithoutOne) {
  const auto device_of = [&](const std::string& name, const std::vector<std::string>& settings) {
    const auto run =
        lapidary(name, "", {"tune", "--m", "4", "--n", "8", "--k", "8", "--json", "-q"}, settings);
    EXPECT_TRUE(run) << run.error();
    const auto json = nlohmann::json::parse(run->out, nullptr, false);
    EXPECT_FALSE(json.is_discarded()) << run->err;
    return json.is_discarded() ? "" : json["device"]["id"].get<std::string>();
  };
  EXPECT_EQ(device_of("gpu", {}), "cuda:0");
  EXPECT_EQ(device_of("none", {"NULL_CUDA_DEVICES=0"}), "cpu");
  EXPECT_EQ(device_of("asked", {"LAPIDARY_DEVICE=cpu"}), "cpu");
  const auto second =
      lapidary("second", "", {"tune", "--m", "4", "--n", "8", "--k", "8", "--device", "cuda:1"});
  ASSERT_TRUE(second);
  EXPECT_EQ(second->state.code, 2);
  EXPECT_THAT(second->err, HasSubstr("cuda:1 is not there; this machine has cuda:0"));
}

TEST_F(NullTune, DoctorSaysWhatIsThere) {
  const auto run = lapidary("doctor", "", {"doctor"});
  ASSERT_TRUE(run);
  EXPECT_EQ(run->state.code, 0) << run->err;
  EXPECT_THAT(run->out, HasSubstr("cuda driver       ok"));
  EXPECT_THAT(run->out, HasSubstr("cuda:0            ok       Null GPU"));
  EXPECT_THAT(run->out, HasSubstr("cublaslt        ok       cuBLASLt"));
  const auto none = lapidary("none", "", {"doctor"}, {"LAPIDARY_LIBCUDA=/no/libcuda.so"});
  ASSERT_TRUE(none);
  EXPECT_EQ(none->state.code, 0);
  EXPECT_THAT(none->out, HasSubstr("cuda driver       missing  no NVIDIA driver"));
  EXPECT_THAT(none->out, HasSubstr("set LAPIDARY_LIBCUDA"));
}

/// One tune with a fault at one call, and what must hold whatever the call was.
void expect_survived(const Tuned& broken, const Tuned& after, const null_cuda::StateFile& state,
                     const std::string& fault, int products) {
  SCOPED_TRACE(fault + " in " + std::string(state.fault_symbol()));
  EXPECT_EQ(broken.run.state.signal, 0) << "crashed or hung: " << broken.run.err;
  EXPECT_THAT(broken.run.out, Not(HasSubstr("SIG"))) << "its worker crashed";
  EXPECT_THAT(broken.run.err, Not(HasSubstr("SIG"))) << "its worker crashed";
  if (broken.run.state.code == 0) {
    EXPECT_EQ(broken.winners, products) << broken.run.out;
  } else {
    EXPECT_THAT(broken.run.state.code, ::testing::AnyOf(1, 3, 5)) << broken.run.err;
    EXPECT_THAT(broken.run.err + broken.run.out,
                ::testing::AnyOf(HasSubstr("lapidary: "), HasSubstr("\"reason\"")));
  }
  // Nothing is lost: what had a winner has it still, and the rest gets one.
  EXPECT_EQ(after.run.state.code, 0) << after.run.err << after.run.out;
  EXPECT_EQ(after.winners, products) << after.run.out;
  EXPECT_GE(after.stored, broken.winners);
  EXPECT_EQ(state.left(), "") << "left behind";
  EXPECT_EQ(state.misuses(), "");
}

/// Every `step`-th call of a whole tune of the products `m` fails in turn, with an ordinary error
/// and with one that ends the context.
class NullFaults : public NullTune {
 protected:
  void sweep(std::uint64_t step, const std::string& m, int products) {
    tune("count", "", m);
    const null_cuda::StateFile counted(path("count") + "/state");
    ASSERT_TRUE(counted);
    const std::uint64_t calls = counted->calls;
    ASSERT_GT(calls, 100u);
    std::vector<std::string> faults;
    for (std::uint64_t call = 1; call <= calls; call += step) {
      // 1 is an invalid value to all three libraries; 2, 14 are theirs for want of memory or worse;
      // 700 ends a context.
      for (const char* code : {"1", "700"})
        faults.push_back(std::to_string(call) + ":error=" + code);
    }
    std::atomic<std::size_t> next{0};
    std::size_t fired = 0;
    std::mutex mutex;
    const auto work = [&] {
      for (std::size_t i = next++; i < faults.size(); i = next++) {
        const std::string name = "fault" + std::to_string(i);
        const Tuned broken = tune(name, faults[i], m);
        const null_cuda::StateFile state(path(name) + "/state");
        // How soon slow candidates drop out is a matter of time, so that one tune makes a few calls
        // fewer than another: a call near the end of the one counted may not come.
        const bool came = state && state.fired();
        const Tuned after = came ? tune(name, faults[i], m) : Tuned{};  // a fault comes once
        const std::lock_guard lock(mutex);
        ASSERT_TRUE(state);
        fired += came;
        if (came) {
          expect_survived(broken, after, state, faults[i], products);
        } else {
          EXPECT_EQ(broken.winners, products) << faults[i] << ": " << broken.run.err;
        }
        std::filesystem::remove_all(path(name));
      }
    };
    std::vector<std::thread> threads;
    // A tune mostly waits: for its worker, and for a card to rest.
    for (unsigned i = 0; i < 4 * std::max(1u, std::thread::hardware_concurrency()); ++i)
      threads.emplace_back(work);
    for (std::thread& thread : threads) thread.join();
    std::printf("%zu faults over the %llu calls of a tune of %d products, %zu fired\n",
                faults.size(), static_cast<unsigned long long>(calls), products, fired);
    EXPECT_GE(fired, faults.size() * 19 / 20);
  }
};

TEST_F(NullFaults, ACallThatFailsIsSurvived) { sweep(97, "8,24", 2); }

using SlowNullFaults = NullFaults;
TEST_F(SlowNullFaults, EveryCallThatFailsIsSurvived) { sweep(1, "8", 1); }

TEST_F(NullTune, ACallThatHangsCostsAtMostTwelveSeconds) {
  // The first wait for a graph: the candidate's own work.
  const auto start = std::chrono::steady_clock::now();
  const Tuned hung = tune("hang", "cuEventSynchronize#1:hang");
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_EQ(hung.run.state.code, 0) << hung.run.err;
  EXPECT_EQ(hung.winners, 2) << hung.run.out;
  EXPECT_GT(seconds, 10);
  EXPECT_LT(seconds, 14);  // the tune itself among them
}

TEST_F(NullTune, ASlowDriverIsNoHang) {
  const Tuned slow = tune("slow", "cuModuleLoadData#1:delay=3000");
  EXPECT_EQ(slow.run.state.code, 0) << slow.run.err;
  EXPECT_EQ(slow.winners, 2);
}

}  // namespace
}  // namespace lapidary
