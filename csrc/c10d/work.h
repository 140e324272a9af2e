#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "group/group.h"
#include "record.h"
#include "tensors.h"

namespace giant::pg {

using TensorLists = std::vector<std::vector<at::Tensor>>;

/// A collective before it runs.
struct Job {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  const char* name = "";
  const char* title = "";  // for profilers
  const char* dtype = "uint8";
  size_t bytes = 0;
  milliseconds timeout{0};
  std::vector<Call> calls;
  /// Instead of calls: what needs one call's result for the next.
  std::function<void(Group&, Deadline)> body;
  Buffers buffers;
  std::vector<at::Tensor> inputs;  // for profilers
  TensorLists outputs;
};

class Runner;

/// A future of the outputs, done at once where they are there.
c10::intrusive_ptr<c10::ivalue::Future> make_future(const TensorLists& outputs);
void complete_future(c10::ivalue::Future& future, const TensorLists& outputs,
                     std::exception_ptr error);

/// A collective: queued, running or over.
class CollectiveWork : public c10d::Work {
 public:
  CollectiveWork(int rank, uint64_t number, Job job, std::shared_ptr<Runner> runner);

  bool wait(milliseconds timeout) override;
  void synchronize() override { wait(kNoTimeout); }
  void abort() override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return number_; }

 private:
  friend class Runner;

  void run(Group& group);
  /// From here on it counts as over, and holds nothing but its outputs.
  void conclude(std::exception_ptr error);
  bool has_future();
  void complete();

  const uint64_t number_;
  Job job_;
  std::shared_ptr<Runner> runner_;
  uint64_t handle_ = 0;
  bool is_over_ = false;  // the runner's mutex guards it
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

/// Runs a group's collectives one at a time, in the order in which they were issued: on the thread that
/// issues or awaits them where it can, else on a thread of its own that starts with the first need.
/// Lives until close().
class Runner : public std::enable_shared_from_this<Runner> {
 public:
  using Item = c10::intrusive_ptr<CollectiveWork>;

  Runner(std::unique_ptr<Group> group, std::string name);

  /// Not asynchronous: the work is over when this returns; errors are left to its wait().
  void submit(const Item& work, bool is_async);
  /// Throws DistBackendError after `timeout`; kNoTimeout waits for the work's own.
  void wait(CollectiveWork& work, milliseconds timeout);
  void abort(const std::string& why);
  /// Lets what is queued come to its end, then gives up threads, connections and memory.
  void close();

  /// Throws once closed.
  std::shared_ptr<Group> group() const;
  FlightRecord& record() { return record_; }
  const std::string& name() const { return name_; }

 private:
  using Lock = std::unique_lock<std::mutex>;

  std::exception_ptr perform(CollectiveWork& work);
  std::exception_ptr failure_of(const CollectiveWork& work, const std::string& why);
  /// Runs the first of the queue.
  void take_turn(Lock& lock, bool is_worker);
  void rouse();
  void serve();
  [[noreturn]] void refuse() const;

  const std::string name_;
  FlightRecord record_;
  mutable std::mutex mutex_;
  std::condition_variable ready_;    // workers: the queue may be served
  std::condition_variable changed_;  // waiters: a work is over
  std::shared_ptr<Group> group_;
  std::deque<Item> queue_;
  bool is_running_ = false;
  bool is_closing_ = false;
  bool is_stopped_ = false;
  std::string first_failure_;
  std::vector<std::thread> workers_;
  size_t idle_ = 0;      // workers that sleep
  size_t lent_out_ = 0;  // workers in the caller's callbacks, which may wait for what is queued
};

}  // namespace giant::pg
