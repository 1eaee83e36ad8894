// The null driver as a program sees it, through dlopen. Each body runs in a child process, for what
// is tested is a process: its settings, its lost context, its end.
#include "null_cuda.h"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <numbers>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>
#include <vector>

#include "driver/device.h"
#include "numeric/numeric.h"
#include "support/files.h"

namespace lapidary::null_cuda {
namespace {

using driver::CuPointer;
using driver::CuResult;
using driver::LtCompute;
using driver::LtDesc;
using driver::LtStatus;
using driver::LtType;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// All three libraries.
struct Api {
  driver::CudaApi cu;
  driver::LtApi lt;
  driver::NvmlApi nvml;
  void* loaded = nullptr;
};

Api load() {
  Api api;
  api.loaded = ::dlopen(LAPIDARY_BUILD_DIR "/lib/libnull-cuda.so", RTLD_NOW | RTLD_LOCAL);
  if (api.loaded == nullptr) {
    ADD_FAILURE() << ::dlerror();
    std::exit(1);
  }
  const auto find = [&](auto& entry, const char* symbol) {
    entry = reinterpret_cast<std::remove_reference_t<decltype(entry)>>(::dlsym(api.loaded, symbol));
    EXPECT_NE(entry, nullptr) << symbol;
  };
#define LAPIDARY_CU(name, symbol, ...) find(api.cu.name, #symbol);
#include "driver/cuda_api.inc"
#undef LAPIDARY_CU
#define LAPIDARY_LT(name, symbol, ...) find(api.lt.name, #symbol);
  LAPIDARY_LT_ENTRIES(LAPIDARY_LT)
#undef LAPIDARY_LT
  find(api.lt.version, "cublasLtGetVersion");
#define LAPIDARY_NVML(name, symbol, ...) find(api.nvml.name, #symbol);
  LAPIDARY_NVML_ENTRIES(LAPIDARY_NVML)
#undef LAPIDARY_NVML
  return api;
}

using Variables = std::vector<std::pair<const char*, std::string>>;
using Body = std::function<void(const Api&)>;

struct Ended {
  bool in_time = false;
  int status = 0;  // of waitpid, when it was
};

/// Runs a body in a child that exits with 1 when an expectation failed in it.
Ended run_child(const Variables& variables, const Body& body, milliseconds limit) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    for (const auto& [name, value] : variables) ::setenv(name, value.c_str(), 1);
    body(load());
    std::exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  EXPECT_GT(child, 0);
  const auto end = steady_clock::now() + limit;
  Ended ended;
  while (steady_clock::now() < end) {
    if (::waitpid(child, &ended.status, WNOHANG) == child) {
      ended.in_time = true;
      return ended;
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return ended;
}

class NullCuda : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(folder_) << folder_.error(); }
  std::string state_path() const { return (folder_->path() / "state").string(); }
  Variables with_state(Variables variables) const {
    variables.emplace_back("NULL_CUDA_STATE", state_path());
    return variables;
  }
  void forget_state() const { std::filesystem::remove(state_path()); }

  /// A child that must succeed.
  void in_child(const Variables& variables, const Body& body) const {
    const Ended ended = run_child(with_state(variables), body, milliseconds(60000));
    ASSERT_TRUE(ended.in_time);
    EXPECT_TRUE(WIFEXITED(ended.status) && WEXITSTATUS(ended.status) == 0) << ended.status;
  }
  /// One that does, and leaves nothing behind.
  void in_clean_child(const Variables& variables, const Body& body) const {
    in_child(variables, body);
    const StateFile state(state_path());
    ASSERT_TRUE(state);
    EXPECT_EQ(state.left(), "");
    EXPECT_EQ(state.misuses(), "");
    EXPECT_EQ(state->started, state->ended);
  }

  Result<TempFolder> folder_ = TempFolder::make();
};

/// PTX as far as the null driver looks at it.
const std::string kImage = [] {
  std::string text = ".version 8.7\n.target sm_90\n";
  for (const char* name : {"empty", "fill", "garbage", "hash", "spin", "store", "assert", "trap"}) {
    text += std::string(".visible .entry lapidary_") + name + "()\n{ ret; }\n";
  }
  return text;
}();

/// A context with a stream, our kernels and memory, which it gives back.
class Gpu {
 public:
  explicit Gpu(const Api& api, const std::string& image = kImage) : cu(api.cu) {
    EXPECT_EQ(cu.init(0), 0);
    driver::CuDevice device = -1;
    EXPECT_EQ(cu.device_get(&device, 0), 0);
    EXPECT_EQ(cu.context_retain(&context, device), 0);
    EXPECT_EQ(cu.context_set(context), 0);
    EXPECT_EQ(cu.stream_create(&stream, driver::kCuStreamNonBlocking), 0);
    EXPECT_EQ(cu.module_load(&module_, image.data()), 0);
  }
  Gpu(const Gpu&) = delete;
  ~Gpu() {
    for (const CuPointer pointer : allocations_) (void)cu.free(pointer);
    (void)cu.module_unload(module_);
    (void)cu.stream_destroy(stream);
  }
  CuPointer alloc(std::size_t bytes) {
    CuPointer pointer = 0;
    EXPECT_EQ(cu.alloc(&pointer, bytes), 0) << bytes;
    allocations_.push_back(pointer);
    return pointer;
  }
  template <class T>
  CuPointer put(const std::vector<T>& values) {
    const CuPointer pointer = alloc(values.size() * sizeof(T));
    upload(pointer, values);
    return pointer;
  }
  template <class T>
  void upload(CuPointer to, const std::vector<T>& values) {
    EXPECT_EQ(cu.upload(to, values.data(), values.size() * sizeof(T), stream), 0);
    EXPECT_EQ(cu.stream_synchronize(stream), 0);
  }
  template <class T>
  std::vector<T> get(CuPointer from, std::size_t count) {
    std::vector<T> values(count);
    EXPECT_EQ(cu.download(values.data(), from, count * sizeof(T), stream), 0);
    EXPECT_EQ(cu.stream_synchronize(stream), 0);
    return values;
  }
  template <class... Parameters>
  CuResult launch(const char* kernel, Parameters... parameters) {
    driver::CuFunction function = nullptr;
    EXPECT_EQ(cu.module_function(&function, module_, kernel), 0) << kernel;
    void* addresses[] = {&parameters..., nullptr};
    return cu.launch(function, 1, 1, 1, 32, 1, 1, 0, stream, addresses, nullptr);
  }
  CuResult synchronize() const { return cu.stream_synchronize(stream); }

  const driver::CudaApi& cu;
  driver::CuContext context = nullptr;
  driver::CuStream stream = nullptr;

 private:
  driver::CuModule module_ = nullptr;
  std::vector<CuPointer> allocations_;
};

using U64 = std::uint64_t;
using U32 = std::uint32_t;

// ---- the library

TEST_F(NullCuda, ExportsAllThreeLibrariesAndNothingElse) {
  in_clean_child({}, [](const Api& api) {
    const auto* entries = static_cast<const void* const*>(::dlsym(api.loaded, "null_cuda_entries"));
    ASSERT_NE(entries, nullptr);
    for (int i = 0; i < kSymbolCount; ++i) {
      EXPECT_EQ(::dlsym(api.loaded, std::string(kSymbols[i]).c_str()), entries[i]) << kSymbols[i];
    }
    // One of our own functions, which a program has, too, and must not get from here.
    EXPECT_EQ(::dlsym(api.loaded, "_ZN8lapidary7numeric13round_to_tf32Ef"), nullptr);
  });
}

TEST_F(NullCuda, IsOneHopperCardUnlessToldOtherwise) {
  in_clean_child({}, [](const Api& api) {
    const auto& cu = api.cu;
    int count = 0, value = 0;
    EXPECT_EQ(cu.device_count(&count), 3) << "not initialised";
    ASSERT_EQ(cu.init(0), 0);
    EXPECT_EQ(cu.device_count(&count), 0);
    EXPECT_EQ(count, 1);
    driver::CuDevice device = -1;
    EXPECT_EQ(cu.device_get(&device, 1), 101);
    EXPECT_EQ(cu.device_get(&device, 0), 0);
    char name[64];
    EXPECT_EQ(cu.device_name(name, sizeof name, device), 0);
    EXPECT_STREQ(name, "Null GPU");
    std::size_t memory = 0;
    EXPECT_EQ(cu.device_memory(&memory, device), 0);
    EXPECT_EQ(memory, std::size_t{8} << 30);
    for (const auto& [attribute, expected] :
         {std::pair(driver::kCuSmCount, 132), std::pair(driver::kCuL2Bytes, 60 << 20),
          std::pair(driver::kCuMajor, 9), std::pair(driver::kCuMinor, 0),
          std::pair(driver::kCuClockRate, 1980000)}) {
      EXPECT_EQ(cu.device_attribute(&value, attribute, device), 0) << attribute;
      EXPECT_EQ(value, expected) << attribute;
    }
    EXPECT_EQ(cu.device_attribute(&value, 9999, device), 1);
    EXPECT_EQ(cu.driver_version(&value), 0);
    EXPECT_EQ(value, 13000);
    EXPECT_EQ(api.lt.version(), 130100u);
    CuPointer pointer = 0;
    EXPECT_EQ(cu.alloc(&pointer, 16), 201) << "no context is current";
    driver::CuContext context = nullptr, current = nullptr;
    EXPECT_EQ(cu.context_retain(&context, device), 0);
    EXPECT_EQ(cu.context_set(context), 0);
    EXPECT_EQ(cu.context_get(&current), 0);
    EXPECT_EQ(current, context);
  });
  in_clean_child({{"NULL_CUDA_DEVICES", "2"},
                  {"NULL_CUDA_L2", "1048576"},
                  {"NULL_CUDA_SM", "80"},
                  {"NULL_CUDA_MEMORY", "4096"},
                  {"NULL_CUDA_DRIVER", "12080"},
                  {"NULL_CUDA_LT", "120900"}},
                 [](const Api& api) {
                   int value = 0;
                   ASSERT_EQ(api.cu.init(0), 0);
                   EXPECT_EQ(api.cu.device_count(&value), 0);
                   EXPECT_EQ(value, 2);
                   EXPECT_EQ(api.cu.device_attribute(&value, driver::kCuL2Bytes, 1), 0);
                   EXPECT_EQ(value, 1 << 20);
                   EXPECT_EQ(api.cu.device_attribute(&value, driver::kCuMajor, 1), 0);
                   EXPECT_EQ(value, 8);
                   EXPECT_EQ(api.cu.driver_version(&value), 0);
                   EXPECT_EQ(value, 12080);
                   EXPECT_EQ(api.lt.version(), 120900u);
                   std::size_t memory = 0;
                   EXPECT_EQ(api.cu.device_memory(&memory, 0), 0);
                   EXPECT_EQ(memory, 4096u);
                   driver::CuUuid one{}, other{};
                   EXPECT_EQ(api.cu.device_uuid(&one, 0), 0);
                   EXPECT_EQ(api.cu.device_uuid(&other, 1), 0);
                   EXPECT_NE(std::memcmp(&one, &other, sizeof one), 0);
                 });
  in_clean_child({{"NULL_CUDA_DEVICES", "0"}}, [](const Api& api) {
    EXPECT_EQ(api.cu.init(0), 100);
    driver::LtHandle handle = nullptr;
    EXPECT_EQ(api.lt.create(&handle), 1);
  });
}

TEST_F(NullCuda, NamesItsErrors) {
  in_clean_child({}, [](const Api& api) {
    const char* text = nullptr;
    EXPECT_EQ(api.cu.error_name(700, &text), 0);
    EXPECT_STREQ(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
    EXPECT_EQ(api.cu.error_text(700, &text), 0);
    EXPECT_STREQ(text, "an illegal memory access was encountered");
    EXPECT_EQ(api.cu.error_name(12345, &text), 1);
    EXPECT_EQ(text, nullptr);
  });
  EXPECT_EQ(StateFile(state_path())->calls, 0u) << "naming an error is no call";
}

TEST_F(NullCuda, AbortsOverSettingsThatItDoesNotUnderstand) {
  for (const auto& [name, value] : Variables{{"NULL_CUDA_FAULT", "3"},
                                             {"NULL_CUDA_FAULT", "0:hang"},
                                             {"NULL_CUDA_FAULT", "x:hang"},
                                             {"NULL_CUDA_FAULT", "1:hang=1"},
                                             {"NULL_CUDA_FAULT", "1:error"},
                                             {"NULL_CUDA_FAULT", "1:error=0"},
                                             {"NULL_CUDA_FAULT", "1:error=2x"},
                                             {"NULL_CUDA_FAULT", "1:explode"},
                                             {"NULL_CUDA_FAULT", "cuNothing#1:hang"},
                                             {"NULL_CUDA_FAULT", "cuInit:hang"},
                                             {"NULL_CUDA_WAITS", "1,2"},
                                             {"NULL_CUDA_WAITS", "1,2,3,4"},
                                             {"NULL_CUDA_L2", "1MiB"},
                                             {"NULL_CUDA_DEVICES", "-1"}}) {
    SCOPED_TRACE(std::string(name) + "=" + value);
    const Ended ended = run_child(
        {{name, value}}, [](const Api& api) { (void)api.cu.init(0); }, milliseconds(10000));
    EXPECT_TRUE(ended.in_time && WIFSIGNALED(ended.status) && WTERMSIG(ended.status) == SIGABRT)
        << ended.status;
  }
}

TEST_F(NullCuda, NvmlShowsACardThatWorks) {
  in_clean_child({}, [](const Api& api) {
    const auto& nvml = api.nvml;
    unsigned value = 0;
    driver::NvmlDevice device = nullptr;
    EXPECT_EQ(nvml.power_limit(device, &value), 1) << "not initialised";
    ASSERT_EQ(nvml.init(), 0);
    // The text that the driver's UUID makes.
    ASSERT_EQ(api.cu.init(0), 0);
    driver::CuUuid uuid{};
    ASSERT_EQ(api.cu.device_uuid(&uuid, 0), 0);
    std::string text = "GPU-";
    for (int i = 0; i < 16; ++i) {
      if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
      text += fmt::format("{:02x}", uuid.bytes[i]);
    }
    EXPECT_EQ(nvml.device_by_uuid("GPU-0", &device), 6);
    ASSERT_EQ(nvml.device_by_uuid(text.c_str(), &device), 0) << text;
    EXPECT_EQ(nvml.clock(device, driver::kNvmlClockSm, &value), 0);
    EXPECT_EQ(value, 1980u);
    EXPECT_EQ(nvml.clock(device, 9, &value), 2);
    EXPECT_EQ(nvml.power_limit(device, &value), 0);
    EXPECT_EQ(value, 700000u);
    char version[96];
    EXPECT_EQ(nvml.driver_version(version, sizeof version), 0);
    EXPECT_STREQ(version, "580.0.null");
    EXPECT_EQ(nvml.driver_version(version, 3), 7);
    unsigned long long before = 0, after = 0;
    EXPECT_EQ(nvml.energy(device, &before), 0);
    std::this_thread::sleep_for(milliseconds(20));
    EXPECT_EQ(nvml.energy(device, &after), 0);
    EXPECT_GE(after - before, 1999u) << "100 W for 20 ms are 2 J";
  });
}

// ---- memory, kernels

TEST_F(NullCuda, MemoryIsCountedAlignedAndLimited) {
  in_clean_child({{"NULL_CUDA_MEMORY", "1000000"}}, [](const Api& api) {
    Gpu gpu(api);
    EXPECT_EQ(gpu.alloc(1000) % 256, 0u);
    std::size_t free = 0, total = 0;
    EXPECT_EQ(gpu.cu.memory_info(&free, &total), 0);
    EXPECT_EQ(free, 999000u);
    EXPECT_EQ(total, 1000000u);
    CuPointer pointer = 0;
    EXPECT_EQ(gpu.cu.alloc(&pointer, 999001), driver::kCuOutOfMemory);
    EXPECT_EQ(gpu.cu.alloc(&pointer, 0), 1);
    EXPECT_EQ(gpu.cu.free(0), 0);
    ASSERT_EQ(gpu.cu.alloc(&pointer, 999000), 0);
    EXPECT_EQ(gpu.cu.free(pointer), 0);
    EXPECT_EQ(gpu.cu.memory_info(&free, &total), 0);
    EXPECT_EQ(free, 999000u);
  });
}

TEST_F(NullCuda, CopiesAndPins) {
  in_clean_child({}, [](const Api& api) {
    Gpu gpu(api);
    const std::vector<int> values = {1, 2, 3, 4, 5};
    const CuPointer a = gpu.put(values), b = gpu.alloc(20);
    EXPECT_EQ(gpu.cu.copy(b, a, 20, gpu.stream), 0);
    EXPECT_EQ(gpu.get<int>(b, 5), values);
    EXPECT_EQ(gpu.cu.upload(b, nullptr, 0, gpu.stream), 0);
    std::vector<char> host(8192);
    EXPECT_EQ(gpu.cu.pin(host.data(), 4096, 0), 0);
    EXPECT_EQ(gpu.cu.pin(host.data() + 4000, 200, 0), 712);
    EXPECT_EQ(gpu.cu.pin(host.data() + 4096, 4096, 0), 0);
    EXPECT_EQ(gpu.cu.unpin(host.data()), 0);
    EXPECT_EQ(gpu.cu.unpin(host.data() + 4096), 0);
  });
}

TEST_F(NullCuda, MisuseIsRefusedAndCounted) {
  using Misuse = std::function<void(Gpu&, const Api&)>;
  const std::vector<std::pair<const char*, Misuse>> misuses = {
      {"double free",
       [](Gpu& gpu, const Api&) {
         CuPointer pointer = 0;
         ASSERT_EQ(gpu.cu.alloc(&pointer, 64), 0);
         EXPECT_EQ(gpu.cu.free(pointer), 0);
         EXPECT_EQ(gpu.cu.free(pointer), 1);
       }},
      {"free inside an allocation",
       [](Gpu& gpu, const Api&) { EXPECT_EQ(gpu.cu.free(gpu.alloc(512) + 256), 1); }},
      {"free of host memory",
       [](Gpu& gpu, const Api&) {
         int host = 0;
         EXPECT_EQ(gpu.cu.free(reinterpret_cast<CuPointer>(&host)), 1);
       }},
      {"copy past the end",
       [](Gpu& gpu, const Api&) {
         char host[65] = "";
         EXPECT_EQ(gpu.cu.upload(gpu.alloc(64), host, 65, gpu.stream), 1);
       }},
      {"unpin of what is not pinned",
       [](Gpu& gpu, const Api&) {
         int host = 0;
         EXPECT_EQ(gpu.cu.unpin(&host), 713);
       }},
      {"stream destroyed twice",
       [](Gpu& gpu, const Api&) {
         driver::CuStream stream = nullptr;
         ASSERT_EQ(gpu.cu.stream_create(&stream, 0), 0);
         EXPECT_EQ(gpu.cu.stream_destroy(stream), 0);
         EXPECT_EQ(gpu.cu.stream_destroy(stream), 400);
       }},
      {"record of a destroyed event, though another was made since",
       [](Gpu& gpu, const Api&) {
         driver::CuEvent event = nullptr, other = nullptr;
         ASSERT_EQ(gpu.cu.event_create(&event, 0), 0);
         EXPECT_EQ(gpu.cu.event_destroy(event), 0);
         ASSERT_EQ(gpu.cu.event_create(&other, 0), 0);
         EXPECT_EQ(gpu.cu.event_record(event, gpu.stream), 400);
         EXPECT_EQ(gpu.cu.event_destroy(other), 0);
       }},
      {"launch of a function whose module is gone",
       [](Gpu& gpu, const Api&) {
         driver::CuModule module = nullptr;
         driver::CuFunction function = nullptr;
         ASSERT_EQ(gpu.cu.module_load(&module, kImage.data()), 0);
         ASSERT_EQ(gpu.cu.module_function(&function, module, "lapidary_empty"), 0);
         EXPECT_EQ(gpu.cu.module_unload(module), 0);
         EXPECT_EQ(gpu.cu.launch(function, 1, 1, 1, 1, 1, 1, 0, gpu.stream, nullptr, nullptr), 400);
       }},
      {"Lt layout destroyed twice",
       [](Gpu&, const Api& api) {
         driver::LtLayout layout = nullptr;
         ASSERT_EQ(api.lt.layout_create(&layout, 0, 1, 1, 1), 0);
         EXPECT_EQ(api.lt.layout_destroy(layout), 0);
         EXPECT_EQ(api.lt.layout_destroy(layout), driver::kLtInvalidValue);
       }},
      {"NVML device that is none",
       [](Gpu&, const Api& api) {
         unsigned value = 0;
         ASSERT_EQ(api.nvml.init(), 0);
         EXPECT_EQ(api.nvml.power_limit(nullptr, &value), 2);
       }},
  };
  for (const auto& [why, misuse] : misuses) {
    SCOPED_TRACE(why);
    forget_state();
    in_child({}, [&](const Api& api) {
      Gpu gpu(api);
      misuse(gpu, api);
    });
    const StateFile state(state_path());
    EXPECT_EQ(state->misuses, 1u) << state.misuses();
    EXPECT_GT(std::strlen(state->first_misuse), 0u);
    EXPECT_EQ(state.left(), "");
  }
}

TEST_F(NullCuda, KernelsDoWhatTheirNamesSay) {
  in_clean_child({}, [](const Api& api) {
    Gpu gpu(api);
    constexpr U64 kBytes = 512;
    const CuPointer memory = gpu.alloc(kBytes), sum = gpu.put<U64>({5});
    EXPECT_EQ(gpu.launch("lapidary_empty"), 0);
    EXPECT_EQ(gpu.launch("lapidary_garbage", memory, kBytes, U64{99}), 0);
    std::vector<std::uint8_t> expected(kBytes);
    for (U64 i = 0; i < kBytes; ++i) expected[i] = driver::garbage_byte(99, i);
    EXPECT_EQ(gpu.get<std::uint8_t>(memory, kBytes), expected);

    // 2 entries of 3 rows of 6 bytes, 10 and 100 bytes apart, from byte 8.
    EXPECT_EQ(gpu.launch("lapidary_fill", U64{memory + 8}, U64{6}, U64{3}, U64{10}, U64{2},
                         U64{100}, U32{0xabcd}, U32{2}),
              0);
    for (U64 entry = 0; entry < 2; ++entry) {
      for (U64 row = 0; row < 3; ++row) {
        for (U64 i = 0; i < 6; ++i) expected[8 + entry * 100 + row * 10 + i] = i % 2 ? 0xab : 0xcd;
      }
    }
    EXPECT_EQ(gpu.get<std::uint8_t>(memory, kBytes), expected);

    // Elements of 4 bytes in rows of 7, from an odd address.
    EXPECT_EQ(gpu.launch("lapidary_fill", U64{memory + 401}, U64{7}, U64{2}, U64{9}, U64{1}, U64{0},
                         U32{0x04030201}, U32{4}),
              0);
    for (U64 row = 0; row < 2; ++row) {
      for (U64 i = 0; i < 7; ++i) {
        expected[401 + row * 9 + i] = static_cast<std::uint8_t>(i % 4 + 1);
      }
    }
    EXPECT_EQ(gpu.get<std::uint8_t>(memory, kBytes), expected);

    EXPECT_EQ(gpu.launch("lapidary_hash", U64{memory + 3}, U64{7}, U64{4}, U64{11}, U64{3}, U64{90},
                         U64{1000}, U64{sum}),
              0);
    U64 hash = 5;
    for (U64 entry = 0; entry < 3; ++entry) {
      for (U64 row = 0; row < 4; ++row) {
        for (U64 i = 0; i < 7; ++i) {
          const U64 at = entry * 90 + row * 11 + i;
          hash += driver::byte_hash(1000 + at, expected[3 + at]);
        }
      }
    }
    EXPECT_EQ(gpu.get<U64>(sum, 1), std::vector<U64>{hash});

    EXPECT_EQ(gpu.launch("lapidary_store", memory, U64{0x01020304}), 0);
    EXPECT_EQ(gpu.get<U32>(memory, 1), std::vector<U32>{0x01020304});
    EXPECT_EQ(gpu.synchronize(), 0);
  });
}

TEST_F(NullCuda, ImagesAreCubinsOrPtxThatHoldTheKernel) {
  in_clean_child({}, [](const Api& api) {
    Gpu gpu(api);
    driver::CuModule module = nullptr;
    driver::CuFunction function = nullptr;
    EXPECT_EQ(gpu.cu.module_load(&module, "neither"), 200);
    ASSERT_EQ(gpu.cu.module_load(&module, ".version 8.7\n.entry lapidary_empty_not()\n"), 0);
    EXPECT_EQ(gpu.cu.module_function(&function, module, "lapidary_empty"), 500);
    EXPECT_EQ(gpu.cu.module_unload(module), 0);

    // A cubin as far as it is read: a header, and a section whose bytes name another section.
    const std::string names = std::string("\0.text.lapidary_fill\0", 21);
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_machine = EM_CUDA;
    header.e_shoff = sizeof header;
    header.e_shnum = 1;
    header.e_shentsize = sizeof(Elf64_Shdr);
    Elf64_Shdr section{};
    section.sh_type = SHT_STRTAB;
    section.sh_offset = sizeof header + sizeof section;
    section.sh_size = names.size();
    std::string cubin(reinterpret_cast<const char*>(&header), sizeof header);
    cubin.append(reinterpret_cast<const char*>(&section), sizeof section).append(names);
    ASSERT_EQ(gpu.cu.module_load(&module, cubin.data()), 0);
    EXPECT_EQ(gpu.cu.module_function(&function, module, "lapidary_fill"), 0);
    EXPECT_EQ(gpu.cu.module_function(&function, module, "lapidary_hash"), 500);
    EXPECT_EQ(gpu.cu.module_unload(module), 0);
    cubin[offsetof(Elf64_Ehdr, e_machine)] = EM_X86_64;
    EXPECT_EQ(gpu.cu.module_load(&module, cubin.data()), 200);
  });
}

TEST_F(NullCuda, LaunchesAreChecked) {
  in_clean_child({}, [](const Api& api) {
    Gpu gpu(api);
    driver::CuModule module = nullptr;
    driver::CuFunction fill = nullptr;
    ASSERT_EQ(gpu.cu.module_load(&module, kImage.data()), 0);
    ASSERT_EQ(gpu.cu.module_function(&fill, module, "lapidary_fill"), 0);
    U64 at = gpu.alloc(64), bytes = 64, one = 1;
    U32 element = 7, size = 1;
    void* whole[] = {&at, &bytes, &one, &bytes, &one, &bytes, &element, &size};
    void* none[8] = {};
    const auto launch = [&](unsigned grid_x, unsigned grid_y, unsigned block_x, unsigned block_y,
                            void** parameters) {
      return gpu.cu.launch(fill, grid_x, grid_y, 1, block_x, block_y, 1, 0, gpu.stream, parameters,
                           nullptr);
    };
    EXPECT_EQ(launch(1, 1, 32, 1, whole), 0);
    EXPECT_EQ(launch(1 << 20, 65535, 1024, 1, whole), 0);
    EXPECT_EQ(launch(0, 1, 32, 1, whole), 1);
    EXPECT_EQ(launch(1, 65536, 32, 1, whole), 1);
    EXPECT_EQ(launch(1, 1, 1025, 1, whole), 1);
    EXPECT_EQ(launch(1, 1, 512, 4, whole), 1);
    EXPECT_EQ(launch(1, 1, 32, 1, none), 1) << "no parameters";
    EXPECT_EQ(launch(1, 1, 32, 1, nullptr), 1);
    EXPECT_EQ(gpu.synchronize(), 0) << "none of it ended the context";
    EXPECT_EQ(gpu.cu.module_unload(module), 0);
  });
}

TEST_F(NullCuda, AFaultOfAKernelShowsAtTheNextWaitAndStays) {
  const std::vector<std::tuple<const char*, int, std::function<void(Gpu&)>>> faults = {
      {"null", 700, [](Gpu& gpu) { gpu.launch("lapidary_store", U64{0}, U64{1}); }},
      {"small", 700, [](Gpu& gpu) { gpu.launch("lapidary_store", U64{64}, U64{1}); }},
      {"misaligned", 716,
       [](Gpu& gpu) { gpu.launch("lapidary_store", U64{gpu.alloc(64) + 2}, U64{1}); }},
      {"assert", 710, [](Gpu& gpu) { gpu.launch("lapidary_assert"); }},
      {"trap", 719, [](Gpu& gpu) { gpu.launch("lapidary_trap"); }},
      {"past the end", 700,
       [](Gpu& gpu) { gpu.launch("lapidary_garbage", gpu.alloc(64), U64{65}, U64{1}); }},
  };
  for (const auto& [why, code, fault] : faults) {
    SCOPED_TRACE(why);
    forget_state();
    in_child({}, [&](const Api& api) {
      Gpu gpu(api);
      const CuPointer memory = gpu.put<U32>({7});
      fault(gpu);
      // Launches behind it are taken and do nothing.
      EXPECT_EQ(gpu.launch("lapidary_store", memory, U64{8}), 0);
      EXPECT_EQ(*reinterpret_cast<U32*>(memory), 7u);
      EXPECT_EQ(gpu.synchronize(), code);
      EXPECT_EQ(gpu.synchronize(), code);
      CuPointer pointer = 0;
      std::size_t free = 0, total = 0;
      EXPECT_EQ(gpu.cu.alloc(&pointer, 64), code);
      EXPECT_EQ(gpu.cu.memory_info(&free, &total), code);
      int version = 0;
      EXPECT_EQ(gpu.cu.driver_version(&version), 0) << "asks no context";
    });
    const StateFile state(state_path());
    EXPECT_EQ(state->ended_lost, 1u);
    EXPECT_EQ(state.left(), "");
    EXPECT_EQ(state->misuses, std::string_view(why) == "past the end" ? 1u : 0u);
  }
}

TEST_F(NullCuda, AKernelThatNeverEndsIsWaitedForForEver) {
  for (const bool by_event : {false, true}) {
    SCOPED_TRACE(by_event);
    const Ended ended = run_child(
        with_state({}),
        [by_event](const Api& api) {
          Gpu gpu(api);
          driver::CuEvent before = nullptr, behind = nullptr;
          ASSERT_EQ(gpu.cu.event_create(&before, 0), 0);
          ASSERT_EQ(gpu.cu.event_create(&behind, 0), 0);
          ASSERT_EQ(gpu.cu.event_record(before, gpu.stream), 0);
          ASSERT_EQ(gpu.launch("lapidary_spin"), 0);
          ASSERT_EQ(gpu.launch("lapidary_empty"), 0);
          ASSERT_EQ(gpu.cu.event_record(behind, gpu.stream), 0);
          ASSERT_EQ(gpu.cu.event_synchronize(before), 0);
          // Another stream goes on.
          driver::CuStream other = nullptr;
          ASSERT_EQ(gpu.cu.stream_create(&other, 1), 0);
          ASSERT_EQ(gpu.cu.stream_synchronize(other), 0);
          (void)(by_event ? gpu.cu.event_synchronize(behind) : gpu.synchronize());
        },
        milliseconds(300));
    EXPECT_FALSE(ended.in_time) << ended.status;
  }
}

// ---- graphs and events

TEST_F(NullCuda, AGraphRunsWhatWasCapturedAtEveryLaunch) {
  in_clean_child({}, [](const Api& api) {
    Gpu gpu(api);
    const CuPointer memory = gpu.alloc(64), sum = gpu.put<U64>({0});
    ASSERT_EQ(gpu.launch("lapidary_garbage", memory, U64{64}, U64{3}), 0);
    U64 once = 0;
    for (U64 i = 0; i < 64; ++i) once += driver::byte_hash(i, driver::garbage_byte(3, i));

    driver::CuGraph graph = nullptr;
    driver::CuGraphExec exec = nullptr;
    ASSERT_EQ(gpu.cu.capture_begin(gpu.stream, driver::kCuCaptureThreadLocal), 0);
    EXPECT_EQ(gpu.cu.capture_begin(gpu.stream, driver::kCuCaptureThreadLocal), 401);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(gpu.launch("lapidary_hash", memory, U64{64}, U64{1}, U64{64}, U64{1}, U64{64},
                           U64{0}, sum),
                0);
    }
    ASSERT_EQ(gpu.cu.capture_end(gpu.stream, &graph), 0);
    ASSERT_EQ(gpu.cu.graph_instantiate(&exec, graph, 0), 0);
    EXPECT_EQ(gpu.cu.graph_destroy(graph), 0);
    EXPECT_EQ(gpu.get<U64>(sum, 1), std::vector<U64>{0}) << "captured, not run";
    for (U64 launches = 1; launches <= 3; ++launches) {
      EXPECT_EQ(gpu.cu.graph_launch(exec, gpu.stream), 0);
      EXPECT_EQ(gpu.get<U64>(sum, 1), std::vector<U64>{2 * launches * once});
    }
    EXPECT_EQ(gpu.cu.graph_exec_destroy(exec), 0);
    EXPECT_EQ(gpu.cu.capture_end(gpu.stream, &graph), 401);
  });
}

TEST_F(NullCuda, ACaptureIsInvalidatedByWhatItMustNotSee) {
  in_clean_child({}, [](const Api& api) {
    Gpu gpu(api);
    driver::CuEvent event = nullptr;
    ASSERT_EQ(gpu.cu.event_create(&event, 0), 0);
    const std::vector<std::pair<const char*, std::function<void()>>> unsafe = {
        {"synchronise", [&] { EXPECT_EQ(gpu.synchronize(), 900); }},
        {"allocate",
         [&] {
           CuPointer pointer = 0;
           EXPECT_EQ(gpu.cu.alloc(&pointer, 64), 900);
         }},
        {"load",
         [&] {
           driver::CuModule module = nullptr;
           EXPECT_EQ(gpu.cu.module_load(&module, kImage.data()), 900);
         }},
    };
    for (const auto& [why, act] : unsafe) {
      SCOPED_TRACE(why);
      ASSERT_EQ(gpu.cu.capture_begin(gpu.stream, driver::kCuCaptureThreadLocal), 0);
      act();
      EXPECT_EQ(gpu.launch("lapidary_empty"), driver::kCuStreamCaptureInvalidated);
      driver::CuGraph graph = reinterpret_cast<driver::CuGraph>(1);
      EXPECT_EQ(gpu.cu.capture_end(gpu.stream, &graph), driver::kCuStreamCaptureInvalidated);
      EXPECT_EQ(graph, nullptr);
      EXPECT_EQ(gpu.synchronize(), 0) << "the stream is as before";
    }
    // Another thread may allocate, and may not end the capture.
    ASSERT_EQ(gpu.cu.capture_begin(gpu.stream, driver::kCuCaptureThreadLocal), 0);
    EXPECT_EQ(gpu.cu.event_record(event, gpu.stream), 0);
    EXPECT_EQ(gpu.cu.event_synchronize(event), 907);
    driver::CuGraph graph = nullptr;
    std::thread([&] {
      CuPointer pointer = 0;
      EXPECT_EQ(gpu.cu.context_set(gpu.context), 0);
      EXPECT_EQ(gpu.cu.alloc(&pointer, 64), 0);
      EXPECT_EQ(gpu.cu.free(pointer), 0);
      EXPECT_EQ(gpu.cu.capture_end(gpu.stream, &graph), 908);
    }).join();
    EXPECT_EQ(gpu.cu.capture_end(gpu.stream, &graph), 0);
    EXPECT_EQ(gpu.cu.graph_destroy(graph), 0);
    EXPECT_EQ(gpu.cu.event_destroy(event), 0);
  });
}

TEST_F(NullCuda, EventsTakeTheTimeOnceWaitedFor) {
  in_clean_child({}, [](const Api& api) {
    Gpu gpu(api);
    driver::CuEvent first = nullptr, last = nullptr, untimed = nullptr;
    ASSERT_EQ(gpu.cu.event_create(&first, 0), 0);
    ASSERT_EQ(gpu.cu.event_create(&last, 0), 0);
    ASSERT_EQ(gpu.cu.event_create(&untimed, 2), 0);
    float ms = 0;
    EXPECT_EQ(gpu.cu.event_elapsed(&ms, first, last), 400) << "never recorded";
    ASSERT_EQ(gpu.cu.event_record(first, gpu.stream), 0);
    ASSERT_EQ(gpu.cu.event_record(last, gpu.stream), 0);
    EXPECT_EQ(gpu.cu.event_elapsed(&ms, first, last), 600) << "nobody waited";
    EXPECT_EQ(gpu.cu.event_synchronize(last), 0);
    EXPECT_EQ(gpu.cu.event_elapsed(&ms, first, last), 0);
    EXPECT_GE(ms, 0.001f);
    std::this_thread::sleep_for(milliseconds(5));
    ASSERT_EQ(gpu.cu.event_record(last, gpu.stream), 0);
    ASSERT_EQ(gpu.cu.event_record(untimed, gpu.stream), 0);
    EXPECT_EQ(gpu.synchronize(), 0);
    EXPECT_EQ(gpu.cu.event_elapsed(&ms, first, last), 0);
    EXPECT_GE(ms, 5.0f);
    EXPECT_EQ(gpu.cu.event_elapsed(&ms, first, untimed), 400);
    for (driver::CuEvent event : {first, last, untimed}) {
      EXPECT_EQ(gpu.cu.event_destroy(event), 0);
    }
  });
}

TEST_F(NullCuda, ThreadsShareIt) {
  in_clean_child({}, [](const Api& api) {
    Gpu gpu(api);
    std::vector<std::thread> threads;
    for (U64 seed = 0; seed < 4; ++seed) {
      threads.emplace_back([&api, seed, context = gpu.context] {
        EXPECT_EQ(api.cu.context_set(context), 0);
        Gpu mine(api);
        for (int i = 0; i < 20; ++i) {
          const CuPointer memory = mine.alloc(64);
          EXPECT_EQ(mine.launch("lapidary_garbage", memory, U64{64}, seed), 0);
          EXPECT_EQ(mine.get<std::uint8_t>(memory, 64)[3], driver::garbage_byte(seed, 3));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

// ---- what is left, and faults

/// One object of every kind, and its handle.
struct Objects {
  CuPointer memory = 0;
  driver::CuStream stream = nullptr;
  driver::CuEvent event = nullptr;
  driver::CuModule module = nullptr;
  driver::CuGraph graph = nullptr;
  driver::CuGraphExec exec = nullptr;
  driver::LtMatmulDesc desc = nullptr;
  driver::LtLayout layout = nullptr;
  driver::LtPreference preference = nullptr;
};
char g_pinned[64];

Objects make_one_of_each(const Api& api) {
  const auto& cu = api.cu;
  Objects made;
  driver::CuContext context = nullptr;
  EXPECT_EQ(cu.init(0), 0);
  EXPECT_EQ(cu.context_retain(&context, 0), 0);
  EXPECT_EQ(cu.context_set(context), 0);
  EXPECT_EQ(cu.alloc(&made.memory, 64), 0);
  EXPECT_EQ(cu.pin(g_pinned, sizeof g_pinned, 0), 0);
  EXPECT_EQ(cu.stream_create(&made.stream, 1), 0);
  EXPECT_EQ(cu.event_create(&made.event, 0), 0);
  EXPECT_EQ(cu.module_load(&made.module, kImage.data()), 0);
  EXPECT_EQ(cu.capture_begin(made.stream, driver::kCuCaptureThreadLocal), 0);
  EXPECT_EQ(cu.capture_end(made.stream, &made.graph), 0);
  EXPECT_EQ(cu.graph_instantiate(&made.exec, made.graph, 0), 0);
  EXPECT_EQ(api.lt.desc_create(&made.desc, 68, 0), 0);
  EXPECT_EQ(api.lt.layout_create(&made.layout, 0, 1, 1, 1), 0);
  EXPECT_EQ(api.lt.preference_create(&made.preference), 0);
  return made;
}

/// What each release returned, in the order of kKinds.
std::vector<int> give_back(const Api& api, const Objects& made) {
  const auto& cu = api.cu;
  return {cu.free(made.memory),
          cu.unpin(g_pinned),
          cu.stream_destroy(made.stream),
          cu.event_destroy(made.event),
          cu.module_unload(made.module),
          cu.graph_destroy(made.graph),
          cu.graph_exec_destroy(made.exec),
          api.lt.desc_destroy(made.desc),
          api.lt.layout_destroy(made.layout),
          api.lt.preference_destroy(made.preference)};
}

TEST_F(NullCuda, WhatAProcessLeavesIsCountedOverAll) {
  in_child({}, [](const Api& api) { make_one_of_each(api); });
  in_child({}, [](const Api& api) { make_one_of_each(api); });
  in_child({}, [](const Api& api) {
    EXPECT_EQ(give_back(api, make_one_of_each(api)), std::vector<int>(kKindCount, 0));
  });
  const StateFile state(state_path());
  EXPECT_EQ(state.left(),
            "2 allocations, 2 pinned ranges, 2 streams, 2 events, 2 modules, 2 graphs, 2 execs, "
            "2 Lt descs, 2 Lt layouts, 2 Lt preferences");
  EXPECT_EQ(state->started, 3u);
  EXPECT_EQ(state->ended, 3u);
  EXPECT_EQ(state.calls_of("cuMemAlloc_v2"), 3);
  EXPECT_EQ(state.calls_of("cuMemFree_v2"), 1);
  // One that does not end normally tells nothing.
  run_child(
      with_state({}),
      [](const Api& api) {
        make_one_of_each(api);
        ::_exit(0);
      },
      milliseconds(10000));
  EXPECT_EQ(state->started, 4u);
  EXPECT_EQ(state->ended, 3u);
  EXPECT_EQ(state->left[0], 2);
}

TEST_F(NullCuda, AReleaseThatIsMadeToFailReleases) {
  constexpr const char* kReleases[] = {"cuMemFree_v2",
                                       "cuMemHostUnregister",
                                       "cuStreamDestroy_v2",
                                       "cuEventDestroy_v2",
                                       "cuModuleUnload",
                                       "cuGraphDestroy",
                                       "cuGraphExecDestroy",
                                       "cublasLtMatmulDescDestroy",
                                       "cublasLtMatrixLayoutDestroy",
                                       "cublasLtMatmulPreferenceDestroy"};
  static_assert(std::size(kReleases) == kKindCount);
  for (int i = 0; i < kKindCount; ++i) {
    SCOPED_TRACE(kReleases[i]);
    forget_state();
    in_clean_child({{"NULL_CUDA_FAULT", std::string(kReleases[i]) + "#1:error=5"}},
                   [i](const Api& api) {
                     std::vector<int> expected(kKindCount, 0);
                     expected[static_cast<std::size_t>(i)] = 5;
                     EXPECT_EQ(give_back(api, make_one_of_each(api)), expected);
                   });
    EXPECT_EQ(StateFile(state_path()).fault_symbol(), kReleases[i]);
  }
  // The context is lost at the first release: all of them say so, and all release.
  forget_state();
  in_child({{"NULL_CUDA_FAULT", "cuMemFree_v2#1:error=700"}}, [](const Api& api) {
    EXPECT_EQ(give_back(api, make_one_of_each(api)),
              (std::vector<int>{700, 700, 700, 700, 700, 700, 700, 0, 0, 0}));
  });
  const StateFile state(state_path());
  EXPECT_EQ(state->ended_lost, 1u);
  for (const auto& count : state->left_lost) EXPECT_EQ(count, 0);
}

TEST_F(NullCuda, AFaultByNumberHitsEveryCallOnce) {
  // Each returns what the call with the fault returned, 0 when none did.
  const auto calls = [](const Api& api, int& failed) {
    const auto see = [&](int result) {
      if (result != 0) failed = result;
    };
    int value = 0;
    driver::CuContext context = nullptr;
    see(api.cu.init(0));
    see(api.cu.driver_version(&value));
    see(api.nvml.init());
    see(api.cu.context_retain(&context, 0));
    driver::LtLayout layout = nullptr;
    see(api.lt.layout_create(&layout, 0, 1, 1, 1));
    const char* text = nullptr;
    EXPECT_EQ(api.cu.error_name(1, &text), 0) << "does not count";
    see(api.cu.context_set(context));
  };
  constexpr const char* kInOrder[] = {"cuInit",
                                      "cuDriverGetVersion",
                                      "nvmlInit_v2",
                                      "cuDevicePrimaryCtxRetain",
                                      "cublasLtMatrixLayoutCreate",
                                      "cuCtxSetCurrent"};
  for (U64 number = 1; number <= std::size(kInOrder); ++number) {
    SCOPED_TRACE(number);
    forget_state();
    const Variables fault = {{"NULL_CUDA_FAULT", std::to_string(number) + ":error=800"}};
    in_child(fault, [&](const Api& api) {
      // Later calls may fail for want of the one that did.
      int failed = 0;
      calls(api, failed);
      EXPECT_NE(failed, 0);
    });
    const StateFile state(state_path());
    EXPECT_TRUE(state.fired());
    EXPECT_EQ(state->fault_call, number);
    EXPECT_EQ(state.fault_symbol(), kInOrder[number - 1]);
    EXPECT_EQ(state->calls, std::size(kInOrder));
    // The count goes on in the next process, and the fault is spent.
    in_child(fault, [&](const Api& api) {
      int failed = 0;
      calls(api, failed);
      EXPECT_EQ(failed, 0);
    });
    EXPECT_EQ(state->calls, 2 * std::size(kInOrder));
  }
  // A number that only the second process reaches.
  forget_state();
  for (const int expected : {0, 800}) {
    in_child({{"NULL_CUDA_FAULT", "12:error=800"}}, [&](const Api& api) {
      int failed = 0;
      calls(api, failed);
      EXPECT_EQ(failed, expected);
    });
  }
  EXPECT_EQ(StateFile(state_path()).fault_symbol(), "cuCtxSetCurrent");
}

/// The entry with nothing for arguments, which it must not look at when it is made to fail.
template <class R, class... Arguments>
int call_with_nothing(R (*entry)(Arguments...)) {
  return static_cast<int>(entry(Arguments{}...));
}

/// All entries in the order of kSymbols.
std::vector<std::function<int()>> all_entries(const Api& api) {
  return {
#define LAPIDARY_CU(name, symbol, ...) [&api] { return call_with_nothing(api.cu.name); },
#include "driver/cuda_api.inc"
#undef LAPIDARY_CU
#define LAPIDARY_LT(name, symbol, ...) [&api] { return call_with_nothing(api.lt.name); },
      LAPIDARY_LT_ENTRIES(LAPIDARY_LT)
#undef LAPIDARY_LT
          [&api]{return call_with_nothing(api.lt.version);
}
,
#define LAPIDARY_NVML(name, symbol, ...) [&api] { return call_with_nothing(api.nvml.name); },
    LAPIDARY_NVML_ENTRIES(LAPIDARY_NVML)
#undef LAPIDARY_NVML
};  // namespace
}  // namespace lapidary::null_cuda

bool names_errors(int symbol) {
  return kSymbols[symbol] == "cuGetErrorName" || kSymbols[symbol] == "cuGetErrorString";
}

TEST_F(NullCuda, EveryEntryCountsAndCanBeMadeToFail) {
  for (int i = 0; i < kSymbolCount; ++i) {
    if (names_errors(i)) continue;
    SCOPED_TRACE(kSymbols[i]);
    forget_state();
    in_child({{"NULL_CUDA_FAULT", std::string(kSymbols[i]) + "#1:error=5"}}, [i](const Api& api) {
      EXPECT_EQ(all_entries(api)[static_cast<std::size_t>(i)](), 5);
    });
    const StateFile state(state_path());
    EXPECT_EQ(state->calls, 1u);
    EXPECT_EQ(state.calls_of(kSymbols[i]), 1);
    EXPECT_EQ(state.fault_symbol(), kSymbols[i]);
  }
}

TEST_F(NullCuda, EveryEntryOfTheDriverReturnsWhatEndedTheContext) {
  in_child({{"NULL_CUDA_FAULT", "1:error=700"}}, [](const Api& api) {
    EXPECT_EQ(api.cu.init(0), 700);
    const auto entries = all_entries(api);
    for (int i = 0; i < symbol_index("cublasLtCreate"); ++i) {
      if (names_errors(i) || kSymbols[i] == "cuDriverGetVersion") continue;
      EXPECT_EQ(entries[static_cast<std::size_t>(i)](), 700) << kSymbols[i];
    }
  });
}

TEST_F(NullCuda, AFaultBySymbolHitsItsNthCall) {
  in_clean_child({{"NULL_CUDA_FAULT", "cuMemAlloc_v2#3:error=2"}}, [](const Api& api) {
    Gpu gpu(api);
    gpu.alloc(64);
    gpu.alloc(64);
    CuPointer pointer = 1234;
    EXPECT_EQ(gpu.cu.alloc(&pointer, 64), 2);
    EXPECT_EQ(pointer, 1234u) << "nothing was done";
    gpu.alloc(64);
    EXPECT_EQ(gpu.synchronize(), 0) << "an ordinary error does not stay";
  });
  EXPECT_EQ(StateFile(state_path())->ended_lost, 0u);
}

TEST_F(NullCuda, AFaultThatEndsTheContextStays) {
  in_child({{"NULL_CUDA_FAULT", "cuStreamSynchronize#1:error=719"}}, [](const Api& api) {
    Gpu gpu(api);
    driver::LtHandle handle = nullptr;
    ASSERT_EQ(api.lt.create(&handle), 0);
    CuPointer left = 0;
    ASSERT_EQ(gpu.cu.alloc(&left, 64), 0);
    EXPECT_EQ(gpu.synchronize(), 719);
    EXPECT_EQ(gpu.synchronize(), 719);
    CuPointer pointer = 0;
    EXPECT_EQ(gpu.cu.alloc(&pointer, 64), 719);
    EXPECT_EQ(api.lt.matmul(handle, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                            nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, 0, gpu.stream),
              13);
    EXPECT_EQ(api.lt.create(&handle), 1);
  });
  // Another process has a context of its own.
  in_child({{"NULL_CUDA_FAULT", "cuStreamSynchronize#1:error=719"}}, [](const Api& api) {
    Gpu gpu(api);
    EXPECT_EQ(gpu.synchronize(), 0);
  });
  const StateFile state(state_path());
  EXPECT_EQ(state->ended, 2u);
  EXPECT_EQ(state->ended_lost, 1u);
  EXPECT_EQ(state.left(), "") << "what is lost with a context is no leak";
  EXPECT_EQ(state->left_lost[static_cast<int>(Kind::allocation)], 1);
}

TEST_F(NullCuda, FaultsMayHangOrDelay) {
  in_clean_child({{"NULL_CUDA_FAULT", "cuInit#1:delay=60"}}, [](const Api& api) {
    const auto start = steady_clock::now();
    EXPECT_EQ(api.cu.init(0), 0);
    EXPECT_GE(steady_clock::now() - start, milliseconds(60));
  });
  forget_state();
  const Ended ended = run_child(
      with_state({{"NULL_CUDA_FAULT", "nvmlInit_v2#1:hang"}}),
      [](const Api& api) {
        (void)api.cu.init(0);
        (void)api.nvml.init();
      },
      milliseconds(300));
  EXPECT_FALSE(ended.in_time);
  const StateFile state(state_path());
  EXPECT_EQ(state.fault_symbol(), "nvmlInit_v2");
  EXPECT_EQ(state->ended, 0u);
}

// ---- cuBLASLt

int code(LtType type) { return static_cast<int>(type); }

DType dtype(LtType type) {
  switch (type) {
    case LtType::f32:
      return DType::f32;
    case LtType::f16:
      return DType::f16;
    case LtType::bf16:
      return DType::bf16;
    case LtType::e4m3:
      return DType::e4m3;
    case LtType::e5m2:
      return DType::e5m2;
  }
  return DType::f32;
}

struct Case {
  const char* why;
  LtType a = LtType::bf16, b = LtType::bf16, c = LtType::bf16, d = LtType::bf16;
  LtCompute compute = LtCompute::f32;
  std::int32_t op_a = driver::kLtOpT, op_b = driver::kLtOpN;
  int m = 24, n = 20, k = 48, batch = 1;
  bool dense = false;  // else columns are padded
  float alpha = 1, beta = 0;
  std::int32_t pointers = driver::kLtPointerHost;
  std::int32_t epilogue = driver::kLtEpilogueDefault;
  bool scales = false;
  std::int32_t mode_a = driver::kLtScaleScalar, mode_b = driver::kLtScaleScalar;
  float d_scale = 0;  // 0: none
  bool amax = false;
  int algorithms = 3;
};

constexpr auto kF32 = LtType::f32, kF16 = LtType::f16, kBf16 = LtType::bf16, kE4m3 = LtType::e4m3,
               kE5m2 = LtType::e5m2;
constexpr std::int32_t kVector = driver::kLtScaleVector128, kBlock = driver::kLtScaleBlock128,
                       kOuter = driver::kLtScaleOuterVector;

const Case kCases[] = {
    {.why = "TN"},
    {.why = "NN", .op_a = driver::kLtOpN},
    {.why = "NT", .op_a = driver::kLtOpN, .op_b = driver::kLtOpT},
    {.why = "TT", .op_b = driver::kLtOpT},
    {.why = "f16", .a = kF16, .b = kF16, .c = kF16, .d = kF16},
    {.why = "f16 in f16",
     .a = kF16,
     .b = kF16,
     .c = kF16,
     .d = kF16,
     .compute = LtCompute::f16,
     .alpha = 0.5f,
     .beta = 2},
    {.why = "f32", .a = kF32, .b = kF32, .c = kF32, .d = kF32},
    {.why = "tf32", .a = kF32, .b = kF32, .c = kF32, .d = kF32, .compute = LtCompute::tf32},
    {.why = "bf16 to f32", .c = kF32, .d = kF32},
    {.why = "one column", .n = 1},
    {.why = "odd extents, dense: no 16 bytes of alignment",
     .m = 7,
     .n = 5,
     .k = 3,
     .dense = true,
     .algorithms = 2},
    {.why = "batch", .batch = 3},
    {.why = "alpha and beta", .alpha = 1.5f, .beta = -0.5f},
    {.why = "the same on the device",
     .batch = 2,
     .alpha = 1.5f,
     .beta = -0.5f,
     .pointers = driver::kLtPointerDevice},
    {.why = "beta 0 on the device", .pointers = driver::kLtPointerDevice},
    {.why = "relu", .epilogue = driver::kLtEpilogueRelu},
    {.why = "bias", .epilogue = driver::kLtEpilogueBias},
    {.why = "relu, bias",
     .batch = 2,
     .epilogue = driver::kLtEpilogueRelu | driver::kLtEpilogueBias},
    {.why = "gelu", .epilogue = driver::kLtEpilogueGelu},
    {.why = "gelu, bias, aux",
     .batch = 2,
     .alpha = 0.25f,
     .beta = 0.5f,
     .epilogue = driver::kLtEpilogueGelu | driver::kLtEpilogueBias | driver::kLtEpilogueAux},
    {.why = "gelu, aux",
     .a = kF32,
     .b = kF32,
     .c = kF32,
     .d = kF32,
     .epilogue = driver::kLtEpilogueGelu | driver::kLtEpilogueAux},
    {.why = "dgelu", .epilogue = driver::kLtEpilogueDgelu},
    {.why = "dgelu, bgrad", .batch = 2, .epilogue = driver::kLtEpilogueDgeluBgrad},
    {.why = "fp8", .a = kE4m3, .b = kE4m3},
    {.why = "fp8, tensor scales, f32 out",
     .a = kE4m3,
     .b = kE5m2,
     .c = kF32,
     .d = kF32,
     .scales = true},
    {.why = "fp8 out, saturated by its scale",
     .a = kE4m3,
     .b = kE4m3,
     .d = kE4m3,
     .m = 32,
     .alpha = -1,
     .beta = 0.5f,
     .scales = true,
     .d_scale = 300,
     .amax = true},
    {.why = "e5m2 out, bias, gelu",
     .a = kE5m2,
     .b = kE4m3,
     .d = kE5m2,
     .m = 32,
     .epilogue = driver::kLtEpilogueGelu | driver::kLtEpilogueBias,
     .scales = true,
     .d_scale = 4},
    {.why = "fp8 out, aux as C",
     .a = kE4m3,
     .b = kE4m3,
     .d = kE4m3,
     .m = 32,
     .epilogue = driver::kLtEpilogueGelu | driver::kLtEpilogueAux},
    {.why = "fp8, dgelu, bgrad", .a = kE4m3, .b = kE4m3, .epilogue = driver::kLtEpilogueDgeluBgrad},
    {.why = "no k, N by T",
     .op_a = driver::kLtOpN,
     .op_b = driver::kLtOpT,
     .k = 0,
     .beta = 0.5f,
     .algorithms = 1},
    {.why = "no k", .k = 0, .beta = 0.5f, .algorithms = 1},
    {.why = "fp8 to f32 with a bf16 bias",
     .a = kE4m3,
     .b = kE4m3,
     .c = kF32,
     .d = kF32,
     .epilogue = driver::kLtEpilogueBias},
    {.why = "row scales",
     .a = kE4m3,
     .b = kE4m3,
     .alpha = 2,
     .scales = true,
     .mode_a = kOuter,
     .mode_b = kOuter},
    {.why = "128 by 128 and 1 by 128",
     .a = kE4m3,
     .b = kE4m3,
     .m = 144,
     .n = 12,
     .k = 288,
     .scales = true,
     .mode_a = kBlock,
     .mode_b = kVector},
    {.why = "1 by 128 and 128 by 128, many of them",
     .a = kE4m3,
     .b = kE4m3,
     .c = kF16,
     .d = kF16,
     .m = 16,
     .n = 260,
     .k = 656,
     .scales = true,
     .mode_a = kVector,
     .mode_b = kBlock},
    {.why = "1 by 128 twice",
     .a = kE4m3,
     .b = kE4m3,
     .m = 16,
     .n = 12,
     .k = 144,
     .scales = true,
     .mode_a = kVector,
     .mode_b = kVector},
};

/// A matrix in both memories, column-major. What lies between columns is NaN.
struct Matrix {
  Matrix(LtType lt_type, int row_count, int col_count, int batch_count, bool dense)
      : lt(lt_type),
        type(dtype(lt_type)),
        rows(row_count),
        cols(col_count),
        batch(batch_count),
        ld(dense ? rows : (rows + 15) / 16 * 16 + 16),
        stride(ld * cols + (dense ? 0 : 32)),
        bytes(std::max<std::size_t>(1, static_cast<std::size_t>(((batch - 1) * stride + ld * cols) *
                                                                size_bytes(type))),
              0xff) {}
  std::int64_t at(std::int64_t z, std::int64_t r, std::int64_t c) const {
    return z * stride + c * ld + r;
  }
  double get(std::int64_t z, std::int64_t r, std::int64_t c) const {
    return numeric::load(type, bytes.data(), at(z, r, c));
  }
  /// Eighths up to 1, exact in every type, times a factor.
  void randomise(std::uint64_t seed, float factor = 1) {
    for (int z = 0; z < batch; ++z) {
      for (int c = 0; c < cols; ++c) {
        for (int r = 0; r < rows; ++r) {
          const auto bits = driver::scramble(seed * 1000003 + static_cast<U64>(at(z, r, c)));
          numeric::store(type, bytes.data(), at(z, r, c),
                         factor * static_cast<float>(static_cast<int>(bits % 17) - 8) / 8);
        }
      }
    }
  }

  LtType lt;
  DType type;
  std::int64_t rows, cols, batch, ld, stride;
  std::vector<std::uint8_t> bytes;
};

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

class LtProblem {
 public:
  LtProblem(const Api& api, Gpu& gpu, const Case& c) : lt_(api.lt), gpu_(gpu), c_(c) {
    EXPECT_EQ(lt_.create(&handle_), 0);
    EXPECT_EQ(lt_.desc_create(&desc_, static_cast<int>(c.compute), code(scale_type())), 0);
    set(LtDesc::trans_a, c.op_a);
    set(LtDesc::trans_b, c.op_b);
    set(LtDesc::epilogue, c.epilogue);
    set(LtDesc::pointer_mode, c.pointers);
    EXPECT_EQ(lt_.preference_create(&preference_), 0);
    prefer(driver::LtPref::workspace_bytes, std::uint64_t{kWorkspace});
    a_.randomise(1, excess());
    b_.randomise(2, excess());
    if (c.beta != 0) c_matrix_.randomise(3);
    for (int i = 0; i < 4; ++i) {
      const Matrix& x = *matrices_[i];
      EXPECT_EQ(lt_.layout_create(&layouts_[i], code(x.lt), static_cast<U64>(x.rows),
                                  static_cast<U64>(x.cols), x.ld),
                0);
      layout_set(i, driver::LtLayoutAttribute::batch_count, static_cast<std::int32_t>(x.batch));
      layout_set(i, driver::LtLayoutAttribute::batch_stride, x.stride);
      pointers_[i] = gpu.put(x.bytes);
    }
    if (c.scales) {
      set(LtDesc::a_scale_mode, c.mode_a);
      set(LtDesc::b_scale_mode, c.mode_b);
      scale_a_ = scales(c.mode_a, c.m, 4);
      scale_b_ = scales(c.mode_b, c.n, 5);
      set(LtDesc::a_scale_pointer, gpu.put(scale_a_));
      set(LtDesc::b_scale_pointer, gpu.put(scale_b_));
    }
    if (c.d_scale != 0) set(LtDesc::d_scale_pointer, gpu.put<float>({c.d_scale}));
    if (c.amax) set(LtDesc::amax_d_pointer, amax_ = gpu.put<float>({-1}));
    if (has_bias() || has_gradient()) {
      if (has_bias()) bias_.randomise(6);
      set(LtDesc::bias_pointer, bias_at_ = gpu.put(bias_.bytes));
      set(LtDesc::bias_batch_stride, bias_.stride);
      if (c.batch > 1) set(LtDesc::bias_type, static_cast<std::int32_t>(code(bias_.lt)));
    }
    if (has_aux()) {
      if (is_backward()) aux_.randomise(7);
      set(LtDesc::aux_pointer, aux_at_ = gpu.put(aux_.bytes));
      set(LtDesc::aux_ld, aux_.ld);
      if (aux_.lt != c.d) set(LtDesc::aux_type, static_cast<std::int32_t>(code(aux_.lt)));
      set(LtDesc::aux_batch_stride, aux_.stride);
    }
  }
  LtProblem(const LtProblem&) = delete;
  ~LtProblem() {
    EXPECT_EQ(lt_.desc_destroy(desc_), 0);
    EXPECT_EQ(lt_.preference_destroy(preference_), 0);
    for (driver::LtLayout layout : layouts_) EXPECT_EQ(lt_.layout_destroy(layout), 0);
  }

  template <class T>
  void set(LtDesc attribute, T value) {
    EXPECT_EQ(lt_.desc_set(desc_, static_cast<int>(attribute), &value, sizeof value), 0)
        << static_cast<int>(attribute);
  }
  template <class T>
  void prefer(driver::LtPref attribute, T value) {
    EXPECT_EQ(lt_.preference_set(preference_, static_cast<int>(attribute), &value, sizeof value),
              0);
  }
  /// Another pitch for A.
  void set_pitch(std::int64_t ld) {
    EXPECT_EQ(lt_.layout_destroy(layouts_[0]), 0);
    EXPECT_EQ(lt_.layout_create(&layouts_[0], code(a_.lt), static_cast<U64>(a_.rows),
                                static_cast<U64>(a_.cols), ld),
              0);
  }
  template <class T>
  void layout_set(int i, driver::LtLayoutAttribute attribute, T value) {
    EXPECT_EQ(lt_.layout_set(layouts_[i], static_cast<int>(attribute), &value, sizeof value), 0);
  }

  LtStatus heuristic(std::vector<driver::LtHeuristicResult>& results, int asked = 8) {
    results.resize(static_cast<std::size_t>(asked));
    int found = -1;
    const LtStatus status = lt_.heuristic(handle_, desc_, layouts_[0], layouts_[1], layouts_[2],
                                          layouts_[3], preference_, asked, results.data(), &found);
    results.resize(static_cast<std::size_t>(found));
    return status;
  }
  std::vector<driver::LtHeuristicResult> algorithms() {
    std::vector<driver::LtHeuristicResult> results;
    EXPECT_EQ(heuristic(results), 0);
    return results;
  }
  LtStatus check(const driver::LtAlgo& algo, driver::LtHeuristicResult& result) {
    return lt_.algo_check(handle_, desc_, layouts_[0], layouts_[1], layouts_[2], layouts_[3], &algo,
                          &result);
  }

  LtStatus launch(const driver::LtHeuristicResult& with) {
    if (workspace_ == 0) workspace_ = gpu_.alloc(kWorkspace);
    return launch(with.algo, workspace_, with.workspace_bytes, pointers_[0]);
  }
  LtStatus launch(const driver::LtAlgo& algo, CuPointer workspace, std::size_t bytes, CuPointer a) {
    return launch(algo, workspace, bytes, a, c_pointer());
  }
  /// With beta 0 C is not read: there need be none, or nothing at its address.
  CuPointer c_pointer() const {
    if (c_.beta != 0) return pointers_[2];
    return c_.pointers == driver::kLtPointerHost ? CuPointer{0} : CuPointer{64};
  }
  LtStatus launch(const driver::LtAlgo& algo, CuPointer workspace, std::size_t bytes, CuPointer a,
                  CuPointer c) {
    // In the scale type, in host or device memory.
    float factors[2] = {};
    const DType type = dtype(scale_type());
    numeric::store(type, &factors[0], 0, c_.alpha);
    numeric::store(type, &factors[1], 0, c_.beta);
    const void *alpha = &factors[0], *beta = &factors[1];
    if (c_.pointers == driver::kLtPointerDevice) {
      if (factors_ == 0) factors_ = gpu_.put(std::vector<float>(factors, factors + 2));
      alpha = reinterpret_cast<const void*>(factors_);
      beta = reinterpret_cast<const void*>(factors_ + sizeof(float));
    }
    const auto at = [](CuPointer p) { return reinterpret_cast<void*>(p); };
    return lt_.matmul(handle_, desc_, alpha, at(a), layouts_[0], at(pointers_[1]), layouts_[1],
                      beta, at(c), layouts_[2], at(pointers_[3]), layouts_[3], &algo, at(workspace),
                      bytes, gpu_.stream);
  }

  /// What makes the first row of D is NaN from here on.
  void spoil_a() {
    const std::int64_t bytes = a_.rows * size_bytes(a_.type);
    gpu_.upload(pointers_[0], std::vector<std::uint8_t>(static_cast<std::size_t>(bytes), 0xff));
  }
  /// D(0, 0) of a run.
  double first_of(const driver::LtHeuristicResult& with) {
    EXPECT_EQ(launch(with), 0);
    d_.bytes = gpu_.get<std::uint8_t>(pointers_[3], d_.bytes.size());
    return d_.get(0, 0, 0);
  }
  float amax() { return gpu_.get<float>(amax_, 1)[0]; }
  CuPointer a() const { return pointers_[0]; }
  CuPointer d() const { return pointers_[3]; }

  /// Runs it and compares with a plain loop.
  void run(const driver::LtHeuristicResult& with) {
    gpu_.upload(pointers_[3], std::vector<std::uint8_t>(d_.bytes.size(), 0xff));
    ASSERT_EQ(launch(with), 0);
    ASSERT_EQ(gpu_.synchronize(), 0);
    d_.bytes = gpu_.get<std::uint8_t>(pointers_[3], d_.bytes.size());
    if (has_aux() && !is_backward()) {
      aux_.bytes = gpu_.get<std::uint8_t>(aux_at_, aux_.bytes.size());
    }
    if (has_gradient()) bias_.bytes = gpu_.get<std::uint8_t>(bias_at_, bias_.bytes.size());
    compare();
  }

 private:
  static constexpr std::size_t kWorkspace = 1 << 20;

  bool has(std::int32_t flag) const { return (c_.epilogue & flag) != 0; }
  bool has_bias() const { return has(driver::kLtEpilogueBias); }
  bool has_aux() const { return has(driver::kLtEpilogueAux); }
  bool is_backward() const { return has(64); }
  bool has_gradient() const { return c_.epilogue == driver::kLtEpilogueDgeluBgrad; }
  LtType scale_type() const { return c_.compute == LtCompute::f16 ? kF16 : kF32; }
  LtType bias_type() const {
    if (size_bytes(dtype(c_.a)) > 1) return c_.d;
    return c_.c == kF32 ? kBf16 : c_.c;
  }

  LtType aux_type() const { return size_bytes(dtype(c_.d)) == 1 ? c_.c : c_.d; }

  /// 128 elements of k, and 1 or 128 of m or n, share one, that is contiguous along m, n or k.
  std::vector<float> scales(std::int32_t mode, int extent, U64 seed) const {
    const int blocks = (c_.k + 127) / 128, pitch = (blocks + 3) / 4 * 4;
    const int count = mode == kOuter    ? extent
                      : mode == kVector ? extent * blocks
                      : mode == kBlock  ? (extent + 127) / 128 * pitch
                                        : 1;
    std::vector<float> values;
    for (U64 i = 0; i < static_cast<U64>(count); ++i) {
      values.push_back(static_cast<float>(driver::scramble(seed * 77 + i) % 7 + 1) / 4);
    }
    return values;
  }
  /// What tf32 rounds away.
  float excess() const { return c_.compute == LtCompute::tf32 ? 1 + 0x1p-12f : 1; }
  double scale(const std::vector<float>& values, std::int32_t mode, int i, int l) const {
    if (values.empty()) return 1;
    const int blocks = (c_.k + 127) / 128, pitch = (blocks + 3) / 4 * 4;
    const int extent = &values == &scale_a_ ? c_.m : c_.n;
    const int at = mode == kOuter    ? i
                   : mode == kVector ? l / 128 * extent + i
                   : mode == kBlock  ? i / 128 * pitch + l / 128
                                     : 0;
    return values[static_cast<std::size_t>(at)];
  }

  /// |got - want| within a rounding to the type and what f32 sums may differ by.
  static void expect_near(double got, double want, double magnitude, DType type,
                          const std::string& where) {
    const double stored = std::clamp(want, -numeric::max_finite(type), numeric::max_finite(type));
    const double bound = 1.01 * numeric::unit_roundoff(type) * std::fabs(stored) +
                         numeric::min_subnormal(type) + 1e-6 * (1 + magnitude);
    EXPECT_LE(std::fabs(got - stored), bound) << where << ": got " << got << ", want " << want;
  }

  void compare() {
    double amax = 0;
    for (int z = 0; z < c_.batch; ++z) {
      std::vector<double> gradient(static_cast<std::size_t>(c_.m));
      for (int j = 0; j < c_.n; ++j) {
        for (int i = 0; i < c_.m; ++i) {
          double sum = 0, magnitude = 0;
          for (int l = 0; l < c_.k; ++l) {
            const double x = c_.op_a == driver::kLtOpT ? a_.get(z, l, i) : a_.get(z, i, l);
            const double y = c_.op_b == driver::kLtOpT ? b_.get(z, j, l) : b_.get(z, l, j);
            const double term = x * y / (excess() * excess()) * scale(scale_a_, c_.mode_a, i, l) *
                                scale(scale_b_, c_.mode_b, j, l);
            sum += term;
            magnitude += std::fabs(term);
          }
          // Sums in f16 are rounded as such.
          if (c_.compute == LtCompute::f16) magnitude *= 1e3;
          double want = c_.alpha * sum;
          if (c_.beta != 0) want += c_.beta * c_matrix_.get(z, i, j);
          if (has_bias()) want += bias_.get(z, i, 0);
          const std::string where = fmt::format("({}, {}, {})", z, i, j);
          if (is_backward()) {
            const double x = aux_.get(z, i, j), h = 1e-5;
            want *= (gelu(x + h) - gelu(x - h)) / (2 * h);
            gradient[static_cast<std::size_t>(i)] += want;
          } else {
            if (has_aux()) expect_near(aux_.get(z, i, j), want, magnitude, aux_.type, where);
            if (has(driver::kLtEpilogueGelu)) want = gelu(want);
            if (has(driver::kLtEpilogueRelu)) want = std::max(want, 0.0);
          }
          amax = std::max(amax, std::fabs(want));
          const double d_scale = c_.d_scale == 0 ? 1 : c_.d_scale;
          expect_near(d_.get(z, i, j), want * d_scale, magnitude * d_scale, d_.type, where);
        }
        for (std::int64_t r = c_.m; r < d_.ld; ++r) {
          EXPECT_TRUE(std::isnan(d_.get(z, r, j))) << "between columns: " << r << ", " << j;
        }
      }
      for (int i = 0; has_gradient() && i < c_.m; ++i) {
        const double want = gradient[static_cast<std::size_t>(i)];
        expect_near(bias_.get(z, i, 0), want, std::fabs(want), bias_.type,
                    fmt::format("gradient {}", i));
      }
    }
    if (c_.amax) {
      EXPECT_NEAR(gpu_.get<float>(amax_, 1)[0], amax, 1e-6 * amax);
      EXPECT_GT(amax * c_.d_scale, 448) << "something was to be saturated";
    }
  }

  const driver::LtApi& lt_;
  Gpu& gpu_;
  Case c_;
  bool transposed_a_ = c_.op_a == driver::kLtOpT, transposed_b_ = c_.op_b == driver::kLtOpT;
  Matrix a_{c_.a, transposed_a_ ? c_.k : c_.m, transposed_a_ ? c_.m : c_.k, c_.batch, c_.dense};
  Matrix b_{c_.b, transposed_b_ ? c_.n : c_.k, transposed_b_ ? c_.k : c_.n, c_.batch, c_.dense};
  Matrix c_matrix_{c_.c, c_.m, c_.n, c_.batch, c_.dense};
  Matrix d_{c_.d, c_.m, c_.n, c_.batch, c_.dense};
  Matrix bias_{bias_type(), c_.m, 1, c_.batch, c_.dense};
  Matrix aux_{aux_type(), c_.m, c_.n, c_.batch, c_.dense};
  const Matrix* matrices_[4] = {&a_, &b_, &c_matrix_, &d_};
  std::vector<float> scale_a_, scale_b_;
  driver::LtHandle handle_ = nullptr;
  driver::LtMatmulDesc desc_ = nullptr;
  driver::LtPreference preference_ = nullptr;
  driver::LtLayout layouts_[4] = {};
  CuPointer pointers_[4] = {}, bias_at_ = 0, aux_at_ = 0, amax_ = 0, factors_ = 0, workspace_ = 0;
};

TEST_F(NullCuda, ProductsAgreeWithAPlainLoop) {
  in_clean_child({{"NULL_CUDA_WAITS", "0,0,0"}}, [](const Api& api) {
    for (const Case& c : kCases) {
      SCOPED_TRACE(c.why);
      Gpu gpu(api);
      LtProblem problem(api, gpu, c);
      const auto algorithms = problem.algorithms();
      EXPECT_EQ(static_cast<int>(algorithms.size()), c.algorithms);
      for (const auto& algorithm : algorithms) problem.run(algorithm);
      if (::testing::Test::HasFailure()) return;
    }
  });
}

TEST_F(NullCuda, ProductsAreCaptured) {
  in_clean_child({}, [](const Api& api) {
    Gpu gpu(api);
    LtProblem problem(api, gpu, {.why = "captured"});
    const auto algorithm = problem.algorithms()[0];
    ASSERT_EQ(problem.launch(algorithm), 0);  // and allocates its workspace
    driver::CuGraph graph = nullptr;
    driver::CuGraphExec exec = nullptr;
    ASSERT_EQ(gpu.cu.capture_begin(gpu.stream, driver::kCuCaptureThreadLocal), 0);
    ASSERT_EQ(problem.launch(algorithm), 0);
    ASSERT_EQ(gpu.cu.capture_end(gpu.stream, &graph), 0);
    ASSERT_EQ(gpu.cu.graph_instantiate(&exec, graph, 0), 0);
    ASSERT_EQ(gpu.cu.graph_launch(exec, gpu.stream), 0);
    EXPECT_EQ(gpu.synchronize(), 0);
    EXPECT_EQ(gpu.cu.graph_exec_destroy(exec), 0);
    EXPECT_EQ(gpu.cu.graph_destroy(graph), 0);
  });
}

TEST_F(NullCuda, RefusesWhatTheRealOneRefuses) {
  struct Refused {
    Case c;
    LtStatus status = driver::kLtNotSupported;
    std::function<void(LtProblem&)> change = nullptr;
  };
  const std::vector<Refused> refused = {
      {{.why = "fp8 is T by N alone", .a = kE4m3, .b = kE4m3, .op_a = driver::kLtOpN}},
      {{.why = "fp8: k is no multiple of 16", .a = kE4m3, .b = kE4m3, .k = 40}},
      {{.why = "fp8: rows of D end amid 16 bytes", .a = kE4m3, .b = kE4m3, .m = 20}},
      {{.why = "fp8: matrices of a batch not 16 bytes apart", .a = kE4m3, .b = kE4m3, .batch = 2},
       driver::kLtNotSupported,
       [](LtProblem& p) {
         p.layout_set(0, driver::LtLayoutAttribute::batch_stride, std::int64_t{64 * 24 + 8});
       }},
      {{.why = "e5m2 by e5m2", .a = kE5m2, .b = kE5m2}},
      {{.why = "e5m2 out of e4m3", .a = kE4m3, .b = kE4m3, .d = kE5m2, .m = 32}},
      {{.why = "mixed inputs", .a = kBf16, .b = kF16}},
      {{.why = "f16 out of bf16", .c = kF16, .d = kF16}},
      {{.why = "tf32 of bf16", .compute = LtCompute::tf32}},
      {{.why = "scales of bf16", .scales = true}, driver::kLtInvalidValue},
      {{.why = "bf16 by f32", .b = kF32}, driver::kLtInvalidValue},
      {{.why = "fp8 by bf16", .a = kE4m3}},
      {{.why = "f16 sums of bf16", .compute = LtCompute::f16}},
      {{.why = "fp8 out beside a C of f32",
        .a = kE4m3,
        .b = kE4m3,
        .c = kF32,
        .d = kE4m3,
        .m = 32}},
      {{.why = "fp8 out beside a C of fp8",
        .a = kE4m3,
        .b = kE4m3,
        .c = kE4m3,
        .d = kE4m3,
        .m = 32}},
      {{.why = "row scales in a batch",
        .a = kE4m3,
        .b = kE4m3,
        .batch = 2,
        .scales = true,
        .mode_a = kOuter,
        .mode_b = kOuter}},
      {{.why = "block scales at 4 bytes",
        .a = kE4m3,
        .b = kE4m3,
        .k = 128,
        .scales = true,
        .mode_a = kBlock,
        .mode_b = kVector},
       driver::kLtNotSupported,
       [](LtProblem& p) { p.set(LtDesc::a_scale_pointer, CuPointer{4096 + 4}); }},
      {{.why = "C of another type", .c = kF32}, driver::kLtInvalidValue},
      {{.why = "a scale of a bf16 D", .a = kE4m3, .b = kE4m3, .d_scale = 2}},
      {{.why = "row scales on one side", .a = kE4m3, .b = kE4m3, .scales = true, .mode_a = kOuter}},
      {{.why = "row scales and fp8 out",
        .a = kE4m3,
        .b = kE4m3,
        .d = kE4m3,
        .m = 32,
        .scales = true,
        .mode_a = kOuter,
        .mode_b = kOuter}},
      {{.why = "blocks on both sides",
        .a = kE4m3,
        .b = kE4m3,
        .scales = true,
        .mode_a = kBlock,
        .mode_b = kBlock}},
      {{.why = "block scales: n is no multiple of 4",
        .a = kE4m3,
        .b = kE4m3,
        .n = 63,
        .k = 128,
        .scales = true,
        .mode_a = kBlock,
        .mode_b = kVector}},
      {{.why = "relu with aux", .epilogue = driver::kLtEpilogueRelu | driver::kLtEpilogueAux}},
      {{.why = "dgelu to fp8",
        .a = kE4m3,
        .b = kE4m3,
        .d = kE4m3,
        .m = 32,
        .epilogue = driver::kLtEpilogueDgelu}},
      {{.why = "aux of another type", .epilogue = driver::kLtEpilogueDgelu},
       driver::kLtInvalidValue,
       [](LtProblem& p) { p.set(LtDesc::aux_type, std::int32_t{code(kF32)}); }},
      {{.why = "aux of e4m3 beside a C of bf16",
        .a = kE4m3,
        .b = kE4m3,
        .d = kE4m3,
        .m = 32,
        .epilogue = driver::kLtEpilogueGelu | driver::kLtEpilogueAux},
       driver::kLtInvalidValue,
       [](LtProblem& p) { p.set(LtDesc::aux_type, std::int32_t{code(kE4m3)}); }},
      {{.why = "bias of another type, fp8",
        .a = kE4m3,
        .b = kE4m3,
        .epilogue = driver::kLtEpilogueBias},
       driver::kLtNotSupported,
       [](LtProblem& p) { p.set(LtDesc::bias_type, std::int32_t{code(kF32)}); }},
      {{.why = "bias of fp8 at 8 bytes",
        .a = kE4m3,
        .b = kE4m3,
        .epilogue = driver::kLtEpilogueBias},
       driver::kLtNotSupported,
       [](LtProblem& p) { p.set(LtDesc::bias_pointer, CuPointer{4096 + 8}); }},
      {{.why = "aux pitch of no 8 elements", .epilogue = driver::kLtEpilogueDgelu},
       driver::kLtNotSupported,
       [](LtProblem& p) { p.set(LtDesc::aux_ld, std::int64_t{28}); }},
      {{.why = "bias of another type", .epilogue = driver::kLtEpilogueBias},
       driver::kLtInvalidValue,
       [](LtProblem& p) { p.set(LtDesc::bias_type, std::int32_t{code(kF32)}); }},
      {{.why = "pointer mode of vectors"},
       driver::kLtNotSupported,
       [](LtProblem& p) { p.set(LtDesc::pointer_mode, std::int32_t{2}); }},
      {{.why = "shapes that do not fit"},
       driver::kLtInvalidValue,
       [](LtProblem& p) { p.set(LtDesc::trans_b, std::int32_t{driver::kLtOpT}); }},
      {{.why = "a pitch below the rows"},
       driver::kLtInvalidValue,
       [](LtProblem& p) { p.set_pitch(47); }},
      {{.why = "batches that do not fit"},
       driver::kLtInvalidValue,
       [](LtProblem& p) {
         p.layout_set(1, driver::LtLayoutAttribute::batch_count, std::int32_t{2});
       }},
      {{.why = "fp8 operands of no alignment", .a = kE4m3, .b = kE4m3},
       driver::kLtNotSupported,
       [](LtProblem& p) { p.prefer(driver::LtPref::alignment_b, std::uint32_t{8}); }},
  };
  in_clean_child({}, [&](const Api& api) {
    for (const Refused& r : refused) {
      SCOPED_TRACE(r.c.why);
      Gpu gpu(api);
      LtProblem problem(api, gpu, r.c);
      if (r.change) r.change(problem);
      std::vector<driver::LtHeuristicResult> results;
      EXPECT_EQ(problem.heuristic(results), r.status);
      EXPECT_TRUE(results.empty());
    }
  });
  in_clean_child({{"NULL_CUDA_SM", "80"}}, [](const Api& api) {
    Gpu gpu(api);
    LtProblem problem(api, gpu, {.why = "fp8 before Ada", .a = kE4m3, .b = kE4m3});
    std::vector<driver::LtHeuristicResult> results;
    EXPECT_EQ(problem.heuristic(results), driver::kLtNotSupported);
  });
}

TEST_F(NullCuda, OffersWhatThePreferenceAdmits) {
  in_clean_child({}, [](const Api& api) {
    Gpu gpu(api);
    LtProblem problem(api, gpu, {.why = "plain", .m = 24, .n = 20, .batch = 2});
    const auto ids = [&] {
      std::vector<int> found;
      for (const auto& result : problem.algorithms()) {
        int id = 0;
        std::size_t written = 0;
        EXPECT_EQ(api.lt.config_get(&result.algo, 0, &id, sizeof id, &written), 0);
        EXPECT_EQ(written, sizeof id);
        found.push_back(id);
      }
      return found;
    };
    EXPECT_EQ(ids(), (std::vector{66, 24, 20}));
    std::vector<driver::LtHeuristicResult> results;
    EXPECT_EQ(problem.heuristic(results, 2), 0);
    EXPECT_EQ(results.size(), 2u);
    EXPECT_EQ(results[0].workspace_bytes, 0u);
    EXPECT_EQ(results[1].workspace_bytes, 24u * 20 * 2 * 2 * 4);
    problem.prefer(driver::LtPref::workspace_bytes, std::uint64_t{24 * 20 * 2 * 2 * 4 - 1});
    EXPECT_EQ(ids(), (std::vector{66, 20}));
    problem.prefer(driver::LtPref::workspace_bytes, std::uint64_t{1 << 20});
    problem.prefer(driver::LtPref::reduction_schemes, std::uint32_t{driver::kLtReduceInPlace});
    EXPECT_EQ(ids(), (std::vector{66, 20}));
    problem.prefer(driver::LtPref::alignment_d, std::uint32_t{8});
    EXPECT_EQ(ids(), (std::vector{20}));

    LtProblem biased(api, gpu, {.why = "bias", .epilogue = driver::kLtEpilogueBias});
    EXPECT_EQ(biased.algorithms().size(), 3u);
    const auto best = biased.algorithms()[0];
    biased.set(LtDesc::bias_pointer, CuPointer{4096 + 8});
    EXPECT_EQ(biased.algorithms().size(), 2u) << "66 wants 16 bytes of a bias";
    driver::LtHeuristicResult result{};
    EXPECT_EQ(biased.check(best.algo, result), driver::kLtNotSupported);
    EXPECT_EQ(biased.launch(best), driver::kLtNotSupported);
  });
}

TEST_F(NullCuda, AConfigurationIsRestoredWholeOrNotAtAll) {
  in_clean_child({}, [](const Api& api) {
    Gpu gpu(api);
    LtProblem problem(api, gpu, {.why = "plain"});
    driver::LtHandle handle = nullptr;
    ASSERT_EQ(api.lt.create(&handle), 0);
    const int bf16 = code(kBf16), f32 = code(kF32), compute = static_cast<int>(LtCompute::f32);
    for (const auto& offered : problem.algorithms()) {
      int id = 0;
      ASSERT_EQ(api.lt.config_get(&offered.algo, 0, &id, sizeof id, nullptr), 0);
      driver::LtAlgo restored;
      ASSERT_EQ(api.lt.algo_init(handle, compute, f32, bf16, bf16, bf16, bf16, id, &restored), 0);
      driver::LtHeuristicResult result{};
      EXPECT_EQ(problem.check(restored, result), driver::kLtNotSupported);
      for (int attribute = 1; attribute <= 8; ++attribute) {
        std::uint32_t value = 0;
        std::size_t bytes = 0;
        EXPECT_EQ(api.lt.config_get(&offered.algo, attribute, nullptr, 0, &bytes), 0);
        EXPECT_EQ(bytes, attribute < 7 ? 4u : 2u) << attribute;
        EXPECT_EQ(api.lt.config_get(&offered.algo, attribute, &value, bytes + 1, &bytes),
                  driver::kLtInvalidValue);
        EXPECT_EQ(api.lt.config_get(&offered.algo, attribute, &value, bytes, &bytes), 0);
        EXPECT_EQ(api.lt.config_set(&restored, attribute, &value, bytes), 0);
      }
      EXPECT_EQ(restored, offered.algo);
      EXPECT_EQ(problem.check(restored, result), 0);
      EXPECT_EQ(result.workspace_bytes, offered.workspace_bytes);
      EXPECT_EQ(result.state, 0);
    }
    driver::LtAlgo algo;
    EXPECT_EQ(api.lt.algo_init(handle, compute, f32, bf16, bf16, bf16, bf16, 67, &algo),
              driver::kLtInvalidValue);
    EXPECT_EQ(api.lt.algo_init(handle, compute, f32, bf16, f32, bf16, bf16, 66, &algo),
              driver::kLtInvalidValue);
    EXPECT_EQ(api.lt.algo_init(handle, compute, f32, bf16, code(kF16), bf16, bf16, 66, &algo),
              driver::kLtNotSupported);
    // One for other types.
    ASSERT_EQ(api.lt.algo_init(handle, compute, f32, f32, f32, f32, f32, 66, &algo), 0);
    EXPECT_EQ(problem.launch(algo, 0, 0, gpu.alloc(1 << 16)), driver::kLtInvalidValue);
  });
}

TEST_F(NullCuda, ProductsAreHeldToTheirWorkspaceAndAlignment) {
  in_clean_child({}, [](const Api& api) {
    Gpu gpu(api);
    LtProblem problem(api, gpu, {.why = "plain"});
    const auto algorithms = problem.algorithms();
    const CuPointer workspace = gpu.alloc(1 << 16), a = gpu.alloc(1 << 16);
    const auto& split = algorithms[1];
    EXPECT_EQ(problem.launch(split.algo, workspace, split.workspace_bytes - 1, a),
              driver::kLtInvalidValue);
    EXPECT_EQ(problem.launch(split.algo, 0, split.workspace_bytes, a), driver::kLtInvalidValue);
    EXPECT_EQ(problem.launch(split.algo, workspace + 64, split.workspace_bytes, a),
              driver::kLtInvalidValue);
    EXPECT_EQ(problem.launch(algorithms[0].algo, 0, 0, a + 8), driver::kLtNotSupported);
    EXPECT_EQ(problem.launch(algorithms[2].algo, 0, 0, a + 8), 0);
    EXPECT_EQ(gpu.synchronize(), 0);
  });
}

TEST_F(NullCuda, AFactorOfZeroSkipsTheProductWhereKIsSplit) {
  in_clean_child({}, [](const Api& api) {
    for (const auto pointers : {driver::kLtPointerHost, driver::kLtPointerDevice}) {
      Gpu gpu(api);
      LtProblem problem(api, gpu, {.why = "alpha 0", .alpha = 0, .pointers = pointers});
      problem.spoil_a();
      const auto algorithms = problem.algorithms();
      ASSERT_EQ(algorithms.size(), 3u);
      EXPECT_TRUE(std::isnan(problem.first_of(algorithms[0])));
      EXPECT_EQ(problem.first_of(algorithms[1]), 0);
      EXPECT_TRUE(std::isnan(problem.first_of(algorithms[2])));
    }
    // None of fp8 splits k.
    Gpu gpu(api);
    LtProblem problem(
        api, gpu,
        {.why = "amax", .a = kE4m3, .b = kE4m3, .d = kE4m3, .m = 32, .alpha = 0, .amax = true});
    problem.spoil_a();
    for (const auto& algorithm : problem.algorithms()) {
      EXPECT_EQ(algorithm.workspace_bytes, 0u);
      EXPECT_TRUE(std::isnan(problem.first_of(algorithm)));
      EXPECT_TRUE(std::isnan(problem.amax()));
    }
  });
}

TEST_F(NullCuda, CMayBeMissingOrBeDWhereThatIsSafe) {
  in_clean_child({}, [](const Api& api) {
    Gpu gpu(api);
    LtProblem on_device(
        api, gpu, {.why = "C null, factors on the device", .pointers = driver::kLtPointerDevice});
    EXPECT_EQ(on_device.launch(on_device.algorithms()[0].algo, 0, 0, on_device.a(), 0),
              driver::kLtInvalidValue);
    LtProblem needed(api, gpu, {.why = "C null, and beta not 0", .beta = 1});
    EXPECT_EQ(needed.launch(needed.algorithms()[0].algo, 0, 0, needed.a(), 0),
              driver::kLtInvalidValue);
    LtProblem in_place(api, gpu, {.why = "in place"});
    EXPECT_EQ(in_place.launch(in_place.algorithms()[0].algo, 0, 0, in_place.a(), in_place.d()), 0);
    LtProblem other(api, gpu,
                    {.why = "D of another type", .a = kE4m3, .b = kE4m3, .d = kE4m3, .m = 32});
    EXPECT_EQ(other.launch(other.algorithms()[0].algo, 0, 0, other.a(), other.d()),
              driver::kLtInvalidValue);
    EXPECT_EQ(gpu.synchronize(), 0);
  });
}

TEST_F(NullCuda, AnOperandThatEndsTooSoonLosesTheContext) {
  in_child({}, [](const Api& api) {
    Gpu gpu(api);
    LtProblem problem(api, gpu, {.why = "plain"});
    const auto algorithms = problem.algorithms();
    // A is 48 by 24 with a pitch of 64 elements, and ends with its last element.
    constexpr std::size_t kBytes = (23 * 64 + 48) * 2;
    EXPECT_EQ(problem.launch(algorithms[0].algo, 0, 0, gpu.alloc(kBytes)), 0);
    EXPECT_EQ(gpu.synchronize(), 0);
    EXPECT_EQ(problem.launch(algorithms[0].algo, 0, 0, gpu.alloc(kBytes - 1)), 0);
    EXPECT_EQ(gpu.synchronize(), 700);
    std::vector<driver::LtHeuristicResult> results;
    EXPECT_EQ(problem.heuristic(results), 14);
  });
  const StateFile state(state_path());
  EXPECT_EQ(state->misuses, 1u) << state.misuses();
  EXPECT_EQ(state->ended_lost, 1u);
}

TEST_F(NullCuda, AlgorithmsDifferInSpeed) {
  in_clean_child({{"NULL_CUDA_WAITS", "100,1000,4000"}}, [](const Api& api) {
    Gpu gpu(api);
    LtProblem problem(api, gpu, {.why = "plain"});
    driver::CuEvent first = nullptr, last = nullptr;
    ASSERT_EQ(gpu.cu.event_create(&first, 0), 0);
    ASSERT_EQ(gpu.cu.event_create(&last, 0), 0);
    std::vector<float> fastest;
    for (const auto& algorithm : problem.algorithms()) {
      fastest.push_back(1e9f);
      for (int i = 0; i < 5; ++i) {
        ASSERT_EQ(gpu.cu.event_record(first, gpu.stream), 0);
        ASSERT_EQ(problem.launch(algorithm), 0);
        ASSERT_EQ(gpu.cu.event_record(last, gpu.stream), 0);
        ASSERT_EQ(gpu.cu.event_synchronize(last), 0);
        float ms = 0;
        ASSERT_EQ(gpu.cu.event_elapsed(&ms, first, last), 0);
        fastest.back() = std::min(fastest.back(), ms);
      }
    }
    ASSERT_EQ(fastest.size(), 3u);
    EXPECT_GE(fastest[0], 0.1f);
    EXPECT_GE(fastest[1], 1.0f);
    EXPECT_GE(fastest[2], 4.0f);
    EXPECT_LT(fastest[0], fastest[2]);
    EXPECT_EQ(gpu.cu.event_destroy(first), 0);
    EXPECT_EQ(gpu.cu.event_destroy(last), 0);
  });
}

}  // namespace
}  // namespace lapidary::null_cuda
