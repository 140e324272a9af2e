#include "work.h"

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>
#include <pthread.h>

#include <iostream>

#include "base/error.h"
#include "group/debug.h"

namespace giant::pg {
namespace {

std::optional<std::vector<at::Tensor>> for_profilers(const Job& job) {
  return job.inputs.empty() ? std::nullopt : std::make_optional(job.inputs);
}

}  // namespace

c10::intrusive_ptr<c10::ivalue::Future> make_future(const TensorLists& outputs) {
  const c10::TypePtr list = c10::ListType::create(c10::TensorType::get());
  return c10::make_intrusive<c10::ivalue::Future>(
      outputs.size() > 1 ? c10::ListType::create(list) : list);
}

void complete_future(c10::ivalue::Future& future, const TensorLists& outputs,
                     std::exception_ptr error) {
  if (error)
    future.setError(error);
  else if (outputs.empty())
    future.markCompleted(c10::IValue(std::vector<at::Tensor>()));
  else if (outputs.size() == 1)
    future.markCompleted(c10::IValue(outputs[0]));
  else
    future.markCompleted(c10::IValue(outputs));
}

CollectiveWork::CollectiveWork(int rank, uint64_t number, Job job, std::shared_ptr<Runner> runner)
    : Work(rank, job.type, job.title, for_profilers(job)),
      number_(number),
      job_(std::move(job)),
      runner_(std::move(runner)) {
  handle_ = runner_->record().issue(
      {.number = number_, .operation = job_.name, .dtype = job_.dtype, .bytes = job_.bytes});
  job_.inputs.clear();
}

bool CollectiveWork::wait(milliseconds timeout) {
  if (!isCompleted()) runner_->wait(*this, timeout);
  if (const auto error = exception()) std::rethrow_exception(error);
  return true;
}

void CollectiveWork::abort() {
  if (!isCompleted()) runner_->abort("rank " + std::to_string(rank_) + " aborted it");
}

std::vector<at::Tensor> CollectiveWork::result() {
  TORCH_CHECK(isCompleted(), "giant: ", job_.name, " is not over yet; wait for it");
  TORCH_CHECK(job_.outputs.size() <= 1, "giant: ", job_.name,
              ": its result is a list of lists; use get_future()");
  return job_.outputs.empty() ? std::vector<at::Tensor>() : job_.outputs[0];
}

c10::intrusive_ptr<c10::ivalue::Future> CollectiveWork::getFuture() {
  const std::lock_guard lock(mutex_);
  if (!future_) {
    future_ = make_future(job_.outputs);
    if (completed_) complete_future(*future_, job_.outputs, exception_);
  }
  return future_;
}

void CollectiveWork::run(Group& group) {
  const Deadline deadline = Deadline::after(job_.timeout);
  const at::NoGradGuard no_grad;
  job_.buffers.begin();
  if (job_.body) job_.body(group, deadline);
  for (const Call& call : job_.calls) group.run(call, deadline);
  job_.buffers.end();
}

void CollectiveWork::conclude(std::exception_ptr error) {
  job_.buffers = {};
  job_.body = nullptr;
  finish(std::move(error));
}

bool CollectiveWork::has_future() {
  const std::lock_guard lock(mutex_);
  return future_ != nullptr;
}

void CollectiveWork::complete() {
  if (future_ && !future_->completed()) complete_future(*future_, job_.outputs, exception_);
}

Runner::Runner(std::unique_ptr<Group> group, std::string name)
    : name_(std::move(name)), group_(std::move(group)) {}

void Runner::submit(const Item& work, bool is_async) {
  Lock lock(mutex_);
  if (is_closing_) refuse();
  const bool is_free = !is_running_ && queue_.empty();
  queue_.push_back(work);
  if (is_async) {
    if (!is_running_) rouse();
    return;
  }
  if (is_free) return take_turn(lock, false);
  lock.unlock();
  wait(*work, kNoTimeout);
}

void Runner::wait(CollectiveWork& work, milliseconds timeout) {
  const bool is_patient = timeout == kNoTimeout;
  const Deadline deadline = Deadline::after(is_patient ? std::chrono::hours(24) : timeout);
  Lock lock(mutex_);
  while (!work.is_over_) {
    // Who has less time than the work itself cannot run it: nobody could call it back.
    if (is_patient && !is_running_ && !queue_.empty()) {
      take_turn(lock, false);
      continue;
    }
    if (is_patient) {
      changed_.wait(lock);
      continue;
    }
    TORCH_CHECK_WITH(DistBackendError, !deadline.expired(), "giant: ", work.job_.name, ", number ",
                     work.number_, " of group ", name_, ": timed out after waiting ",
                     timeout.count(), " ms for it");
    changed_.wait_for(lock, deadline.remaining());
  }
}

void Runner::abort(const std::string& why) {
  std::shared_ptr<Group> group;
  {
    const Lock lock(mutex_);
    group = group_;
  }
  if (group) group->abort(why);
}

void Runner::close() {
  Lock lock(mutex_);
  if (std::exchange(is_closing_, true)) return;
  while (is_running_ || !queue_.empty()) {
    if (is_running_)
      changed_.wait(lock);
    else
      take_turn(lock, false);
  }
  is_stopped_ = true;
  ready_.notify_all();
  auto workers = std::move(workers_);
  auto group = std::move(group_);
  group_ = nullptr;
  lock.unlock();
  for (std::thread& worker : workers) {
    // The last reference may go in a callback that a worker runs.
    if (worker.get_id() == std::this_thread::get_id())
      worker.detach();
    else
      worker.join();
  }
}

std::shared_ptr<Group> Runner::group() const {
  const Lock lock(mutex_);
  if (is_closing_) refuse();
  return group_;
}

void Runner::refuse() const {
  C10_THROW_ERROR(DistBackendError, "giant: group " + name_ + " has been shut down");
}

std::exception_ptr Runner::perform(CollectiveWork& work) {
  record_.start(work.handle_);
  std::exception_ptr error;
  try {
    work.run(*group_);
  } catch (const Error& caught) {
    error = failure_of(work, caught.what());
  } catch (...) {
    error = std::current_exception();
  }
  record_.end(work.handle_, error == nullptr);
  return error;
}

// The core's message of the first failure says what it happened to; it repeats it for later calls.
std::exception_ptr Runner::failure_of(const CollectiveWork& work, const std::string& why) {
  const bool is_first = first_failure_.empty();
  if (is_first) first_failure_ = why;
  if (is_first && is_debugging("record")) {
    const std::string text = "giant: group " + name_ + " broke off; its last operations:\n";
    std::cerr << text + record_.text();
  }
  const std::string text =
      is_first ? "giant: " + why
               : "giant: " + std::string(work.job_.name) + ", number " +
                     std::to_string(work.number_) + " of group " + name_ +
                     ": the group is of no more use since it broke off: " + first_failure_;
  const c10::SourceLocation here{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  return std::make_exception_ptr(c10::DistBackendError(here, text));
}

void Runner::take_turn(Lock& lock, bool is_worker) {
  Item work = std::move(queue_.front());
  queue_.pop_front();
  is_running_ = true;
  lock.unlock();
  work->conclude(perform(*work));
  lock.lock();
  is_running_ = false;
  work->is_over_ = true;
  const bool has_callbacks = work->has_future();
  if (is_worker && has_callbacks) ++lent_out_;
  if (!queue_.empty() && (has_callbacks || !is_worker)) rouse();
  changed_.notify_all();
  lock.unlock();
  if (has_callbacks) work->complete();
  work.reset();
  lock.lock();
  if (is_worker && has_callbacks) --lent_out_;
}

void Runner::rouse() {
  if (idle_ > 0)
    ready_.notify_one();
  else if (workers_.size() == lent_out_ && !is_stopped_)
    workers_.emplace_back([self = shared_from_this()] { self->serve(); });
}

void Runner::serve() {
  pthread_setname_np(pthread_self(), "giant-group");
  Lock lock(mutex_);
  for (;;) {
    ++idle_;
    ready_.wait(lock, [this] { return is_stopped_ || (!is_running_ && !queue_.empty()); });
    --idle_;
    if (is_stopped_) return;
    take_turn(lock, true);
  }
}

}  // namespace giant::pg
