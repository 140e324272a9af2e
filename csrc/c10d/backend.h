#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "group/group.h"
#include "message.h"
#include "work.h"

namespace giant::pg {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;

/// The c10d backend over a group of the core.
///
/// Collectives run in the order in which they are issued; sends and receives wait for none. Bad arguments
/// are a RuntimeError at once; what goes wrong with other ranks is a DistBackendError from the work's wait().
class GiantBackend : public c10d::Backend {
 public:
  struct GiantOptions : c10d::Backend::Options {
    explicit GiantOptions(milliseconds timeout = kBackendDefaultTimeout,
                          Compression compression = Compression::none)
        : Options("giant", timeout), compression(compression) {}

    Compression compression;  // of float32 sums between hosts
  };

  /// Meets the other ranks. Throws DistBackendError naming those that did not come.
  GiantBackend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
               c10::intrusive_ptr<GiantOptions> options);
  ~GiantBackend() override;

  const std::string getBackendName() const override { return "giant"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  c10::intrusive_ptr<GiantOptions> options() const { return options_; }
  void setTimeout(milliseconds timeout) override;
  bool supportsCoalescing() const override { return true; }
  void setSequenceNumberForGroup() override {}  // all count from 0
  uint64_t getSequenceNumberForGroup() override { return issued_; }
  void abort() override;
  void shutdown() override;

  Counters counters() const { return runner_->group()->counters(); }
  const Topology& topology() const { return topology_; }
  const FlightRecord& record() const { return runner_->record(); }

  WorkPtr broadcast(Tensors&, const c10d::BroadcastOptions&) override;
  WorkPtr allreduce(Tensors&, const c10d::AllreduceOptions&) override;
  WorkPtr allreduce_sparse(Tensors&, const c10d::AllreduceOptions&) override;
  WorkPtr allreduce_coalesced(Tensors&, const c10d::AllreduceCoalescedOptions&) override;
  WorkPtr reduce(Tensors&, const c10d::ReduceOptions&) override;
  WorkPtr allgather(TensorLists&, Tensors&, const c10d::AllgatherOptions&) override;
  WorkPtr _allgather_base(at::Tensor&, at::Tensor&, const c10d::AllgatherOptions&) override;
  WorkPtr allgather_coalesced(TensorLists&, Tensors&, const c10d::AllgatherOptions&) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors&, Tensors&,
                                          const c10d::AllgatherOptions&) override;
  WorkPtr gather(TensorLists&, Tensors&, const c10d::GatherOptions&) override;
  WorkPtr scatter(Tensors&, TensorLists&, const c10d::ScatterOptions&) override;
  WorkPtr reduce_scatter(Tensors&, TensorLists&, const c10d::ReduceScatterOptions&) override;
  WorkPtr _reduce_scatter_base(at::Tensor&, at::Tensor&,
                               const c10d::ReduceScatterOptions&) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors&, Tensors&,
                                          const c10d::ReduceScatterOptions&) override;
  WorkPtr alltoall_base(at::Tensor&, at::Tensor&, std::vector<int64_t>&, std::vector<int64_t>&,
                        const c10d::AllToAllOptions&) override;
  WorkPtr alltoall(Tensors&, Tensors&, const c10d::AllToAllOptions&) override;
  WorkPtr barrier(const c10d::BarrierOptions&) override;
  void monitoredBarrier(const c10d::BarrierOptions&, bool wait_all_ranks) override;

  WorkPtr send(Tensors&, int peer, int tag) override;
  WorkPtr recv(Tensors&, int peer, int tag) override;
  WorkPtr recvAnysource(Tensors&, int tag) override;
  /// Works between the two calls are one work to the caller.
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

 private:
  Job make_job(c10d::OpType type, const char* name, const char* title, milliseconds timeout,
               at::TensorList inputs) const;
  void add_sum(Job& job, Kind kind, const Sum& sum, DType dtype, size_t bytes, int root,
               std::vector<const void*> inputs, std::vector<void*> outputs) const;
  void add_all_reduce(Job& job, const at::Tensor& tensor, const c10d::ReduceOp& op) const;
  void add_all_gather(Job& job, const at::Tensor& output, const at::Tensor& input) const;
  void add_reduce_scatter(Job& job, const at::Tensor& output, const at::Tensor& input,
                          const c10d::ReduceOp& op) const;
  WorkPtr launch(Job job, bool is_async);
  WorkPtr post(Posted posted, Tensors& tensors, int tag);
  WorkPtr gathered(WorkPtr work);

  const c10::intrusive_ptr<GiantOptions> options_;
  std::shared_ptr<Runner> runner_;
  Topology topology_;
  std::atomic<uint64_t> issued_ = 0;
  std::atomic<uint64_t> messages_ = 0;
  std::atomic<uint64_t> monitored_ = 0;
  std::mutex coalescing_mutex_;
  std::optional<std::vector<WorkPtr>> coalescing_;
};

}  // namespace giant::pg
