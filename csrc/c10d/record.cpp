#include "record.h"

#include <algorithm>
#include <chrono>
#include <iomanip>
#include <sstream>

namespace giant::pg {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

const char* name_of(Entry::State state) {
  switch (state) {
    case Entry::State::queued: return "queued";
    case Entry::State::running: return "running";
    case Entry::State::done: return "done";
    case Entry::State::failed: return "failed";
  }
  return "?";
}

uint64_t FlightRecord::issue(Entry entry) {
  entry.issued = now();
  const std::lock_guard lock(mutex_);
  ring_[issued_ % kEntries] = entry;
  return issued_++;
}

void FlightRecord::start(uint64_t handle) {
  const double at = now();
  const std::lock_guard lock(mutex_);
  if (Entry* const entry = find(handle)) {
    entry->started = at;
    entry->state = Entry::State::running;
  }
}

void FlightRecord::end(uint64_t handle, bool is_good) {
  const double at = now();
  const std::lock_guard lock(mutex_);
  if (Entry* const entry = find(handle)) {
    entry->ended = at;
    entry->state = is_good ? Entry::State::done : Entry::State::failed;
  }
}

std::vector<Entry> FlightRecord::entries() const {
  const std::lock_guard lock(mutex_);
  std::vector<Entry> found;
  for (uint64_t i = issued_ - std::min<uint64_t>(issued_, kEntries); i < issued_; ++i)
    found.push_back(ring_[i % kEntries]);
  return found;
}

std::string FlightRecord::text() const {
  std::ostringstream out;
  out << std::fixed << std::setprecision(6);
  for (const Entry& entry : entries()) {
    out << entry.operation << ' ' << entry.number << ", " << entry.bytes << " bytes of "
        << entry.dtype;
    if (entry.peer >= 0) out << ", rank " << entry.peer;
    out << ": " << name_of(entry.state) << ", issued " << entry.issued;
    if (entry.started > 0) out << ", began after " << entry.started - entry.issued << " s";
    if (entry.ended > 0) out << ", ended after " << entry.ended - entry.issued << " s";
    out << '\n';
  }
  return out.str();
}

Entry* FlightRecord::find(uint64_t handle) {
  return issued_ - handle <= kEntries ? &ring_[handle % kEntries] : nullptr;
}

}  // namespace giant::pg
