#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "reduce/reduce.h"

namespace giant::pg {

/// The core's type, or none: such tensors can be moved as bytes but not reduced.
std::optional<DType> dtype_of(at::ScalarType type);

/// The type under which a tensor's bytes travel.
DType moved_as(const at::Tensor& tensor);

/// Throws for what is no dense tensor on the CPU. `operation` is for the message.
void check_tensor(const char* operation, const at::Tensor& tensor);
void check_tensors(const char* operation, at::TensorList tensors);
/// The one tensor of a list: the device of a process has one.
const at::Tensor& only(const char* operation, at::TensorList tensors);
const std::vector<at::Tensor>& only(const char* operation,
                                    const std::vector<std::vector<at::Tensor>>& lists);
/// Throws unless `tensors` are `count` tensors of the type and shape of `like`.
void check_like(const char* operation, const at::Tensor& like, at::TensorList tensors, int count);
void check_root(const char* operation, int64_t root, int size);

/// How a reduction is asked of the core.
struct Sum {
  Reduction reduction = Reduction::sum;
  double scale = 1.0;
  bool is_average = false;
  c10d::ReduceOp premultiply;  // PREMUL_SUM with its factor, else of no meaning
  bool has_factor = false;
};

/// Throws for what the type does not have.
Sum sum_of(const char* operation, const c10d::ReduceOp& op, const at::Tensor& tensor, int size);

/// Memory of tensors for a call. What is not contiguous goes through copies: they are made when the
/// call begins and when it ends, so that calls in a row see each other's results.
class Buffers {
 public:
  const void* in(const at::Tensor& tensor);
  void* out(const at::Tensor& tensor);
  void* in_out(const at::Tensor& tensor);
  /// A copy of the tensor times the factor of PREMUL_SUM.
  const void* scaled(const at::Tensor& tensor, const c10d::ReduceOp& op);
  /// All tensors, one behind the other, copied in and out.
  at::Tensor packed(at::TensorList tensors);

  void keep(const at::Tensor& tensor) { kept_.push_back(tensor); }
  void before(std::function<void()> function) { before_.push_back(std::move(function)); }
  void after(std::function<void()> function) { after_.push_back(std::move(function)); }

  void begin() const;
  void end() const;

 private:
  std::vector<at::Tensor> kept_;
  std::vector<std::function<void()>> before_;
  std::vector<std::function<void()>> after_;
};

/// Complex numbers as pairs of real ones, others as they are.
at::Tensor as_real(const at::Tensor& tensor);

}  // namespace giant::pg
