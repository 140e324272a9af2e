#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "backend.h"

namespace giant::pg {
namespace {

/// The same block of every rank, behind each other.
at::Tensor gathered_from_all(Group& group, const at::Tensor& block, int size, Deadline deadline) {
  std::vector<int64_t> shape = block.sizes().vec();
  shape.insert(shape.begin(), size);
  at::Tensor all = at::empty(shape, block.options());
  Call call;
  call.kind = Kind::all_gather;
  call.dtype = moved_as(block);
  call.bytes = block.nbytes();
  call.inputs = {block.const_data_ptr()};
  for (int rank = 0; rank < size; ++rank)
    call.outputs.push_back(static_cast<char*>(all.data_ptr()) + rank * block.nbytes());
  group.run(call, deadline);
  return all;
}

/// Throws where two ranks' tensors differ in more than their numbers of entries.
int64_t longest_of(const at::Tensor& facts) {
  const int64_t width = facts.size(1);
  int64_t longest = 0;
  for (int64_t rank = 0; rank < facts.size(0); ++rank) {
    TORCH_CHECK(facts[rank].slice(0, 1, width).equal(facts[0].slice(0, 1, width)),
                "giant: all_reduce of sparse tensors: rank ", rank, "'s has another shape or number "
                "of sparse dimensions than rank 0's");
    longest = std::max(longest, facts[rank][0].item<int64_t>());
  }
  return longest;
}

/// Number of entries, sparse dimensions, then the shape, filled up to a fixed length.
at::Tensor facts_of(const at::Tensor& tensor) {
  constexpr int64_t kMostDims = 16;
  TORCH_CHECK(tensor.dim() <= kMostDims, "giant: all_reduce of a sparse tensor with ", tensor.dim(),
              " dimensions");
  at::Tensor facts = at::zeros({2 + kMostDims}, at::kLong);
  facts[0] = tensor._nnz();
  facts[1] = tensor.sparse_dim();
  for (int64_t i = 0; i < tensor.dim(); ++i) facts[2 + i] = tensor.size(i);
  return facts;
}

at::Tensor padded(const at::Tensor& rows, int64_t length) {
  std::vector<int64_t> shape = rows.sizes().vec();
  shape[0] = length;
  at::Tensor whole = at::zeros(shape, rows.options());
  whole.narrow(0, 0, rows.size(0)).copy_(rows);
  return whole;
}

/// The sum in rank order, so that all ranks get the same bits.
at::Tensor sum_of_all(Group& group, const at::Tensor& own, int size, Deadline deadline) {
  const at::Tensor facts = gathered_from_all(group, facts_of(own), size, deadline);
  const int64_t longest = longest_of(facts);
  const at::Tensor indices = gathered_from_all(
      group, padded(own.indices().t().contiguous(), longest), size, deadline);
  const at::Tensor values =
      gathered_from_all(group, padded(own.values().contiguous(), longest), size, deadline);
  std::vector<at::Tensor> all_indices, all_values;
  for (int rank = 0; rank < size; ++rank) {
    const int64_t count = facts[rank][0].item<int64_t>();
    all_indices.push_back(indices[rank].narrow(0, 0, count));
    all_values.push_back(values[rank].narrow(0, 0, count));
  }
  return at::sparse_coo_tensor(at::cat(all_indices).t(), at::cat(all_values), own.sizes(),
                               own.options())
      .coalesce();
}

}  // namespace

WorkPtr GiantBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  const char* const name = "all_reduce of sparse tensors";
  TORCH_CHECK(tensors.size() == 1 && tensors[0].is_sparse() && tensors[0].device().is_cpu(),
              "giant: ", name, ": requires one COO tensor on the CPU");
  TORCH_CHECK(opts.reduceOp == c10d::ReduceOp::SUM, "giant: ", name, ": only sums");
  const at::Tensor tensor = tensors[0];
  Job job = make_job(c10d::OpType::_ALLREDUCE_SPARSE, name, "giant:sparse_all_reduce", opts.timeout,
                     {});
  job.outputs = {tensors};
  job.body = [tensor, size = size_](Group& group, Deadline deadline) {
    tensor.copy_(sum_of_all(group, tensor.coalesce(), size, deadline));
  };
  return launch(std::move(job), opts.asyncOp);
}

}  // namespace giant::pg
