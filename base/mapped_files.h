// The names of the files that the process has mapped. If one of them is cut, reading a missing page
// raises SIGBUS, and the process ends with a message that names the file.
//
//   NameMappingsOnFault();  // once, at start
//   const MappingName name(data, size, "/models/demo/model.safetensors");
#pragma once

#include <cstddef>
#include <string>

namespace sluice {

// A name for a mapped range while this object lives. Thread-safe.
class MappingName {
 public:
  // The text is cut at 511 bytes.
  MappingName(const void* data, size_t size, const std::string& text);
  ~MappingName();
  MappingName(const MappingName&) = delete;
  MappingName& operator=(const MappingName&) = delete;

  // Replaces the text.
  void Set(const std::string& text) const;

  struct Entry;

 private:
  Entry* const entry_;
};

// Installs a handler of SIGBUS that writes the name of the range with the fault's address to
// standard error. Then the process ends as it would have without the handler. The handler calls
// only functions that are safe in signal handlers.
void NameMappingsOnFault();

}  // namespace sluice
