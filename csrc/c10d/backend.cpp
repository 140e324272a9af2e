#include "backend.h"

#include <Python.h>
#include <c10/util/Exception.h>

#include "base/error.h"
#include "store.h"

namespace giant::pg {
namespace {

/// Threads that end need the GIL for callbacks that are still to run.
class WithoutGil {
 public:
  WithoutGil() : state_(Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
  ~WithoutGil() {
    if (state_ != nullptr) PyEval_RestoreThread(state_);
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

std::shared_ptr<Runner> open_runner(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                    const GiantBackend::GiantOptions& options) {
  const std::string name = options.group_name.empty() ? "?" : options.group_name;
  try {
    SharedStore shared(store);
    return std::make_shared<Runner>(
        Group::open(shared, rank, size, {name, options.timeout, options.compression}), name);
  } catch (const Error& error) {
    C10_THROW_ERROR(DistBackendError, "giant: group " + name + " does not come together: " +
                                          error.what());
  }
}

}  // namespace

void SharedStore::set(const std::string& key, const Bytes& value) { store_->set(key, value); }

Bytes SharedStore::get(const std::string& key, Deadline deadline) {
  try {
    store_->wait({key}, std::max(deadline.remaining(), milliseconds(1)));
    return store_->get(key);
  } catch (const std::exception& error) {
    if (deadline.expired()) throw TimeoutError("nobody has set " + key + " in the store");
    throw PeerError("the store failed: " + std::string(error.what()));
  }
}

GiantBackend::GiantBackend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                           c10::intrusive_ptr<GiantOptions> options)
    : Backend(rank, size),
      options_(std::move(options)),
      runner_(open_runner(store, rank, size, *options_)),
      topology_(runner_->group()->topology()) {
  init();
}

GiantBackend::~GiantBackend() { shutdown(); }

void GiantBackend::setTimeout(milliseconds timeout) { options_->timeout = timeout; }

void GiantBackend::abort() { runner_->abort("rank " + std::to_string(rank_) + " aborted the group"); }

void GiantBackend::shutdown() {
  const WithoutGil without;
  runner_->close();
}

WorkPtr GiantBackend::launch(Job job, bool is_async) {
  if (job.timeout == c10d::kUnsetTimeout) job.timeout = options_->timeout;
  for (const Call& call : job.calls) job.bytes += call.bytes;
  auto work = c10::make_intrusive<CollectiveWork>(rank_, ++issued_, std::move(job), runner_);
  runner_->submit(work, is_async);
  return gathered(std::move(work));
}

WorkPtr GiantBackend::gathered(WorkPtr work) {
  const std::lock_guard lock(coalescing_mutex_);
  if (coalescing_) coalescing_->push_back(work);
  return work;
}

void GiantBackend::startCoalescing() {
  const std::lock_guard lock(coalescing_mutex_);
  TORCH_CHECK(!coalescing_, "giant: startCoalescing within a coalescing");
  coalescing_.emplace();
}

WorkPtr GiantBackend::endCoalescing() {
  const std::lock_guard lock(coalescing_mutex_);
  TORCH_CHECK(coalescing_, "giant: endCoalescing without startCoalescing");
  auto works = std::move(*coalescing_);
  coalescing_.reset();
  return c10::make_intrusive<JoinedWork>(rank_, std::move(works));
}

WorkPtr GiantBackend::post(Posted posted, Tensors& tensors, int tag) {
  const at::Tensor& tensor = only(posted.name, tensors);
  TORCH_CHECK(tensor.is_contiguous(), "giant: ", posted.name, ": the tensor has to be contiguous");
  const bool is_any = posted.type == c10d::OpType::RECVANYSOURCE;
  TORCH_CHECK(is_any || (posted.peer >= 0 && posted.peer < size_ && posted.peer != rank_), "giant: ",
              posted.name, ": rank ", posted.peer, " is no other rank of a group of ", size_);
  TORCH_CHECK(tag >= 0, "giant: ", posted.name, ": a negative tag, ", tag);
  posted.number = ++messages_;
  Mailbox& mailbox = runner_->group()->mailbox();
  const auto label = static_cast<uint64_t>(tag);
  auto message =
      posted.type == c10d::OpType::SEND
          ? mailbox.send(tensor.const_data_ptr(), tensor.nbytes(), posted.peer, label, options_->timeout)
          : mailbox.receive(tensor.data_ptr(), tensor.nbytes(), posted.peer, label, options_->timeout);
  return gathered(MessageWork::make(rank_, posted, tensor, std::move(message), runner_));
}

WorkPtr GiantBackend::send(Tensors& tensors, int peer, int tag) {
  return post({c10d::OpType::SEND, "send", "giant:send", peer}, tensors, tag);
}

WorkPtr GiantBackend::recv(Tensors& tensors, int peer, int tag) {
  return post({c10d::OpType::RECV, "recv", "giant:recv", peer}, tensors, tag);
}

WorkPtr GiantBackend::recvAnysource(Tensors& tensors, int tag) {
  return post({c10d::OpType::RECVANYSOURCE, "recv", "giant:recvAnySource"}, tensors, tag);
}

WorkPtr GiantBackend::barrier(const c10d::BarrierOptions& opts) {
  Job job = make_job(c10d::OpType::BARRIER, "barrier", "giant:barrier", opts.timeout, {});
  job.calls.emplace_back();
  return launch(std::move(job), opts.asyncOp);
}

void GiantBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  const auto timeout = opts.timeout == c10d::kUnsetTimeout ? options_->timeout : opts.timeout;
  const auto group = runner_->group();
  monitored_barrier(group->mailbox(), rank_, size_, ++monitored_, timeout, wait_all_ranks);
}

}  // namespace giant::pg
