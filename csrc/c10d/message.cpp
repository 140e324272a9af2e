#include "message.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "base/error.h"

namespace giant::pg {
namespace {

constexpr auto kForever = std::chrono::hours(24 * 365);
// Callers' tags are ints.
constexpr uint64_t kBarrierTag = uint64_t{1} << 62;

enum class Answer : uint8_t { here = 1, passed = 2, failed = 3 };

}  // namespace

c10::intrusive_ptr<MessageWork> MessageWork::make(int rank, const Posted& posted, at::Tensor tensor,
                                                  std::shared_ptr<Message> message,
                                                  std::shared_ptr<Runner> runner) {
  auto work = c10::make_intrusive<MessageWork>(rank, posted, std::move(tensor), std::move(message),
                                               std::move(runner));
  work->message_->on_done([work](std::exception_ptr error) { work->conclude(std::move(error)); });
  return work;
}

MessageWork::MessageWork(int rank, const Posted& posted, at::Tensor tensor,
                         std::shared_ptr<Message> message, std::shared_ptr<Runner> runner)
    : Work(rank, posted.type, posted.title, std::vector<at::Tensor>{tensor}),
      posted_(posted),
      tensor_(std::move(tensor)),
      message_(std::move(message)),
      runner_(std::move(runner)),
      handle_(runner_->record().issue({.number = posted.number,
                                       .operation = posted.name,
                                       .dtype = name_of(moved_as(tensor_)),
                                       .bytes = tensor_.nbytes(),
                                       .peer = posted.peer})) {
  runner_->record().start(handle_);
}

// The transfer may be over a moment before its callback has run; the message knows first.
std::exception_ptr MessageWork::exception() const {
  if (!message_->done()) return nullptr;
  try {
    message_->wait(Deadline::after(milliseconds(0)));
    return nullptr;
  } catch (const Error& error) {
    return translated(error.what());
  }
}

bool MessageWork::wait(milliseconds timeout) {
  try {
    message_->wait(Deadline::after(timeout == kNoTimeout ? kForever : timeout));
  } catch (const Error& error) {
    std::rethrow_exception(translated(error.what()));
  }
  return true;
}

void MessageWork::abort() {
  if (!isCompleted()) runner_->abort("rank " + std::to_string(rank_) + " aborted a message");
}

c10::intrusive_ptr<c10::ivalue::Future> MessageWork::getFuture() {
  const std::lock_guard lock(mutex_);
  if (!future_) {
    future_ = make_future({{tensor_}});
    if (completed_) complete_future(*future_, {{tensor_}}, exception_);
  }
  return future_;
}

void MessageWork::conclude(std::exception_ptr error) {
  if (error) {
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& caught) {
      error = translated(caught.what());
    }
  }
  runner_->record().end(handle_, error == nullptr);
  finish(error);
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard lock(mutex_);
    future = future_;
  }
  if (future && !future->completed()) complete_future(*future, {{tensor_}}, error);
}

std::exception_ptr MessageWork::translated(const std::string& why) const {
  const c10::SourceLocation here{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  const std::string text = "giant: " + std::string(posted_.name) + ", message number " +
                           std::to_string(posted_.number) + " of group " + runner_->name() + ": " +
                           why;
  return std::make_exception_ptr(c10::DistBackendError(here, text));
}

JoinedWork::JoinedWork(int rank, std::vector<c10::intrusive_ptr<Work>> works)
    : Work(rank, c10d::OpType::COALESCED), works_(std::move(works)) {}

bool JoinedWork::isCompleted() {
  return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->isCompleted(); });
}

bool JoinedWork::isSuccess() const {
  return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->isSuccess(); });
}

std::exception_ptr JoinedWork::exception() const {
  for (const auto& work : works_)
    if (const auto error = work->exception()) return error;
  return nullptr;
}

bool JoinedWork::wait(milliseconds timeout) {
  const Deadline deadline = Deadline::after(timeout);
  for (const auto& work : works_)
    work->wait(timeout == kNoTimeout ? kNoTimeout : std::max(deadline.remaining(), milliseconds(1)));
  return true;
}

std::vector<at::Tensor> JoinedWork::result() {
  std::vector<at::Tensor> all;
  for (const auto& work : works_) {
    const auto some = work->result();
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

c10::intrusive_ptr<c10::ivalue::Future> JoinedWork::getFuture() {
  using Future = c10::ivalue::Future;
  c10::List<c10::intrusive_ptr<Future>> futures(
      c10::FutureType::create(c10::ListType::create(c10::TensorType::get())));
  for (const auto& work : works_) futures.push_back(work->getFuture());
  const auto collected = c10::collectAll(futures);
  return collected->then(
      [](Future& all) {
        std::vector<at::Tensor> tensors;
        for (const c10::IValue& one : all.value().toListRef())
          for (const at::Tensor& tensor : one.toFuture()->value().toTensorVector())
            tensors.push_back(tensor);
        return c10::IValue(std::move(tensors));
      },
      c10::ListType::create(c10::TensorType::get()));
}

namespace {

std::string listed(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "Rank " : "Ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += (i ? ", " : "") + std::to_string(ranks[i]);
  return text;
}

/// Ranks that did not come; only the first unless `wants_all`.
std::vector<int> await_others(Mailbox& mailbox, int size, uint64_t tag, milliseconds timeout,
                              bool wants_all) {
  const Deadline deadline = Deadline::after(timeout);
  std::vector<Answer> answers(size);
  std::vector<std::shared_ptr<Message>> messages;
  for (int rank = 1; rank < size; ++rank)
    messages.push_back(mailbox.receive(&answers[rank], sizeof(Answer), rank, tag, timeout));
  std::vector<int> missing;
  for (int rank = 1; rank < size; ++rank) {
    TORCH_CHECK_WITH(DistBackendError, wants_all || !deadline.expired() || messages[rank - 1]->done(),
                     "giant: Rank 0 timed out in monitoredBarrier after ", timeout.count(), " ms.");
    try {
      if (wants_all || missing.empty()) messages[rank - 1]->wait(deadline);
    } catch (const Error&) {
      missing.push_back(rank);
    }
  }
  // What is still under way writes into `answers`.
  for (const auto& message : messages) {
    try {
      message->wait(Deadline::after(kForever));
    } catch (const Error&) {
      TORCH_CHECK(!missing.empty(), "giant: a message of a barrier was lost");
    }
  }
  return missing;
}

void lead_barrier(Mailbox& mailbox, int size, uint64_t tag, milliseconds timeout, bool wants_all) {
  std::vector<int> missing;
  std::exception_ptr failure;
  try {
    missing = await_others(mailbox, size, tag, timeout, wants_all);
    TORCH_CHECK_WITH(DistBackendError, missing.empty(), "giant: [Rank 0]: ", listed(missing),
                     " failed to pass monitoredBarrier in ", timeout.count(), " ms");
  } catch (const c10::Error&) {
    failure = std::current_exception();
  }
  const Answer answer = failure ? Answer::failed : Answer::passed;
  for (int rank = 1; rank < size; ++rank) mailbox.send(&answer, sizeof answer, rank, tag, timeout);
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

void monitored_barrier(Mailbox& mailbox, int rank, int size, uint64_t number, milliseconds timeout,
                       bool wants_all) {
  const uint64_t tag = kBarrierTag + number;
  if (rank == 0) return lead_barrier(mailbox, size, tag, timeout, wants_all);
  const Answer here = Answer::here;
  Answer answer = Answer::failed;
  std::string why = "not all ranks came";
  try {
    mailbox.send(&here, sizeof here, 0, tag, timeout);
    mailbox.receive(&answer, sizeof answer, 0, tag, timeout)->wait(Deadline::after(kForever));
  } catch (const Error& error) {
    why = error.what();
  }
  TORCH_CHECK_WITH(DistBackendError, answer == Answer::passed, "giant: Rank ", rank,
                   " successfully reached monitoredBarrier, but received errors while waiting for "
                   "send/recv from rank 0. Please check rank 0 logs for faulty rank. (", why, ")");
}

}  // namespace giant::pg
