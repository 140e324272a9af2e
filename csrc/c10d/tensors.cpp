#include "tensors.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

namespace giant::pg {
namespace {

bool is_plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

at::Tensor copy_of(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(), tensor.options().memory_format(at::MemoryFormat::Contiguous));
}

Reduction reduction_of(const char* operation, c10d::ReduceOp::RedOpType op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::AVG:
    case c10d::ReduceOp::PREMUL_SUM: return Reduction::sum;
    case c10d::ReduceOp::PRODUCT: return Reduction::product;
    case c10d::ReduceOp::MIN: return Reduction::min;
    case c10d::ReduceOp::MAX: return Reduction::max;
    case c10d::ReduceOp::BAND: return Reduction::bit_and;
    case c10d::ReduceOp::BOR: return Reduction::bit_or;
    case c10d::ReduceOp::BXOR: return Reduction::bit_xor;
    default: break;
  }
  TORCH_CHECK(false, "giant: ", operation, ": unknown reduction ", static_cast<int>(op));
}

bool is_linear(c10d::ReduceOp::RedOpType op) {
  return op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::AVG || op == c10d::ReduceOp::PREMUL_SUM;
}

/// Copies belong to no graph and count as no change of a view.
void run_all(const std::vector<std::function<void()>>& functions) {
  if (functions.empty()) return;
  const at::AutoDispatchBelowADInplaceOrView below;
  for (const auto& function : functions) function();
}

}  // namespace

std::optional<DType> dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kByte: return DType::u8;
    case at::kChar: return DType::i8;
    case at::kShort: return DType::i16;
    case at::kInt: return DType::i32;
    case at::kLong: return DType::i64;
    case at::kHalf: return DType::f16;
    case at::kBFloat16: return DType::bf16;
    case at::kFloat: return DType::f32;
    case at::kDouble: return DType::f64;
    case at::kBool: return DType::boolean;
    default: return std::nullopt;
  }
}

DType moved_as(const at::Tensor& tensor) {
  return dtype_of(tensor.scalar_type()).value_or(DType::u8);
}

void check_tensor(const char* operation, const at::Tensor& tensor) {
  TORCH_CHECK(tensor.defined(), "giant: ", operation, ": an undefined tensor");
  TORCH_CHECK(tensor.layout() == at::kStrided, "giant: ", operation,
              ": only supports dense tensors, not ", tensor.layout());
  TORCH_CHECK(tensor.device().is_cpu(), "giant: ", operation, ": only supports CPU tensors, not ",
              tensor.device());
}

void check_tensors(const char* operation, at::TensorList tensors) {
  TORCH_CHECK(!tensors.empty(), "giant: ", operation, ": requires a non-empty tensor list");
  for (const at::Tensor& tensor : tensors) check_tensor(operation, tensor);
}

const at::Tensor& only(const char* operation, at::TensorList tensors) {
  TORCH_CHECK(tensors.size() == 1, "giant: ", operation, ": requires a single-element tensor list");
  check_tensor(operation, tensors[0]);
  return tensors[0];
}

const std::vector<at::Tensor>& only(const char* operation,
                                    const std::vector<std::vector<at::Tensor>>& lists) {
  TORCH_CHECK(lists.size() == 1, "giant: ", operation, ": requires a single list of tensors");
  return lists[0];
}

void check_like(const char* operation, const at::Tensor& like, at::TensorList tensors, int count) {
  TORCH_CHECK(tensors.size() == static_cast<size_t>(count), "giant: ", operation, ": a list of ",
              tensors.size(), " tensors in a group of ", count, " ranks");
  for (size_t i = 0; i < tensors.size(); ++i) {
    check_tensor(operation, tensors[i]);
    TORCH_CHECK(tensors[i].scalar_type() == like.scalar_type(), "giant: ", operation,
                ": invalid tensor type at index ", i, " (expected ", like.scalar_type(), ", got ",
                tensors[i].scalar_type(), ")");
    TORCH_CHECK(tensors[i].sizes() == like.sizes(), "giant: ", operation,
                ": invalid tensor size at index ", i, " (expected ", like.sizes(), ", got ",
                tensors[i].sizes(), ")");
  }
}

void check_root(const char* operation, int64_t root, int size) {
  TORCH_CHECK(root >= 0 && root < size, "giant: ", operation, ": invalid root rank: ", root);
}

Sum sum_of(const char* operation, const c10d::ReduceOp& op, const at::Tensor& tensor, int size) {
  const auto kind = static_cast<c10d::ReduceOp::RedOpType>(op);
  TORCH_CHECK(!tensor.is_complex() || is_linear(kind), "giant: ", operation,
              ": complex numbers have no such reduction, only sums");
  const auto type = c10::toRealValueType(tensor.scalar_type());
  const auto dtype = dtype_of(type);
  TORCH_CHECK(dtype, "giant: ", operation, ": ", type, " can be moved but not reduced");
  Sum sum;
  sum.reduction = reduction_of(operation, kind);
  const bool is_bits = kind == c10d::ReduceOp::BAND || kind == c10d::ReduceOp::BOR ||
                       kind == c10d::ReduceOp::BXOR;
  TORCH_CHECK(!is_bits || c10::isIntegralType(type, true), "giant: ", operation,
              ": bits of a non-integral dtype, ", type);
  if (kind == c10d::ReduceOp::AVG) {
    TORCH_CHECK(c10::isFloatingType(type), "giant: ", operation, ": an average of ", type,
                " has no exact result; sum and divide");
    sum.scale = 1.0 / size;
    sum.is_average = true;
  }
  sum.has_factor = kind == c10d::ReduceOp::PREMUL_SUM;
  if (sum.has_factor) sum.premultiply = op;
  return sum;
}

const void* Buffers::in(const at::Tensor& tensor) {
  keep(tensor);
  if (is_plain(tensor)) return tensor.const_data_ptr();
  at::Tensor copy = copy_of(tensor);
  before([copy, tensor] { copy.copy_(tensor); });
  return copy.const_data_ptr();
}

void* Buffers::out(const at::Tensor& tensor) {
  keep(tensor);
  if (is_plain(tensor)) return tensor.data_ptr();
  at::Tensor copy = copy_of(tensor);
  after([copy, tensor] { tensor.copy_(copy); });
  return copy.data_ptr();
}

void* Buffers::in_out(const at::Tensor& tensor) {
  keep(tensor);
  if (is_plain(tensor)) return tensor.data_ptr();
  at::Tensor copy = copy_of(tensor);
  before([copy, tensor] { copy.copy_(tensor); });
  after([copy, tensor] { tensor.copy_(copy); });
  return copy.data_ptr();
}

const void* Buffers::scaled(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  const auto* const factor = dynamic_cast<c10d::PreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK(factor != nullptr, "giant: a PREMUL_SUM without its factor");
  at::Tensor copy = copy_of(tensor);
  keep(copy);
  const at::Tensor by = factor->tensor_factor;
  const double number = factor->double_factor;
  before([copy, tensor, by, number] {
    if (by.defined())
      copy.copy_(tensor * by);
    else
      copy.copy_(tensor * number);
  });
  return copy.const_data_ptr();
}

at::Tensor Buffers::packed(at::TensorList tensors) {
  int64_t total = 0;
  for (const at::Tensor& tensor : tensors) total += tensor.numel();
  at::Tensor flat = at::empty({total}, tensors[0].options());
  keep(flat);
  int64_t begin = 0;
  for (const at::Tensor& tensor : tensors) {
    at::Tensor part = flat.narrow(0, begin, tensor.numel()).view(tensor.sizes());
    begin += tensor.numel();
    before([part, tensor] { part.copy_(tensor); });
    after([part, tensor] { tensor.copy_(part); });
  }
  return flat;
}

void Buffers::begin() const { run_all(before_); }

void Buffers::end() const { run_all(after_); }

at::Tensor as_real(const at::Tensor& tensor) {
  return tensor.is_complex() ? at::view_as_real(tensor.is_conj() ? tensor.resolve_conj() : tensor)
                             : tensor;
}

}  // namespace giant::pg
