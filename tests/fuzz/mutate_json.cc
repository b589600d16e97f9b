#include "tests/fuzz/mutate_json.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace sluice::fuzz {
namespace {

using Json = nlohmann::ordered_json;

// A document within a text.
struct Span {
  size_t begin, end;
};

// Returns the end of the object or array at `begin`, or nullopt if it has no end.
std::optional<size_t> EndOf(std::string_view text, size_t begin) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = begin; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if ((c == '}' || c == ']') && --depth == 0) {
      return i + 1;
    }
  }
  return std::nullopt;
}

uint64_t SizeBefore(std::string_view text, size_t at) {
  uint64_t size = 0;
  if (at >= sizeof(size)) std::memcpy(&size, text.data() + at - sizeof(size), sizeof(size));
  return size;
}

std::vector<Span> DocumentsOf(std::string_view text) {
  std::vector<Span> found;
  const auto starts = [&](size_t at) {
    return at < text.size() && (text[at] == '{' || text[at] == '[');
  };
  constexpr size_t kSizeBytes = sizeof(uint64_t);
  size_t at = starts(kSizeBytes) && SizeBefore(text, kSizeBytes) < text.size() ? kSizeBytes : 0;
  while (at < text.size()) {
    const std::optional<size_t> end = starts(at) ? EndOf(text, at) : std::nullopt;
    if (end.has_value()) found.push_back({at, *end});
    const size_t line = text.find('\n', end.value_or(at));
    if (line == text.npos) break;
    at = line + 1;
  }
  return found;
}

class Mutation {
 public:
  Mutation(Json* other, std::mt19937_64* random) : other_(*other), random_(*random) {}

  void Change(Json* root) {
    const Place place = Pick(root);
    Json& node = *place.node;
    switch (Below(10)) {
      case 0:
        node = Number();
        return;
      case 1:
        node = Empty();
        return;
      case 2:
        node = *Pick(&other_).node;
        return;
      case 3:
        Erase(place);
        return;
      case 4:
        Copy(place);
        return;
      case 5:
        Adopt(&node);
        return;
      case 6:
        if (!place.key.empty()) TakeNamesake(place.key, &node);
        return;
      default:
        Nudge(&node);
    }
  }

 private:
  // A node, and its container unless it is the root.
  struct Place {
    Json* node;
    Json* container = nullptr;
    size_t index = 0;
    std::string key{};  // if the container is an object
  };

  size_t Below(size_t limit) { return random_() % limit; }

  // Picks each level with the same probability, because most nodes of a tokenizer are tokens.
  Place Pick(Json* root) {
    Place place{.node = root};
    do {
      Json& container = *place.node;
      if (!container.is_structured() || container.empty()) break;
      const size_t index = Below(container.size());
      const auto child = std::next(container.begin(), static_cast<std::ptrdiff_t>(index));
      place = {&*child, &container, index, container.is_object() ? child.key() : ""};
    } while (Below(4) > 0);
    return place;
  }

  Json Number() {
    const Json numbers[] = {-1,
                            0,
                            1,
                            Below(300),
                            2147483648,
                            4294967296,
                            std::numeric_limits<int64_t>::max(),
                            std::numeric_limits<int64_t>::min(),
                            std::numeric_limits<uint64_t>::max(),
                            0.5,
                            1e-40,
                            1e308};
    return numbers[Below(std::size(numbers))];
  }

  Json Empty() {
    const Json values[] = {nullptr, true, false, "", "a", Json::array(), Json::object()};
    return values[Below(std::size(values))];
  }

  void Erase(const Place& place) {
    if (place.container == nullptr) return;
    place.container->erase(
        std::next(place.container->begin(), static_cast<std::ptrdiff_t>(place.index)));
  }

  // Replaces the node by a copy of a sibling, or inserts a copy of it in its array.
  void Copy(const Place& place) {
    if (place.container == nullptr) return;
    Json copy = *std::next(place.container->begin(),
                           static_cast<std::ptrdiff_t>(Below(place.container->size())));
    if (place.container->is_array() && Below(2) == 0) {
      place.container->push_back(std::move(copy));
    } else {
      *place.node = std::move(copy);
    }
  }

  // Adds a member of an object of the other input.
  void Adopt(Json* node) {
    if (!node->is_object()) return;
    const Place place = Pick(&other_);
    if (!place.key.empty()) (*node)[place.key] = *place.node;
  }

  // Replaces the node by a node of the same key in the other input.
  void TakeNamesake(const std::string& key, Json* node) {
    std::vector<const Json*> found;
    Find(other_, key, &found);
    if (!found.empty()) *node = *found[Below(found.size())];
  }
  static void Find(const Json& node, const std::string& key, std::vector<const Json*>* found) {
    if (!node.is_structured()) return;
    for (auto it = node.begin(); it != node.end(); ++it) {
      if (node.is_object() && it.key() == key) found->push_back(&*it);
      Find(*it, key, found);
    }
  }

  // Changes a value a little.
  void Nudge(Json* node) {
    if (node->is_number_integer()) {
      const uint64_t value = node->get<uint64_t>();
      const uint64_t values[] = {value + 1, value - 1, value * 2, value / 2, -value};
      *node = static_cast<int64_t>(values[Below(std::size(values))]);
    } else if (node->is_number_float()) {
      const double factors[] = {-1, 0.5, 2, 1e6};
      *node = node->get<double>() * factors[Below(std::size(factors))];
    } else if (node->is_boolean()) {
      *node = !node->get<bool>();
    } else if (node->is_string()) {
      std::string& text = node->get_ref<std::string&>();
      const size_t at = Below(text.size() + 1);
      if (Below(2) == 0) {
        text.insert(at, 1, static_cast<char>(Below(128)));
      } else {
        text.erase(at, 1);
      }
    } else if (node->is_array()) {
      std::reverse(node->begin(), node->end());
    }
  }

  Json& other_;
  std::mt19937_64& random_;
};

// Returns a random document of `text`. It is discarded if there is none.
Json Read(std::string_view text, std::mt19937_64& random, Span* span) {
  const std::vector<Span> documents = DocumentsOf(text);
  if (documents.empty()) return Json(Json::value_t::discarded);
  *span = documents[random() % documents.size()];
  return Json::parse(text.substr(span->begin, span->end - span->begin), nullptr,
                     /*allow_exceptions=*/false);
}

}  // namespace

std::optional<std::string> MutateJson(std::string_view input, std::string_view other,
                                      std::mt19937_64& random) {
  Span span{}, unused{};
  Json document = Read(input, random, &span);
  if (document.is_discarded()) return std::nullopt;
  Json donor = Read(other, random, &unused);
  if (donor.is_discarded()) donor = document;
  Mutation mutation(&donor, &random);
  do {
    mutation.Change(&document);
  } while (random() % 2 == 0);
  const std::string text = document.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string changed(input);
  // The size before a document may count spaces after it.
  const bool sized = SizeBefore(input, span.begin) >= span.end - span.begin &&
                     SizeBefore(input, span.begin) <= input.size() - span.begin;
  if (sized) {
    const uint64_t size = SizeBefore(input, span.begin) - (span.end - span.begin) + text.size();
    std::memcpy(changed.data() + span.begin - sizeof(size), &size, sizeof(size));
  }
  changed.replace(span.begin, span.end - span.begin, text);
  return changed;
}

}  // namespace sluice::fuzz
