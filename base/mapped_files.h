// The names of the files that the process has mapped, for the message with which it ends if one of
// them is cut: reading a page that the file no longer has raises SIGBUS.
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

// Installs a handler of SIGBUS that writes to standard error which named range the fault is in, and
// then lets the process end as it would have. The handler calls nothing that a signal may not.
void NameMappingsOnFault();

}  // namespace sluice
