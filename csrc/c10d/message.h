#pragma once

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "p2p/mailbox.h"
#include "record.h"
#include "work.h"

namespace giant::pg {

/// What a send or receive is, for messages and records.
struct Posted {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  const char* name = "";
  const char* title = "";
  int peer = Mailbox::kAnySource;
  uint64_t number = 0;
};

/// A send or receive. Lives, with its tensor, until the transfer is over, whoever holds it.
class MessageWork : public c10d::Work {
 public:
  static c10::intrusive_ptr<MessageWork> make(int rank, const Posted& posted, at::Tensor tensor,
                                              std::shared_ptr<Message> message,
                                              std::shared_ptr<Runner> runner);

  MessageWork(int rank, const Posted& posted, at::Tensor tensor, std::shared_ptr<Message> message,
              std::shared_ptr<Runner> runner);

  bool isCompleted() override { return message_->done(); }
  bool isSuccess() const override { return message_->done() && exception() == nullptr; }
  std::exception_ptr exception() const override;
  int sourceRank() const override { return message_->source(); }
  bool wait(milliseconds timeout) override;
  void synchronize() override { wait(kNoTimeout); }
  void abort() override;
  std::vector<at::Tensor> result() override { return {tensor_}; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return posted_.number; }

 private:
  void conclude(std::exception_ptr error);
  std::exception_ptr translated(const std::string& why) const;

  const Posted posted_;
  const at::Tensor tensor_;
  const std::shared_ptr<Message> message_;
  const std::shared_ptr<Runner> runner_;
  const uint64_t handle_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

/// Several works as one.
class JoinedWork : public c10d::Work {
 public:
  JoinedWork(int rank, std::vector<c10::intrusive_ptr<Work>> works);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  bool wait(milliseconds timeout) override;
  void synchronize() override { wait(kNoTimeout); }
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  const std::vector<c10::intrusive_ptr<Work>> works_;
};

/// Returns when all ranks have called it. Throws DistBackendError: on rank 0 with the first rank that did
/// not come within `timeout`, or with all such; on the others as soon as they hear of it.
void monitored_barrier(Mailbox& mailbox, int rank, int size, uint64_t number, milliseconds timeout,
                       bool wants_all);

}  // namespace giant::pg
