// Kinds of option values. A kind says how a value is written (Expected, for help and errors), reads
// it from text (Parse; false leaves `value` alone) and writes it as YAML (Format).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "engine/device_options.h"

namespace sluice {

enum class Shape { kScalar, kSwitch, kList };  // a switch's flag may stand without a value

// What a plain number counts. With a unit, text may carry a suffix: us, ms, s, min, h; B, KiB, MiB,
// GiB, TiB.
enum class Unit { kNone, kMicroseconds, kBytes };

// Decimal digits, an optional minus before and suffix after them. False on anything else and on
// overflow.
bool ParseQuantity(absl::string_view text, Unit unit, int64_t* value);
// With the largest suffix that divides the value.
std::string FormatQuantity(int64_t value, Unit unit);

// `text` in double quotes, escaped alike for YAML and for error messages. What is not UTF-8, as a text
// cut short, is escaped byte by byte, which YAML would read as other characters.
std::string Quote(absl::string_view text);

struct Integer {
  static constexpr Shape kShape = Shape::kScalar;
  int64_t min;
  int64_t max;
  Unit unit = Unit::kNone;

  std::string Expected() const;

  template <typename T>
  bool Parse(absl::string_view text, T* value) const {
    SLUICE_CHECK(std::in_range<T>(min) && std::in_range<T>(max));
    int64_t parsed;
    if (!ParseQuantity(text, unit, &parsed) || parsed < min || parsed > max) return false;
    *value = static_cast<T>(parsed);
    return true;
  }
  std::string Format(int64_t value) const { return FormatQuantity(value, unit); }
};

// Comma-separated, with or without the brackets of YAML; may be empty. At most 1024 items.
struct IntegerList {
  static constexpr Shape kShape = Shape::kList;
  Integer item;

  std::string Expected() const;
  bool Parse(absl::string_view text, std::vector<int32_t>* value) const;
  std::string Format(const std::vector<int32_t>& value) const;
};

// Finite; either end may be excluded.
struct Real {
  static constexpr Shape kShape = Shape::kScalar;
  double min;
  double max;
  bool above_min = false;
  bool below_max = false;

  std::string Expected() const;
  bool Parse(absl::string_view text, double* value) const;
  std::string Format(double value) const;
};

struct Boolean {
  static constexpr Shape kShape = Shape::kSwitch;

  std::string Expected() const { return "true or false"; }
  bool Parse(absl::string_view text, bool* value) const;
  std::string Format(bool value) const { return value ? "true" : "false"; }
};

// [A-Za-z0-9_.-], not empty.
struct Name {
  static constexpr Shape kShape = Shape::kScalar;
  size_t max_length;

  std::string Expected() const;
  bool Parse(absl::string_view text, std::string* value) const;
  std::string Format(absl::string_view value) const { return Quote(value); }
};

// Of a file; at most 4096 bytes of UTF-8 without control characters. May be empty.
struct Path {
  static constexpr Shape kShape = Shape::kScalar;

  std::string Expected() const;
  bool Parse(absl::string_view text, std::string* value) const;
  std::string Format(absl::string_view value) const { return Quote(value); }
};

// HOST:PORT with an IPv6 host in brackets, port 0 to 65535.
struct Address {
  static constexpr Shape kShape = Shape::kScalar;
  bool may_be_empty = false;

  std::string Expected() const;
  bool Parse(absl::string_view text, std::string* value) const;
  std::string Format(absl::string_view value) const { return Quote(value); }
};

// "auto", "cpu" or "cuda:N"; "cuda" is cuda:0.
struct DeviceName {
  static constexpr Shape kShape = Shape::kScalar;

  std::string Expected() const;
  bool Parse(absl::string_view text, DeviceChoice* value) const;
  std::string Format(const DeviceChoice& value) const;
};

template <typename T>
struct Choice {
  static constexpr Shape kShape = Shape::kScalar;
  std::vector<std::pair<std::string, T>> choices;

  std::string Expected() const {
    return absl::StrCat("one of ",
                        absl::StrJoin(choices, ", ", [](std::string* out, const auto& choice) {
                          out->append(choice.first);
                        }));
  }
  bool Parse(absl::string_view text, T* value) const {
    for (const auto& [name, chosen] : choices) {
      if (name != text) continue;
      *value = chosen;
      return true;
    }
    return false;
  }
  std::string Format(const T& value) const {
    for (const auto& [name, chosen] : choices) {
      if (chosen == value) return name;
    }
    SLUICE_CHECK(false && "a value without a name");
  }
};

}  // namespace sluice
