#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <type_traits>
#include <utility>

namespace lapidary {

/// A vector of plain values whose first N live in the object itself: no allocation while it is
/// short. Layouts and tuples are made of it.
template <class T, std::size_t N>
class InlineVector {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_default_constructible_v<T>);

 public:
  InlineVector() = default;
  InlineVector(std::initializer_list<T> values) { append(values.begin(), values.size()); }
  InlineVector(const InlineVector& other) { append(other.data_, other.size_); }
  InlineVector(InlineVector&& other) noexcept { take(other); }
  InlineVector& operator=(const InlineVector& other) {
    if (this != &other) {
      size_ = 0;
      append(other.data_, other.size_);
    }
    return *this;
  }
  InlineVector& operator=(InlineVector&& other) noexcept {
    if (this != &other) {
      release();
      take(other);
    }
    return *this;
  }
  ~InlineVector() { release(); }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  T& back() { return data_[size_ - 1]; }
  const T& back() const { return data_[size_ - 1]; }
  operator std::span<const T>() const { return {data_, size_}; }

  void push_back(const T& value) {
    const T copy = value;  // it may lie in the buffer that grows
    reserve(size_ + 1);
    data_[size_++] = copy;
  }
  void pop_back() { --size_; }
  void clear() { size_ = 0; }
  /// Adds values that are not this vector's own.
  void append(const T* values, std::size_t count) {
    reserve(size_ + count);
    std::copy_n(values, count, data_ + size_);
    size_ += static_cast<std::uint32_t>(count);
  }
  void append(std::span<const T> values) { append(values.data(), values.size()); }

  bool operator==(const InlineVector& other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
  }

 private:
  void reserve(std::size_t count) {
    if (count <= capacity_) return;
    const std::size_t capacity = std::max(count, std::size_t{2} * capacity_);
    T* data = new T[capacity];
    std::copy_n(data_, size_, data);
    release();
    data_ = data;
    capacity_ = static_cast<std::uint32_t>(capacity);
  }
  void release() {
    if (data_ != inline_) delete[] data_;
    data_ = inline_;
    capacity_ = N;
  }
  /// The other's contents; this one owns nothing when it is called.
  void take(InlineVector& other) {
    if (other.data_ == other.inline_) {
      std::copy_n(other.inline_, other.size_, inline_);
    } else {
      data_ = std::exchange(other.data_, other.inline_);
      capacity_ = std::exchange(other.capacity_, static_cast<std::uint32_t>(N));
    }
    size_ = std::exchange(other.size_, 0);
  }

  T* data_ = inline_;
  std::uint32_t size_ = 0, capacity_ = N;
  T inline_[N];
};

}  // namespace lapidary
