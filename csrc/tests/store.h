#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include "base/error.h"
#include "net/store.h"

namespace giant::testing {

/// A store for ranks that are threads of one process.
class MapStore : public Store {
 public:
  void set(const std::string& key, const Bytes& value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }

  Bytes get(const std::string& key, Deadline deadline) override {
    std::unique_lock lock(mutex_);
    const auto is_there = [&] { return values_.count(key) > 0; };
    if (!changed_.wait_for(lock, deadline.remaining(), is_there))
      throw TimeoutError("nobody has set " + key);
    return values_.at(key);
  }

  bool has(const std::string& key) const {
    const std::lock_guard lock(mutex_);
    return values_.count(key) > 0;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Bytes> values_;
};

}  // namespace giant::testing
