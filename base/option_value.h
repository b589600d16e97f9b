// Kinds of option values. Expected describes the format for help and errors. Parse reads a value
// from text; if it returns false, `value` is unchanged. Format writes it as YAML.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/enum_names.h"

namespace sluice {

enum class Shape {
  kScalar,
  kSwitch,  // its flag may be given without a value
  kList,
};

// The unit of a number. A duration needs a suffix, us, ms, s, min or h, so that 1 cannot be read as
// a second or as a microsecond; 0 needs none. A size may have B, KiB, MiB, GiB or TiB.
enum class Unit { kNone, kMicroseconds, kBytes };

// Reads decimal digits with an optional minus before them and a suffix after them.
// Returns false for anything else and on overflow.
bool ParseQuantity(absl::string_view text, Unit unit, int64_t* value);
// Returns the value with the largest suffix that divides it.
std::string FormatQuantity(int64_t value, Unit unit);

// Returns `text` in double quotes, with the same escapes for YAML and for error messages. Bytes
// that are not UTF-8, such as a character cut short, are escaped one by one; YAML would read them
// as other characters.
std::string Quote(absl::string_view text);

struct Integer {
  static constexpr Shape kShape = Shape::kScalar;
  int64_t min;
  int64_t max;
  Unit unit = Unit::kNone;

  std::string Expected() const;
  bool Contains(int64_t value) const { return value >= min && value <= max; }

  template <typename T>
  bool Parse(absl::string_view text, T* value) const {
    SLUICE_CHECK(std::in_range<T>(min) && std::in_range<T>(max));
    int64_t parsed;
    if (!ParseQuantity(text, unit, &parsed) || !Contains(parsed)) return false;
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
  bool Contains(double value) const;
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

// The path of a file; at most 4096 bytes of UTF-8 without control characters.
struct Path {
  static constexpr Shape kShape = Shape::kScalar;
  bool may_be_empty = true;

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

// One of several words.
struct OneOf {
  static constexpr Shape kShape = Shape::kScalar;
  std::vector<std::string> words;

  std::string Expected() const { return absl::StrCat("one of ", absl::StrJoin(words, ", ")); }
  bool Parse(absl::string_view text, std::string* value) const;
  std::string Format(const std::string& value) const { return value; }
};

// An enumerator by its name; see enum_names.h.
template <typename E>
struct Choice {
  static constexpr Shape kShape = Shape::kScalar;

  std::vector<std::string> Words() const { return {kNamesOf<E>.begin(), kNamesOf<E>.end()}; }
  std::string Expected() const { return OneOf{Words()}.Expected(); }
  bool Parse(absl::string_view text, E* value) const {
    const std::optional<E> parsed = EnumOf<E>({text.data(), text.size()});
    if (parsed.has_value()) *value = *parsed;
    return parsed.has_value();
  }
  std::string Format(E value) const { return std::string(NameOf(value)); }
};

}  // namespace sluice
