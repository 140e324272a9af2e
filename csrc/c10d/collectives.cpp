#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <map>

#include "backend.h"

namespace giant::pg {
namespace {

// Tensors up to this size share a message when they come together: more than the copies cost.
constexpr size_t kSmallBytes = 64 * 1024;

using c10d::OpType;

/// The blocks of a buffer that holds one for each rank.
template <class Pointer>
std::vector<Pointer> blocks_of(Pointer buffer, size_t bytes, int count) {
  using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<Pointer>>, const char*, char*>;
  std::vector<Pointer> blocks;
  for (int i = 0; i < count; ++i) blocks.push_back(static_cast<Byte>(buffer) + i * bytes);
  return blocks;
}

std::vector<const void*> all_in(Buffers& buffers, at::TensorList tensors) {
  std::vector<const void*> blocks;
  for (const at::Tensor& tensor : tensors) blocks.push_back(buffers.in(tensor));
  return blocks;
}

std::vector<void*> all_out(Buffers& buffers, at::TensorList tensors) {
  std::vector<void*> blocks;
  for (const at::Tensor& tensor : tensors) blocks.push_back(buffers.out(tensor));
  return blocks;
}

/// Bytes of each rank's part of the first dimension; the even one where no sizes are given.
std::vector<size_t> bytes_of_splits(const char* operation, const std::vector<int64_t>& splits,
                                    const at::Tensor& tensor, int size) {
  TORCH_CHECK(tensor.dim() > 0, "giant: ", operation, ": a tensor without dimensions");
  c10d::checkSplitSizes(splits, tensor, size);
  const int64_t rows = tensor.size(0);
  const size_t row = rows == 0 ? 0 : tensor.nbytes() / rows;
  if (splits.empty()) return std::vector<size_t>(size, rows / size * row);
  std::vector<size_t> bytes;
  for (const int64_t split : splits) {
    TORCH_CHECK(split >= 0, "giant: ", operation, ": a negative split size");
    bytes.push_back(split * row);
  }
  return bytes;
}

template <class Pointer>
std::vector<Pointer> places(Pointer buffer, const std::vector<size_t>& bytes) {
  using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<Pointer>>, const char*, char*>;
  std::vector<Pointer> found;
  Byte at = static_cast<Byte>(buffer);
  for (const size_t size : bytes) {
    found.push_back(at);
    at += size;
  }
  return found;
}

Call moving(Kind kind, const at::Tensor& tensor, int root, std::vector<const void*> inputs,
            std::vector<void*> outputs) {
  Call call;
  call.kind = kind;
  call.dtype = moved_as(tensor);
  call.bytes = tensor.nbytes();
  call.root = root;
  call.inputs = std::move(inputs);
  call.outputs = std::move(outputs);
  return call;
}

void check_pair(const char* operation, const at::Tensor& whole, const at::Tensor& part, int size) {
  check_tensor(operation, whole);
  check_tensor(operation, part);
  TORCH_CHECK(whole.scalar_type() == part.scalar_type(), "giant: ", operation,
              ": output tensor must have the same type as input tensor (", whole.scalar_type(), ", ",
              part.scalar_type(), ")");
  TORCH_CHECK(whole.numel() == part.numel() * size, "giant: ", operation, ": a tensor of ",
              whole.numel(), " elements where there must be ", size, " (the ranks) times ",
              part.numel());
}

}  // namespace

Job GiantBackend::make_job(OpType type, const char* name, const char* title, milliseconds timeout,
                           at::TensorList inputs) const {
  Job job;
  job.type = type;
  job.name = name;
  job.title = title;
  job.timeout = timeout;
  job.inputs = inputs.vec();
  if (!inputs.empty()) job.dtype = giant::name_of(moved_as(inputs[0]));
  return job;
}

void GiantBackend::add_sum(Job& job, Kind kind, const Sum& sum, DType dtype, size_t bytes, int root,
                           std::vector<const void*> inputs, std::vector<void*> outputs) const {
  Call call;
  call.kind = kind;
  call.dtype = dtype;
  call.reduction = sum.reduction;
  call.scale = sum.scale;
  call.bytes = bytes;
  call.root = root;
  call.inputs = std::move(inputs);
  call.outputs = std::move(outputs);
  job.calls.push_back(std::move(call));
}

void GiantBackend::add_all_reduce(Job& job, const at::Tensor& tensor, const c10d::ReduceOp& op) const {
  const Sum sum = sum_of(job.name, op, tensor, size_);
  const at::Tensor real = as_real(tensor);
  void* const memory = job.buffers.in_out(real);
  const void* const input = sum.has_factor ? job.buffers.scaled(real, op) : memory;
  add_sum(job, Kind::all_reduce, sum, moved_as(real), real.nbytes(), 0, {input}, {memory});
}

WorkPtr GiantBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  if (tensors.size() == 1 && tensors[0].is_sparse()) return allreduce_sparse(tensors, opts);
  only("all_reduce", tensors);
  Job job = make_job(OpType::ALLREDUCE, "all_reduce", "giant:all_reduce", opts.timeout, tensors);
  job.outputs = {tensors};
  add_all_reduce(job, tensors[0], opts.reduceOp);
  return launch(std::move(job), opts.asyncOp);
}

// Small tensors of one type go as one. Which do depends only on sizes and types, the same on all ranks.
WorkPtr GiantBackend::allreduce_coalesced(Tensors& tensors,
                                          const c10d::AllreduceCoalescedOptions& opts) {
  check_tensors("all_reduce", tensors);
  Job job = make_job(OpType::ALLREDUCE_COALESCED, "all_reduce_coalesced", "giant:all_reduce",
                     opts.timeout, tensors);
  job.outputs = {tensors};
  std::map<at::ScalarType, Tensors> small;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.nbytes() <= kSmallBytes)
      small[tensor.scalar_type()].push_back(tensor);
    else
      add_all_reduce(job, tensor, opts.reduceOp);
  }
  for (const auto& [type, list] : small)
    add_all_reduce(job, list.size() == 1 ? list[0] : job.buffers.packed(list), opts.reduceOp);
  return launch(std::move(job), opts.asyncOp);
}

WorkPtr GiantBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  only("reduce", tensors);
  check_root("reduce", opts.rootRank, size_);
  Job job = make_job(OpType::REDUCE, "reduce", "giant:reduce", opts.timeout, tensors);
  job.outputs = {tensors};
  const Sum sum = sum_of(job.name, opts.reduceOp, tensors[0], size_);
  const at::Tensor real = as_real(tensors[0]);
  const bool is_root = opts.rootRank == rank_;
  void* const memory = is_root ? job.buffers.in_out(real) : nullptr;
  const void* const input = sum.has_factor ? job.buffers.scaled(real, opts.reduceOp)
                            : is_root      ? memory
                                           : job.buffers.in(real);
  const auto outputs = is_root ? std::vector<void*>{memory} : std::vector<void*>{};
  add_sum(job, Kind::reduce, sum, moved_as(real), real.nbytes(), static_cast<int>(opts.rootRank),
          {input}, outputs);
  return launch(std::move(job), opts.asyncOp);
}

WorkPtr GiantBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  only("broadcast", tensors);
  check_root("broadcast", opts.rootRank, size_);
  Job job = make_job(OpType::BROADCAST, "broadcast", "giant:broadcast", opts.timeout, tensors);
  job.outputs = {tensors};
  void* const memory = job.buffers.in_out(tensors[0]);
  job.calls.push_back(moving(Kind::broadcast, tensors[0], static_cast<int>(opts.rootRank), {memory},
                             {memory}));
  return launch(std::move(job), opts.asyncOp);
}

WorkPtr GiantBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                const c10d::AllgatherOptions& opts) {
  const at::Tensor& input = only("all_gather", inputs);
  const Tensors& list = only("all_gather", outputs);
  check_like("all_gather", input, list, size_);
  Job job = make_job(OpType::ALLGATHER, "all_gather", "giant:all_gather", opts.timeout, inputs);
  job.outputs = outputs;
  job.calls.push_back(moving(Kind::all_gather, input, 0, {job.buffers.in(input)},
                             all_out(job.buffers, list)));
  return launch(std::move(job), opts.asyncOp);
}

void GiantBackend::add_all_gather(Job& job, const at::Tensor& output, const at::Tensor& input) const {
  check_pair(job.name, output, input, size_);
  const void* const in = job.buffers.in(input);
  job.calls.push_back(moving(Kind::all_gather, input, 0, {in},
                             blocks_of(job.buffers.out(output), input.nbytes(), size_)));
}

WorkPtr GiantBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                      const c10d::AllgatherOptions& opts) {
  Job job = make_job(OpType::_ALLGATHER_BASE, "all_gather", "giant:_all_gather_base", opts.timeout,
                     input);
  job.outputs = {{output}};
  add_all_gather(job, output, input);
  return launch(std::move(job), opts.asyncOp);
}

WorkPtr GiantBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                      const c10d::AllgatherOptions& opts) {
  check_tensors("all_gather", inputs);
  TORCH_CHECK(outputs.size() == inputs.size(),
              "giant: all_gather: requires input/output tensor lists to have the same length");
  Job job = make_job(OpType::ALLGATHER_COALESCED, "all_gather_coalesced", "giant:all_gather",
                     opts.timeout, inputs);
  job.outputs = {outputs};
  for (size_t i = 0; i < inputs.size(); ++i) add_all_gather(job, outputs[i], inputs[i]);
  return launch(std::move(job), opts.asyncOp);
}

WorkPtr GiantBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) {
  check_tensors("all_gather", inputs);
  TORCH_CHECK(outputs.size() == static_cast<size_t>(size_),
              "giant: all_gather: output lists should be equal to world size");
  Job job = make_job(OpType::ALLGATHER_COALESCED, "all_gather_coalesced", "giant:all_gather",
                     opts.timeout, inputs);
  job.outputs = outputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensors column;
    for (const Tensors& list : outputs) {
      TORCH_CHECK(list.size() == inputs.size(), "giant: all_gather: invalid output size: (expected ",
                  "length ", inputs.size(), ", got ", list.size(), ")");
      column.push_back(list[i]);
    }
    check_like("all_gather", inputs[i], column, size_);
    job.calls.push_back(moving(Kind::all_gather, inputs[i], 0, {job.buffers.in(inputs[i])},
                               all_out(job.buffers, column)));
  }
  return launch(std::move(job), opts.asyncOp);
}

WorkPtr GiantBackend::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) {
  const at::Tensor& input = only("gather", inputs);
  check_root("gather", opts.rootRank, size_);
  const bool is_root = opts.rootRank == rank_;
  TORCH_CHECK(is_root || outputs.empty(), "giant: gather: requires empty output on non-root");
  if (is_root) check_like("gather", input, only("gather", outputs), size_);
  Job job = make_job(OpType::GATHER, "gather", "giant:gather", opts.timeout, inputs);
  job.outputs = outputs;
  job.calls.push_back(moving(Kind::gather, input, static_cast<int>(opts.rootRank),
                             {job.buffers.in(input)},
                             is_root ? all_out(job.buffers, outputs[0]) : std::vector<void*>{}));
  return launch(std::move(job), opts.asyncOp);
}

WorkPtr GiantBackend::scatter(Tensors& outputs, TensorLists& inputs,
                              const c10d::ScatterOptions& opts) {
  const at::Tensor& output = only("scatter", outputs);
  check_root("scatter", opts.rootRank, size_);
  const bool is_root = opts.rootRank == rank_;
  TORCH_CHECK(is_root || inputs.empty(), "giant: scatter: requires empty input on non-root");
  if (is_root) check_like("scatter", output, only("scatter", inputs), size_);
  Job job = make_job(OpType::SCATTER, "scatter", "giant:scatter", opts.timeout,
                     is_root ? at::TensorList(inputs[0]) : at::TensorList());
  job.outputs = {outputs};
  auto blocks = is_root ? all_in(job.buffers, inputs[0]) : std::vector<const void*>{};
  job.calls.push_back(moving(Kind::scatter, output, static_cast<int>(opts.rootRank),
                             std::move(blocks), {job.buffers.out(output)}));
  return launch(std::move(job), opts.asyncOp);
}

WorkPtr GiantBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                     const c10d::ReduceScatterOptions& opts) {
  const at::Tensor& output = only("reduce_scatter", outputs);
  const Tensors& list = only("reduce_scatter", inputs);
  check_like("reduce_scatter", output, list, size_);
  Job job = make_job(OpType::REDUCE_SCATTER, "reduce_scatter", "giant:reduce_scatter", opts.timeout,
                     list);
  job.outputs = {outputs};
  const Sum sum = sum_of(job.name, opts.reduceOp, output, size_);
  std::vector<const void*> blocks;
  for (const at::Tensor& one : list) {
    const at::Tensor real = as_real(one);
    blocks.push_back(sum.has_factor ? job.buffers.scaled(real, opts.reduceOp)
                                    : job.buffers.in(real));
  }
  const at::Tensor real = as_real(output);
  add_sum(job, Kind::reduce_scatter, sum, moved_as(real), real.nbytes(), 0, std::move(blocks),
          {job.buffers.out(real)});
  return launch(std::move(job), opts.asyncOp);
}

void GiantBackend::add_reduce_scatter(Job& job, const at::Tensor& output, const at::Tensor& input,
                                      const c10d::ReduceOp& op) const {
  check_pair(job.name, input, output, size_);
  const Sum sum = sum_of(job.name, op, output, size_);
  const at::Tensor from = as_real(input), to = as_real(output);
  const void* const memory = sum.has_factor ? job.buffers.scaled(from, op) : job.buffers.in(from);
  add_sum(job, Kind::reduce_scatter, sum, moved_as(to), to.nbytes(), 0,
          blocks_of(memory, to.nbytes(), size_), {job.buffers.out(to)});
}

WorkPtr GiantBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                           const c10d::ReduceScatterOptions& opts) {
  Job job = make_job(OpType::_REDUCE_SCATTER_BASE, "reduce_scatter", "giant:_reduce_scatter_base",
                     opts.timeout, input);
  job.outputs = {{output}};
  add_reduce_scatter(job, output, input, opts.reduceOp);
  return launch(std::move(job), opts.asyncOp);
}

WorkPtr GiantBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                      const c10d::ReduceScatterOptions& opts) {
  check_tensors("reduce_scatter", inputs);
  TORCH_CHECK(outputs.size() == inputs.size(),
              "giant: reduce_scatter: requires input/output tensor lists to have the same length");
  Job job = make_job(OpType::REDUCE_SCATTER_TENSOR_COALESCED, "reduce_scatter_coalesced",
                     "giant:reduce_scatter", opts.timeout, inputs);
  job.outputs = {outputs};
  for (size_t i = 0; i < inputs.size(); ++i)
    add_reduce_scatter(job, outputs[i], inputs[i], opts.reduceOp);
  return launch(std::move(job), opts.asyncOp);
}

WorkPtr GiantBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                    std::vector<int64_t>& output_splits,
                                    std::vector<int64_t>& input_splits,
                                    const c10d::AllToAllOptions& opts) {
  const char* const name = "all_to_all";
  check_tensor(name, output);
  check_tensor(name, input);
  TORCH_CHECK(output.scalar_type() == input.scalar_type(),
              "giant: all_to_all: tensors are not equal in data type");
  Job job = make_job(OpType::ALLTOALL_BASE, name, "giant:all_to_all", opts.timeout, input);
  job.outputs = {{output}};
  const auto sent = bytes_of_splits(name, input_splits, input, size_);
  const auto received = bytes_of_splits(name, output_splits, output, size_);
  const void* const from = job.buffers.in(input);
  Call call = moving(Kind::all_to_all, input, 0, places(from, sent),
                     places(job.buffers.out(output), received));
  // All ranks decide alike only about what all of them know: that nobody gave sizes.
  const bool is_even = input_splits.empty() && output_splits.empty() && sent == received;
  call.bytes = is_even ? sent[0] : 0;
  if (!is_even) {
    call.input_bytes = sent;
    call.output_bytes = received;
  }
  job.calls.push_back(std::move(call));
  return launch(std::move(job), opts.asyncOp);
}

WorkPtr GiantBackend::alltoall(Tensors& outputs, Tensors& inputs,
                               const c10d::AllToAllOptions& opts) {
  check_tensors("all_to_all", inputs);
  check_tensors("all_to_all", outputs);
  c10d::assertAllToAllTensorListSizes(
      [](const std::string& text) { TORCH_CHECK(false, "giant: all_to_all: ", text); },
      outputs.size(), inputs.size(), size_);
  Job job = make_job(OpType::ALLTOALL, "all_to_all", "giant:all_to_all", opts.timeout, inputs);
  job.outputs = {outputs};
  Call call = moving(Kind::all_to_all, inputs[0], 0, all_in(job.buffers, inputs),
                     all_out(job.buffers, outputs));
  call.bytes = 0;
  for (int rank = 0; rank < size_; ++rank) {
    TORCH_CHECK(inputs[rank].scalar_type() == inputs[0].scalar_type() &&
                    outputs[rank].scalar_type() == inputs[0].scalar_type(),
                "giant: all_to_all: tensors are not equal in data type");
    call.input_bytes.push_back(inputs[rank].nbytes());
    call.output_bytes.push_back(outputs[rank].nbytes());
  }
  job.calls.push_back(std::move(call));
  return launch(std::move(job), opts.asyncOp);
}

}  // namespace giant::pg
