#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace lapidary {

/// What kind of failure: a caller acts on this, a person reads the message.
enum class ErrorCode {
  invalid_argument,  ///< the caller's mistake
  unsupported,       ///< asked well, cannot serve
  resource_limit,    ///< memory, shared memory, registers, file handles
  compile_failed,
  launch_failed,
  wrong_result,  ///< verification failed
  io,
  internal,      ///< a defect of ours
  device_fault,  ///< the device or its context is lost
  timeout,
  cancelled,
};

/// "invalid_argument", "timeout": the spelling in JSON and logs.
const char* name(ErrorCode code);

/// One line: who speaks, what happened with the value it got, what would be right.
struct Error {
  ErrorCode code = ErrorCode::internal;
  std::string message;
  bool operator==(const Error&) const = default;
};

/// A T or an Error, with std::expected's names so that it can become it later.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }
  T& operator*() & { return std::get<0>(state_); }
  const T& operator*() const& { return std::get<0>(state_); }
  T&& operator*() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  bool has_value() const { return !error_.has_value(); }
  explicit operator bool() const { return has_value(); }
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace lapidary

#define LAPIDARY_CONCAT_(a, b) a##b
#define LAPIDARY_CONCAT(a, b) LAPIDARY_CONCAT_(a, b)
#define LAPIDARY_TRY_(tmp, lhs, ...)        \
  auto tmp = (__VA_ARGS__);                 \
  if (!tmp.has_value()) return tmp.error(); \
  lhs = *std::move(tmp)
/// LAPIDARY_TRY(const auto x, make_x()): x is the value, or the error is returned to our caller.
#define LAPIDARY_TRY(lhs, ...) \
  LAPIDARY_TRY_(LAPIDARY_CONCAT(lapidary_try_, __LINE__), lhs, __VA_ARGS__)
/// The same for a Status, whose success carries nothing.
#define LAPIDARY_TRY_STATUS(...)                                                                \
  do {                                                                                          \
    if (auto lapidary_status = (__VA_ARGS__); !lapidary_status) return lapidary_status.error(); \
  } while (false)
