#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "net/store.h"

namespace giant::pg {

/// c10d's store as the core sees it.
class SharedStore : public Store {
 public:
  explicit SharedStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  void set(const std::string& key, const Bytes& value) override;
  Bytes get(const std::string& key, Deadline deadline) override;

 private:
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace giant::pg
