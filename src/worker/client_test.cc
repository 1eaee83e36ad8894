// The parent's end of a worker against programs that are none, frames that are broken, and a device
// that is taken.
#include "worker/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <thread>

#include "support/files.h"
#include "worker/lock.h"
#include "worker/protocol.h"

namespace lapidary::worker {
namespace {

using ::testing::HasSubstr;

class ClientTest : public ::testing::Test {
 protected:
  /// A worker made of a shell script.
  Client client(const std::string& script) {
    const auto path = folder_->path() / "worker";
    EXPECT_TRUE(write_file(path, "#!/bin/sh\n" + script + "\n"));
    ::chmod(path.c_str(), 0755);
    return Client({.program = path, .extra_env = {}});
  }
  Result<TempFolder> folder_ = TempFolder::make();
};

TEST_F(ClientTest, AWorkerThatEndsAtOnceIsADeviceFaultEveryTime) {
  Client dead = client("exit 3");
  for (int i = 0; i < 2; ++i) {
    const Result<Reply> hello = dead.hello();
    ASSERT_FALSE(hello);
    EXPECT_EQ(hello.error().code, ErrorCode::device_fault);
    EXPECT_THAT(hello.error().message, HasSubstr("exit code 3"));
    EXPECT_FALSE(dead.lives());
  }
}

TEST_F(ClientTest, AProgramThatTalksOtherwiseIsNoWorker) {
  Client stranger = client("echo 'hello, I am no worker at all'; sleep 5");
  EXPECT_FALSE(stranger.hello());
  EXPECT_FALSE(stranger.lives());
}

TEST_F(ClientTest, AHelloThatFailsLeavesNothingBehind) {
  // A well-formed error as the only answer.
  Reply no;
  no.error = Error{ErrorCode::resource_limit, "no room here"};
  const auto frame = folder_->path() / "frame";
  std::array<int, 2> ends;
  ASSERT_EQ(::pipe(ends.data()), 0);
  ASSERT_TRUE(send_frame(ends[1], encode(no)));
  ::close(ends[1]);
  std::string bytes(4096, '\0');
  const ssize_t got = ::read(ends[0], bytes.data(), bytes.size());
  ::close(ends[0]);
  ASSERT_GT(got, 0);
  bytes.resize(static_cast<std::size_t>(got));
  ASSERT_TRUE(write_file(frame, bytes));
  Client refused = client("cat " + frame.string() + "; sleep 5");
  for (int i = 0; i < 2; ++i) {
    const Result<Reply> hello = refused.hello();
    ASSERT_FALSE(hello);
    EXPECT_EQ(hello.error().message, "no room here");
    EXPECT_FALSE(refused.lives());
  }
}

TEST_F(ClientTest, InterruptionIsSeenWhileTheWorkerTalksWithoutPause) {
  bool stop = false;
  Reply beat;
  beat.beat = "still at it";
  const auto path = folder_->path() / "beats";
  const std::uint32_t head[2] = {0x4c504400u | kProtocolVersion,
                                 static_cast<std::uint32_t>(encode(beat).size())};
  ASSERT_TRUE(write_file(path, std::string(reinterpret_cast<const char*>(head), 8) + encode(beat)));
  const auto script = folder_->path() / "worker";
  ASSERT_TRUE(write_file(script, "#!/bin/sh\nwhile :; do cat " + path.string() + "; done\n"));
  ::chmod(script.c_str(), 0755);
  int beats = 0;
  Client chatty({.program = script,
                 .extra_env = {},
                 .on_beat = [&](std::string_view) { stop = ++beats > 20; },
                 .cancelled = [&] { return stop; }});
  const Result<Reply> hello = chatty.hello();
  ASSERT_FALSE(hello);
  EXPECT_EQ(hello.error().code, ErrorCode::cancelled);
}

TEST(Protocol, WhatIsSaidIsWhatIsHeard) {
  const Request request{
      .ask = Ask::verify,
      .problem = R"({"m":1})",
      .candidate = {"onednn", {{"fused", std::int64_t{1}}, {"input", std::string("bf16")}}},
      .repeats = 7,
      .rotate_bytes = 1 << 20,
      .seed = ~0ull,
      .checks = 5};
  EXPECT_EQ(*decode_request(encode(request)), request);
  Reply reply;
  reply.error = Error{ErrorCode::wrong_result, "a \"quoted\" line\n"};
  reply.device = {
      .id = "cpu", .name = "n", .key = "k", .threads = 2, .cache_bytes = 3, .memory_bytes = 4};
  reply.backends = {{"portable", "1", ""}, {"openblas", "", "not here"}};
  reply.offers = {{.candidate = request.candidate,
                   .refused = "no",
                   .predicted_us = 1.5,
                   .workspace_bytes = 8,
                   .packed_bytes = 9}};
  reply.time_us = 3.25;
  reply.passed = true;
  reply.check = "exact";
  reply.reason = "d[0,0]";
  EXPECT_EQ(*decode_reply(encode(reply)), reply);
  Reply dirty;
  dirty.reason = "bytes \xff\xfe of a library";
  EXPECT_TRUE(decode_reply(encode(dirty)));
}

TEST(Protocol, BrokenFramesAreErrors) {
  EXPECT_FALSE(decode_reply("{\"offers\":3}"));
  EXPECT_FALSE(decode_request("{}"));
  EXPECT_FALSE(decode_request("{\"ask\":"));
  const std::uint32_t magic = 0x4c504400u | kProtocolVersion;
  const auto hear = [](std::initializer_list<std::uint32_t> words) {
    std::array<int, 2> ends;
    EXPECT_EQ(::pipe(ends.data()), 0);
    EXPECT_TRUE(write_all(ends[1], std::as_bytes(std::span(words.begin(), words.size()))));
    ::close(ends[1]);
    const auto frame = receive_frame(ends[0]);
    ::close(ends[0]);
    return frame;
  };
  EXPECT_THAT(hear({magic + 1, 4, 0}).error().message, HasSubstr("another version"));
  EXPECT_THAT(hear({magic, 0x7fffffff}).error().message, HasSubstr("at most"));
  EXPECT_FALSE(hear({magic, 8, 0}));
  EXPECT_EQ(**hear({magic, 4, 0x31313131}), "1111");
  EXPECT_FALSE(hear({})->has_value());
}

TEST(Lock, TheSecondWaitsUntilTheFirstIsGone) {
  const auto folder = TempFolder::make();
  ::setenv("LAPIDARY_LOCKS", folder->path().c_str(), 1);
  auto first = DeviceLock::acquire("cpu", [](std::string_view) { FAIL() << "nobody holds it"; });
  ASSERT_TRUE(first) << first.error();
  std::string holder;
  std::jthread second([&] {
    const auto lock = DeviceLock::acquire("cpu", [&](std::string_view pid) { holder = pid; });
    EXPECT_TRUE(lock);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  {
    const DeviceLock gone = *std::move(first);
  }
  second.join();
  EXPECT_EQ(holder, std::to_string(::getpid()));
  ::setenv("LAPIDARY_LOCKS", "/no/such/folder", 1);
  EXPECT_THAT(DeviceLock::acquire("cpu", [](std::string_view) {}).error().message,
              HasSubstr("/no/such/folder"));
  ::unsetenv("LAPIDARY_LOCKS");
}

}  // namespace
}  // namespace lapidary::worker
