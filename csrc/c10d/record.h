#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace giant::pg {

/// One operation of a group, as the flight record keeps it.
struct Entry {
  enum class State : uint8_t { queued, running, done, failed };

  uint64_t number = 0;  // collectives and messages are counted apart, both from 1
  const char* operation = "";
  const char* dtype = "";
  size_t bytes = 0;
  int peer = -1;  // of a message
  State state = State::queued;
  double issued = 0;  // seconds since 1970; 0: not yet
  double started = 0;
  double ended = 0;
};

const char* name_of(Entry::State state);

/// The last operations of a group, oldest first; written and read by any thread.
class FlightRecord {
 public:
  static constexpr size_t kEntries = 64;

  /// The handle names the entry in the calls below; they do nothing once it has been overwritten.
  uint64_t issue(Entry entry);
  void start(uint64_t handle);
  void end(uint64_t handle, bool is_good);

  std::vector<Entry> entries() const;
  /// One line for each operation.
  std::string text() const;

 private:
  Entry* find(uint64_t handle);

  mutable std::mutex mutex_;
  std::array<Entry, kEntries> ring_;
  uint64_t issued_ = 0;
};

}  // namespace giant::pg
